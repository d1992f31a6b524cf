"""The rules that an installation began with. Those that an upgrade brings only count, until promoted.

A service writes the names of all rules down when it first starts. What is not among them later is new: what
such a rule alone has seen is shown, and a person is asked.
"""

from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from relight.config import ConfigError
from relight.files import write_whole

KNOWN = "known-rules.json"
"""Under the state directory."""
DETECTORS = (
    "log", "silence", "no-progress", "no-first-step", "job-end", "launch", "node-loss", "machines",
    "checkpoints", "kernel", "nvml",
)  # fmt: skip
"""What sees faults, beside signatures and Xids. A node sensor's detectors have the names of their sources."""

_NAMES = TypeAdapter(list[str])


def built_in() -> tuple[str, ...]:
    """The names of all rules that this version of relight comes with."""
    from relight.diagnosis.catalogue import Catalogue  # slow to import

    own = Catalogue.load()
    codes = (("xid", own.xid.xid), ("sxid", own.xid.sxid))
    return (*DETECTORS, *(s.id for s in own), *(f"{table}-{code}" for table, rows in codes for code in rows))


def new_rules(state_dir: Path) -> tuple[str, ...]:
    """The rules that came with an upgrade; none where nothing was written down.

    Raises:
        ConfigError: what was written down cannot be read.
    """
    path = state_dir / KNOWN
    try:
        known = set(_NAMES.validate_json(path.read_bytes()))
    except (FileNotFoundError, NotADirectoryError):
        return ()
    except OSError as e:
        raise ConfigError(f"{path} cannot be read: {e.strerror or e}") from e
    except ValidationError as e:
        raise ConfigError(
            f"{path} is no list of names: delete it, and all rules of this version count as known"
        ) from e
    return tuple(rule for rule in built_in() if rule not in known)


def remember(state_dir: Path) -> None:
    """Writes the names of all rules down, where that was never done.

    Raises:
        OSError: that cannot be.
    """
    path = state_dir / KNOWN
    if path.exists():
        return
    write_whole(path, _NAMES.dump_json(list(built_in()), indent=1).decode())
