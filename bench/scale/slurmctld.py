"""The process of the simulated slurmctld: `python -m bench.scale.slurmctld DIR --jobs N`.

Serves DIR/ctl.sock for the commands in DIR/bin-worker and DIR/bin-sensor (links to DIR/command): by its name
a call tells whose it is. Beside Slurm's commands it answers the benchmark's own: `bench fail FIRST LAST`,
`bench calls` and `bench state`.
"""

import argparse
import asyncio
import json
from collections import Counter
from datetime import timedelta
from pathlib import Path

from bench.scale.cluster import Cluster, Refused, utc_now

TICK = 0.1
"""Seconds between two looks at what is due."""


class Server:
    """Answers commands."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._calls: Counter[str] = Counter()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One command."""
        try:
            argv = (await reader.read()).decode().split("\0")[:-1]
            try:
                status, text = 0, self._answer(argv)
            except Refused as error:
                status, text = 1, f"{error}\n"
            writer.write(bytes([status]) + text.encode())
            await writer.drain()
        except ConnectionError:  # the command was killed, as relight does after a timeout
            return
        finally:
            writer.close()

    def _answer(self, argv: list[str]) -> str:
        if argv[:1] == ["bench"]:
            return json.dumps(self._bench(argv[1:]))
        path = Path(argv[0])
        side = path.parent.name.removeprefix("bin-")
        self._calls[f"{side} {path.name}{' ' + argv[1] if path.name == 'scontrol' else ''}"] += 1
        return self._cluster.run(path.name, argv[1:], utc_now())

    def _bench(self, args: list[str]) -> object:
        match args:
            case ["fail", first, last]:
                now = utc_now()
                self._cluster.fail(range(int(first), int(last) + 1), now)
                return now.isoformat()
            case ["calls"]:
                return dict(self._calls)
            case ["state"]:
                return {
                    "states": dict(Counter(job.state for job in self._cluster.jobs.values())),
                    "restarts": dict(Counter(job.restarts for job in self._cluster.jobs.values())),
                }
        raise Refused(f"no such command: {args}")


async def main() -> None:
    """Serves until it is killed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--step-seconds", type=float, default=10.0)
    given = parser.parse_args()

    def write(path: str, text: str) -> None:
        with Path(path).open("a") as log:
            log.write(text)

    logs = given.directory / "logs"
    logs.mkdir(exist_ok=True)
    cluster = Cluster(given.jobs, str(logs), timedelta(seconds=given.step_seconds), utc_now(), write)
    server = Server(cluster)
    async with await asyncio.start_unix_server(server.serve, given.directory / "ctl.sock", limit=1 << 20):
        while True:
            cluster.tick(utc_now())
            await asyncio.sleep(TICK)


if __name__ == "__main__":
    asyncio.run(main())
