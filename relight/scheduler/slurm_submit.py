"""How a job is submitted with sbatch, and how a job of the past is put in those terms."""

import pwd
import re
from collections.abc import Mapping
from pathlib import PurePosixPath

from relight.contracts import JobInfo
from relight.scheduler.port import InvalidRequest, SubmitRequest
from relight.scheduler.slurm_text import absent, compact_nodes

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PATH = "/usr/local/bin:/usr/bin:/bin"


def arguments(request: SubmitRequest) -> list[str]:
    """The arguments of sbatch. Each value is one argument, and none is read by a shell."""
    given = {
        "job-name": request.name,
        "partition": request.partition,
        "nodes": str(request.nodes),
        "ntasks-per-node": str(request.tasks_per_node),
        "chdir": request.work_dir,
        "output": request.std_out,
        "error": request.std_err,
        "comment": request.comment,
        "exclude": compact_nodes(request.excluded_nodes),
        "time": "" if request.time_limit_minutes is None else str(request.time_limit_minutes),
        "open-mode": "append" if request.append_output else "truncate",
    }
    return [
        "--parsable",
        "--propagate=NONE",  # the limits of the node, not those of whoever submits
        "--requeue" if request.requeue else "--no-requeue",
        *(["--hold"] if request.hold else []),
        *(f"--{option}={value}" for option, value in given.items() if value),
        *request.extra_args,
    ]


def environment(request: SubmitRequest, account: pwd.struct_passwd) -> dict[str, str]:
    """The environment of sbatch, which becomes the job's: what every login has, and what was asked for.

    Nothing of whoever submits is in it. Not `--get-user-env`: slurmd then runs a login shell as the user
    before the job, takes up to two minutes over it (seen on 22.05), and slurmctld counts the job as lost
    after ten seconds ("missing from batch node") and requeues it. A script whose first line is
    `#!/bin/bash -l` reads the user's own profile.

    Raises:
        InvalidRequest: a variable that is none, or that would change what sbatch does.
    """
    for name, value in request.environment.items():
        if not _NAME.fullmatch(name) or "\0" in value:
            raise InvalidRequest(f"{name!r} is no environment variable")
        if name.startswith(("SLURM_", "SBATCH_")):
            raise InvalidRequest(f"the environment variable {name} would change how the job is submitted")
    name = account.pw_name
    login = {"HOME": account.pw_dir, "USER": name, "LOGNAME": name, "SHELL": account.pw_shell}
    return {"PATH": _PATH, "LANG": "C.UTF-8", **login, **request.environment}


def template(info: JobInfo, raw: Mapping[str, str], script: str) -> SubmitRequest:
    """What it takes to submit a job again.

    The variables that it was submitted with are not among it: Slurm does not tell them.

    Args:
        info: the job.
        raw: the job's row of `TEMPLATE_FIELDS`.
        script: its script.
    """
    per_node = info.tasks_per_node or -(-info.num_tasks // max(1, info.num_nodes)) or 1
    is_default = PurePosixPath(raw["StdOut"]).name in {f"slurm-{raw['JobID']}.out", "slurm-%j.out"}
    std_out = "" if is_default or absent(raw["StdOut"]) else raw["StdOut"]
    extra = _extra(raw, info.num_nodes)
    if info.num_tasks and info.num_tasks != per_node * info.num_nodes:
        extra.append(f"--ntasks={info.num_tasks}")
    return SubmitRequest(
        script=script,
        name=info.name,
        user=info.user,
        partition=info.partition,
        nodes=info.num_nodes,
        tasks_per_node=per_node,
        work_dir=info.work_dir,
        std_out=std_out,
        std_err="" if raw["StdErr"] == raw["StdOut"] or absent(raw["StdErr"]) else raw["StdErr"],
        comment=info.comment,
        excluded_nodes=info.excluded_nodes,
        time_limit_minutes=None if info.time_limit is None else int(info.time_limit.total_seconds() // 60),
        requeue=info.requeueable,
        extra_args=tuple(extra),
    )


def _extra(raw: Mapping[str, str], nodes: int) -> list[str]:
    given = {
        "account": raw["Account"],
        "qos": raw["QOS"],
        "reservation": raw["Reservation"],
        "constraint": raw["Feature"],
        "licenses": raw["Licenses"],
        "gres": _gres(raw["tres-per-node"]),
        "gpus": _gpus(raw["tres-per-job"]),
        "gpus-per-socket": _gpus(raw["tres-per-socket"]),
        "gpus-per-task": _gpus(raw["tres-per-task"]),
    }
    extra = [f"--{option}={value}" for option, value in given.items() if not absent(value)]
    if raw["cpus-per-task"].isdecimal() and int(raw["cpus-per-task"]) > 1:
        extra.append(f"--cpus-per-task={raw['cpus-per-task']}")
    if raw["MinMemory"].lstrip("0MG") and (memory := _memory_mb(raw["tres-alloc"])):
        extra.append(f"--mem={memory // max(1, nodes)}M")
    if raw["OverSubscribe"] == "NO":
        extra.append("--exclusive")
    return extra


def _memory_mb(tres: str) -> int:
    """The job's whole memory in MiB (squeue's MinMemory does not say if it is per CPU or per node)."""
    found = re.search(r"(?:^|,)mem=(\d+(?:\.\d+)?)([MGTP])", tres)
    return int(float(found[1]) * 1024 ** "MGTP".index(found[2])) if found else 0


def _gres(text: str) -> str:
    """`gpu:8` of `gres:gpu:8` (22.05) or `gres/gpu:8` (newer)."""
    words = (word.removeprefix("gres:").removeprefix("gres/") for word in text.split(",") if not absent(word))
    return ",".join(words)


def _gpus(text: str) -> str:
    """`8` of `gres/gpu:8`, `a100:8` of `gres:gpu:a100:8`; nothing of what is no GPU."""
    words = [word for word in _gres(text).split(",") if word.startswith("gpu:")]
    return ",".join(word.removeprefix("gpu:") for word in words)
