"""Whether Python must compile the workflows anew each time that Temporal's sandbox imports them.

The sandbox imports a workflow's module again for each execution. That is cheap where Python finds its
compiled code in a cache file; compiling it each time was measured as 45 % of a busy worker's processor time.
"""

import importlib.util
import sys
from pathlib import Path

_HEADER = 16
"""Bytes of a cache file before the code: magic number, flags, time and size of the source (PEP 552)."""


def why_compiled_anew(package: str = "workflows") -> str:
    """Why the modules of this package have no cache files that can be used, and what to do; empty: they have.

    Args:
        package: a package of modules, which is not imported here.
    """
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        return ""
    sources = sorted(Path(spec.origin).parent.glob("*.py"))
    if all(is_cached(source) for source in sources):
        return ""
    if sys.dont_write_bytecode:
        why, mend = "PYTHONDONTWRITEBYTECODE is set", "unset it"
    else:
        why, mend = (
            f"{sources[0].parent} cannot be written",
            "set PYTHONPYCACHEPREFIX to a directory that can be",
        )
    return (
        f"Python keeps no compiled code of {package} ({why}), so that Temporal's sandbox compiles it for "
        f"each execution, which may take half of a busy worker's processor time: {mend}, or run "
        f"`python -m compileall {sources[0].parent}` once"
    )


def is_cached(source: Path) -> bool:
    """There is a cache file for this version of Python that is up to date with the source."""
    try:
        header = Path(importlib.util.cache_from_source(str(source))).read_bytes()[:_HEADER]
        found = source.stat()
    except OSError:
        return False
    if len(header) < _HEADER or header[:4] != importlib.util.MAGIC_NUMBER:
        return False
    if int.from_bytes(
        header[4:8], "little"
    ):  # it names a hash of the source, and most such files are not checked
        return True
    made_from = (int(found.st_mtime) & 0xFFFFFFFF, found.st_size & 0xFFFFFFFF)
    return made_from == (int.from_bytes(header[8:12], "little"), int.from_bytes(header[12:16], "little"))
