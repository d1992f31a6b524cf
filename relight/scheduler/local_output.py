"""Names of output files: Slurm's filename patterns (sbatch(1), "filename pattern")."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

_PATTERN = re.compile(r"%(\d*)([%A-Za-z])")


def expand(pattern: str, values: Mapping[str, str]) -> str:
    """Replaces `%x` by `values["x"]`, `%4j` by a job id padded with zeros, and `%%` by a percent sign.

    A letter without a value stays as it is.
    """

    def replace(found: re.Match[str]) -> str:
        width, letter = found.groups()
        if letter == "%":
            return "%"
        if letter not in values:
            return found[0]
        value = values[letter]
        return value.zfill(min(int(width or 0), 10)) if value.isdigit() else value

    return _PATTERN.sub(replace, pattern)


def output_files(request: Mapping[str, Any], job_id: int, user: str, nodes: Sequence[str]) -> tuple[str, str]:
    """The job's standard output and error, expanded and absolute.

    Args:
        request: the fields of the `SubmitRequest`.
        job_id: the job.
        user: who it belongs to.
        nodes: its nodes; without them, a name that depends on the node is still unknown, and is empty here.
    """
    values = {
        "A": str(job_id),
        "j": str(job_id),
        "J": str(job_id),
        "u": user,
        "x": request["name"],
        "n": "0",
        "t": "0",
    }
    if nodes:
        values["N"] = nodes[0]
    work_dir = Path(request["work_dir"])

    def name(pattern: str) -> str:
        path = expand(pattern, values)
        return "" if not nodes and "N" in _letters(pattern) else str(work_dir / path)

    out = request["std_out"] or "slurm-%j.out"
    return name(out), name(request["std_err"] or out)


def _letters(pattern: str) -> set[str]:
    return {letter for _, letter in _PATTERN.findall(pattern)}
