"""Whether pyslurm can be used here, found out in another process: importing it may end the process."""

import importlib.util
import re

from relight.contracts import Model
from relight.scheduler.port import SchedulerError
from relight.scheduler.pyslurm_process import PyslurmProcess


class PyslurmProbe(Model):
    """What was found."""

    installed: bool
    usable: bool
    pyslurm: str = ""
    """Its version."""
    slurm: str = ""
    """The cluster's version."""
    why_not: str = ""
    """Why it cannot be used, and what to do."""


def probe(timeout: float = 15.0) -> PyslurmProbe:
    """Looks for pyslurm, imports it in a child process and reads the cluster's settings with it.

    Args:
        timeout: the longest that may take, in seconds.
    """
    if importlib.util.find_spec("pyslurm") is None:
        return PyslurmProbe(
            installed=False, usable=False, why_not="pyslurm is not installed: see docs/how-to/pyslurm.md"
        )
    process = PyslurmProcess(timeout)
    try:
        told = process.ask("version")
    except SchedulerError as e:
        return PyslurmProbe(installed=True, usable=False, why_not=str(e))
    finally:
        process.close()
    mismatch = version_mismatch(told["pyslurm"], told["slurm"])
    if not mismatch and told["lacks"]:
        mismatch = f"pyslurm {told['pyslurm']} lacks {', '.join(told['lacks'])}: a newer one may have it"
    return PyslurmProbe(
        installed=True,
        usable=not mismatch,
        pyslurm=told["pyslurm"],
        slurm=told["slurm"],
        why_not=mismatch,
    )


def version_mismatch(pyslurm: str, slurm: str) -> str:
    """Why these versions do not go together; empty: they do.

    The first two numbers of pyslurm's version are the release of Slurm that it was made for
    (`pyslurm/version.py`), and libslurm's structures differ between releases.
    """
    if _release(pyslurm) == _release(slurm):
        return ""
    release = ".".join(map(str, _release(slurm)))
    return (
        f"pyslurm {pyslurm} is not for this cluster's Slurm {slurm}: "
        f"build pyslurm {release} (docs/how-to/pyslurm.md)"
    )


def _release(version: str) -> tuple[int, ...]:
    """25.05.3 of Slurm and 25.5.0 of pyslurm are of one release."""
    return tuple(int(number) for number in re.findall(r"\d+", version)[:2])
