"""munged as deploy/compose runs it: as whoever owns the key, in a directory that is open like /tmp."""

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deploy.stack import stack

KEY_OWNER = 64031
OTHER = 64030


@pytest.fixture
def directory() -> Iterator[Path]:
    """What is mounted: `run/` as /run/munge, and the key. Below /tmp: munged looks at all that is above."""
    root = Path("/tmp") / f"munge-{os.getpid()}"
    root.mkdir(mode=0o755)
    (root / "run").mkdir()
    (root / "run").chmod(0o1777)  # as the Dockerfile makes it
    key = root / "munge.key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o400)
    os.chown(key, KEY_OWNER, KEY_OWNER)
    yield root
    shutil.rmtree(root)


def test_it_serves_whoever_shares_the_directory(directory: Path) -> None:
    service = stack()["services"]["munge"]
    here = [
        word.replace("/run/munge", f"{directory}/run")
        for word in [*service["entrypoint"], *service["command"]]
    ]
    paths = [f"--key-file={directory}/munge.key", f"--socket={directory}/run/munge.socket.2"]
    program = shutil.which(here[0], path=f"{os.environ['PATH']}:/usr/sbin")
    assert program, "these tests need munge: apt-get install munge"
    log = directory / "log"
    with log.open("wb") as out:
        munged = subprocess.Popen(
            [program, *here[1:], *paths], user=KEY_OWNER, group=KEY_OWNER, extra_groups=[], stderr=out
        )
    try:
        socket, deadline = directory / "run" / "munge.socket.2", time.monotonic() + 10
        while not socket.exists():
            assert munged.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)
        said = subprocess.run(
            f"munge --socket={socket} --no-input | unmunge --socket={socket}",
            shell=True,  # as the health check does it
            user=OTHER,
            group=OTHER,
            extra_groups=[],
            capture_output=True,
            text=True,
            check=True,
        )
        assert "Success" in said.stdout
        assert f"({OTHER})" in said.stdout, "it vouches for who asked, and not for itself"
    finally:
        munged.terminate()
        munged.wait(10)
