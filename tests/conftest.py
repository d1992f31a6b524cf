"""Fixtures for all tests."""

import os
import sys

import pytest

pytest_plugins = ["tests.slurm.plugin"]


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Remembers how the tests ended."""
    session.config.stash[_STATUS] = int(exitstatus)


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    """Ends the process at once.

    A Temporal client has threads that now and then abort an interpreter which is shutting down.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    if _STATUS in config.stash:
        os._exit(config.stash[_STATUS])


_STATUS = pytest.StashKey[int]()
