"""A real HTTP server that takes notices, and answers as a test wants."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

PATH = "/services/T0/s3cr3t-path"
"""The secret part of the address."""


class Webhook:
    """What came, and what is answered next; the last answer stays."""

    def __init__(self) -> None:
        self.answers: list[int] = [200]
        self.seconds = 0.0
        """How long an answer takes."""
        self.location = ""
        self.got: list[tuple[str, dict[str, Any]]] = []
        self.closing = threading.Event()
        self.url = ""


@contextmanager
def serving() -> Iterator[Webhook]:
    """Inside the block it serves."""
    hook = Webhook()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            content = self.rfile.read(int(self.headers["Content-Length"]))
            hook.got.append((self.path, json.loads(content)))
            hook.closing.wait(hook.seconds)
            self.send_response(hook.answers.pop(0) if len(hook.answers) > 1 else hook.answers[0])
            if hook.location:
                self.send_header("Location", hook.location)
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_GET = do_POST

        def log_message(self, format: str, *args: Any) -> None:
            """Says nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    hook.url = f"http://127.0.0.1:{server.server_port}{PATH}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield hook
    finally:
        hook.closing.set()
        server.shutdown()
        server.server_close()
        thread.join()
