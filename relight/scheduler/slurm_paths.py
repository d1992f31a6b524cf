"""Names of a job's output files: Slurm's filename patterns (sbatch(1), "filename pattern").

squeue prints the names as they were given. What slurmd makes of them was compared with the files that real
jobs wrote.
"""

import re
from pathlib import PurePosixPath

_PATTERN = re.compile(r"%(\d*)([%A-Za-z])")
_MAX_WIDTH = 10


def output_files(
    std_out: str,
    std_err: str,
    *,
    work_dir: str,
    job_id: str,
    array_job_id: str = "",
    array_task_id: str = "",
    name: str = "",
    user: str = "",
) -> tuple[str, str]:
    """Standard output and standard error of a batch job, absolute, with no patterns left.

    What depends on the node or the task (%N, %n, %t) becomes `*`: a restart may write another file.

    Args:
        std_out: as squeue prints it; empty for the default.
        std_err: likewise; empty for the same file.
        work_dir: what relative names are relative to.
        job_id: the raw id.
        array_job_id: id of the whole array; empty if the job is no task of an array.
        array_task_id: the job's index in the array.
        name: the job's name.
        user: the job's user.
    """
    # For a task of an array, squeue prints the default name of a plain job.
    if array_job_id and PurePosixPath(std_out).name == f"slurm-{job_id}.out":
        default = str(PurePosixPath(std_out).with_name("slurm-%A_%a.out"))
        std_out, std_err = default, default if std_err == std_out else std_err
    values = {
        "A": array_job_id or job_id,
        "a": array_task_id or "4294967294",  # NO_VAL, as slurmd prints it
        "J": job_id,
        "j": job_id,
        "n": "*",
        "N": "*",
        "s": "batch",
        "t": "*",
        "u": user,
        "x": name,
    }
    if array_task_id.isdecimal():
        values["b"] = str(int(array_task_id) % 10)

    def absolute(path: str) -> str:
        return str(PurePosixPath(work_dir) / _expand(path, values))

    out = std_out or ("slurm-%A_%a.out" if array_job_id else "slurm-%j.out")
    return absolute(out), absolute(std_err or out)


def _expand(path: str, values: dict[str, str]) -> str:
    if "\\" in path:  # turns all patterns off
        return path.replace("\\", "")

    def replace(found: re.Match[str]) -> str:
        width, letter = found.groups()
        if letter == "%":
            return "%"
        if letter not in values:
            return found[0]
        value = values[letter]
        return value.zfill(min(int(width or 0), _MAX_WIDTH)) if value.isdecimal() else value

    return _PATTERN.sub(replace, path)
