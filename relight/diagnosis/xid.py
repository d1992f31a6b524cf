"""What NVIDIA's Xid codes mean, and what they let relight do: a data file, with site overrides by code."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import ClassVar

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from relight.contracts import Cause

_DATA = Path(__file__).parent / "signatures" / "xid.yaml"


class XidClass(StrEnum):
    """What a code means for the job and its node."""

    IGNORE = "ignore"
    """Nothing to do about it: counted as context."""
    FOLLOWS = "follows"
    """A consequence of another code, or of a process being killed."""
    RESTART = "restart"
    """The job died of it and may run on the same node again; usually the application."""
    HOLD_OUT = "hold_out"
    """The node should not be used before a reset, a reboot or a repair."""
    ESCALATE = "escalate"
    """For a person; relight never acts on it."""


class Needs(StrEnum):
    """What a node needs before it is as good as before."""

    NOTHING = ""
    RESET = "reset"
    """A reset of the GPU, once no job uses it."""
    REBOOT = "reboot"


class XidEntry(BaseModel):
    """One code."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = ""
    does: XidClass
    cause: Cause = Cause.GPU_HARDWARE
    says: str = ""
    needs: Needs = Needs.NOTHING


UNKNOWN_CODE = XidEntry(name="not in the catalogue", does=XidClass.ESCALATE, cause=Cause.UNKNOWN)


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid")

    xid: dict[int, XidEntry] = {}
    sxid: dict[int, XidEntry] = {}


@dataclass(frozen=True)
class XidPolicy:
    """Xid codes (GPU driver) and SXid codes (NVSwitch) to what they mean."""

    xid: dict[int, XidEntry]
    sxid: dict[int, XidEntry]

    FILE_NAME: ClassVar[str] = "xid.yaml"

    def entry(self, code: int, table: str = "xid") -> XidEntry:
        """The entry of a code; an unknown code is for a person, never acted on."""
        return (self.sxid if table == "sxid" else self.xid).get(code, UNKNOWN_CODE)

    @classmethod
    def load(cls, site_dirs: Sequence[Path] = ()) -> tuple["XidPolicy", list[tuple[Path, int, str]]]:
        """The built-in table and the overrides of each site's `xid.yaml`; and what is wrong with them."""
        xid: dict[int, XidEntry] = {}
        sxid: dict[int, XidEntry] = {}
        problems: list[tuple[Path, int, str]] = []
        for path in (_DATA, *(Path(d) / cls.FILE_NAME for d in site_dirs)):
            if not path.is_file():
                continue
            try:
                data = _File.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")) or {})
            except (OSError, UnicodeDecodeError, yaml.YAMLError, ValidationError) as e:
                problems.append((path, 1, f"the Xid table cannot be used: {e}"))
                continue
            xid.update(data.xid)
            sxid.update(data.sxid)
        return cls(xid, sxid), problems
