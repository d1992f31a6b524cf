"""These tests need the libraries of the dependency group `checkpoint-tests` (torch and others, CPU builds).

Where they are not installed, the tests are left out, and pytest says so in its header. With
RELIGHT_REAL_LIBRARIES=1 they are always collected, and fail without the libraries.
"""

import os
from importlib.util import find_spec

import pytest

LIBRARIES = ("torch", "safetensors", "transformers", "lightning", "accelerate", "orbax.checkpoint", "fsspec")


def _is_missing(name: str) -> bool:
    try:
        return find_spec(name) is None
    except ModuleNotFoundError:  # a parent package is missing
        return True


MISSING = [name for name in LIBRARIES if _is_missing(name)]

if MISSING and not os.environ.get("RELIGHT_REAL_LIBRARIES"):
    collect_ignore_glob = ["test_*.py"]


def pytest_report_header(config: pytest.Config) -> str | None:
    """Says that the tests are left out, and why."""
    if MISSING and not os.environ.get("RELIGHT_REAL_LIBRARIES"):
        return f"left out: tests with real checkpoint libraries (not installed: {', '.join(MISSING)})"
    return None
