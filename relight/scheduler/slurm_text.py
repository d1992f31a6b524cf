"""Reads what squeue, sinfo, sacct and scontrol print.

Job names and comments are written by users: they hold any text, newlines included. So every listing is asked
for with a separator that is made up for that one call, after each field, and nobody can have written it. The
listing must begin with its column titles: without them it is no answer, and means nothing (and certainly not
that there are no jobs).
"""

import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import ParamSpec, TypeVar

import hostlist

from relight.contracts import JobInfo, JobState, NodeInfo
from relight.scheduler.port import SchedulerUnreachable
from relight.scheduler.slurm_paths import output_files

P = ParamSpec("P")
T = TypeVar("T")

JOB_FIELDS = (
    "JobID", "JobArrayID", "ArrayJobID", "ArrayTaskID", "Name", "UserName", "Partition", "Account", "State",
    "Reason", "RestartCnt", "SubmitTime", "StartTime", "EndTime", "EligibleTime", "TimeLimit", "NodeList",
    "NumNodes", "NumTasks", "NTPerNode", "PriorityLong", "Requeue", "BatchFlag", "exit_code", "StdOut",
    "StdErr", "WorkDir", "tres-alloc", "tres-per-node", "Comment",
)  # fmt: skip
"""Fields of `squeue -O` (22.05 and later) that make a `JobInfo`."""

EXCLUSION_FIELDS = ("%i", "%x")
"""Fields of `squeue -o`: id and excluded nodes. `squeue -O` has no field for excluded nodes."""

TEMPLATE_FIELDS = (
    "JobID", "StdOut", "StdErr", "Account", "QOS", "Reservation", "Feature", "Licenses", "cpus-per-task",
    "MinMemory", "OverSubscribe", "tres-alloc", "tres-per-node", "tres-per-job", "tres-per-socket",
    "tres-per-task",
)  # fmt: skip
"""Fields of `squeue -O` that say what a job was submitted with and a `JobInfo` does not."""

NODE_FIELDS = ("NodeList", "StateComplete", "Reason", "User")
"""Fields of `sinfo -O`."""

ACCOUNTING_FIELDS = (
    "JobID", "JobName", "User", "Partition", "Account", "State", "ExitCode", "Submit", "Start", "End",
    "Eligible", "TimelimitRaw", "NodeList", "NNodes", "Reason", "WorkDir", "Comment",
)  # fmt: skip
"""Fields of `sacct -o` (22.05 and later; it has no restart count there)."""

_TITLES = {"%i": "JOBID"}  # where the title of a field is not its name
_ABSENT = frozenset({"", "(null)", "N/A", "NONE", "None", "Unknown", "n/a"})
_NO_VALUE = frozenset({4294967294, 4294967295})  # NO_VAL and INFINITE of slurm.h

# States that Slurm derives from a flag, and the base state such a job is in (squeue(1), "JOB STATE CODES").
_BASE_OF_FLAG = {
    "REQUEUED": JobState.PENDING,
    "REQUEUE_FED": JobState.PENDING,
    "REQUEUE_HOLD": JobState.PENDING,
    "SPECIAL_EXIT": JobState.PENDING,
    "RESV_DEL_HOLD": JobState.PENDING,
    "POWER_UP_NODE": JobState.CONFIGURING,
    "RESIZING": JobState.RUNNING,
    "SIGNALING": JobState.RUNNING,
    "STOPPED": JobState.SUSPENDED,
    "STAGE_OUT": JobState.COMPLETING,
}


def separator() -> str:
    """A field separator that no user knows. It does not begin with a digit: squeue would read a width."""
    return f"@{secrets.token_hex(8)}@"


def format_option(fields: Sequence[str], sep: str) -> str:
    """The argument of `-O`: each field in full, followed by the separator."""
    return ",".join(f"{field}:{sep}" for field in fields)


def rows(text: str, fields: Sequence[str], sep: str) -> list[dict[str, str]]:
    """The rows of a listing, without the titles.

    Raises:
        SchedulerUnreachable: the listing does not have the shape that was asked for.
    """
    cells = text.split(sep)
    width = len(fields)
    if len(cells) % width != 1 or len(cells) < width + 1 or cells[-1].strip():
        raise SchedulerUnreachable(
            f"Slurm's listing is not as asked for: {len(cells) - 1} cells in columns of {width}; "
            f"it begins with {text[:80]!r}"
        )
    titles, *lines = (cells[at : at + width] for at in range(0, len(cells) - 1, width))
    if titles[0].lower() != _TITLES.get(fields[0], fields[0]).lower():
        raise SchedulerUnreachable(f"Slurm's listing begins with {titles[0][:80]!r} and not with its titles")
    for line in lines:
        if not line[0].startswith("\n"):
            raise SchedulerUnreachable(f"a row of Slurm's listing begins with {line[0][:80]!r}")
        line[0] = line[0][1:]
    return [dict(zip(fields, line, strict=True)) for line in lines]


def job_infos(main: str, exclusions: str, sep: str) -> dict[str, JobInfo]:
    """The jobs of two listings, of `JOB_FIELDS` and of `EXCLUSION_FIELDS`, by every id that names just one.

    That is the job's id (`12_3` for a task of an array), and beside it Slurm's raw id and `12+1` for a
    component of a heterogeneous job. A job that only one of the listings has is left out.

    Raises:
        SchedulerUnreachable: a listing cannot be read.
    """
    excluded = {row["%i"]: row["%x"] for row in rows(exclusions, EXCLUSION_FIELDS, sep)}
    found: dict[str, JobInfo] = {}
    for row in rows(main, JOB_FIELDS, sep):
        if row["JobArrayID"] not in excluded:
            continue
        info = _understood(_job_info, row, excluded[row["JobArrayID"]])
        is_array = row["ArrayTaskID"] not in _ABSENT
        found[info.job_id] = info
        if not is_array or row["JobID"] != row["ArrayJobID"]:
            found[row["JobID"]] = info
        found[row["JobArrayID"]] = info
    return found


def node_infos(text: str, sep: str) -> dict[str, NodeInfo]:
    """The nodes of a listing of `NODE_FIELDS`, each once (sinfo lists a node for each of its partitions).

    Raises:
        SchedulerUnreachable: the listing cannot be read.
    """
    return {
        info.name: info for info in (_understood(_node_info, row) for row in rows(text, NODE_FIELDS, sep))
    }


def last_attempt(text: str, sep: str, job_id: str) -> JobInfo | None:
    """The last attempt of a job in a listing of `ACCOUNTING_FIELDS`; None when there is none.

    Raises:
        SchedulerUnreachable: the listing cannot be read.
    """
    attempts = [row for row in rows(text, ACCOUNTING_FIELDS, sep) if row["JobID"] == job_id]
    return _understood(_accounted, attempts) if attempts else None


def settings(text: str) -> dict[str, str]:
    """The settings that `scontrol show config` prints."""
    pairs = (line.partition("=") for line in text.splitlines())
    return {name.strip(): value.strip() for name, equals, value in pairs if equals}


def boot_time(config: str) -> datetime | None:
    """When slurmctld was started, of what `scontrol show config` prints; None: it does not say.

    Raises:
        SchedulerUnreachable: it says it in a way that cannot be read.
    """
    return _understood(_time, settings(config).get("BOOT_TIME", ""))


def partition_sizes(text: str) -> dict[str, int]:
    """How many nodes each partition has, of what `scontrol show partition --oneliner` prints."""
    sizes = {}
    for line in text.splitlines():
        fields = dict(word.partition("=")[::2] for word in line.split())
        if "PartitionName" in fields and fields.get("TotalNodes", "").isdecimal():
            sizes[fields["PartitionName"]] = int(fields["TotalNodes"])
    return sizes


def expand_nodes(text: str) -> tuple[str, ...]:
    """The nodes that Slurm's notation means: `node[01-02]` is node01 and node02.

    Raises:
        SchedulerUnreachable: it is no such notation.
    """
    if text in _ABSENT:
        return ()
    try:
        return tuple(hostlist.expand_hostlist(text))
    except hostlist.BadHostlist as e:
        raise SchedulerUnreachable(f"{text[:80]!r} is no list of nodes: {e}") from e


def compact_nodes(nodes: Sequence[str]) -> str:
    """The shortest notation of these nodes."""
    return str(hostlist.collect_hostlist(nodes))


def absent(text: str) -> bool:
    """Slurm prints this where it has no value."""
    return text in _ABSENT


def _understood(read: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """What `read` makes of a row; a row that it cannot make anything of is no answer."""
    try:
        return read(*args, **kwargs)
    except ValueError as e:
        raise SchedulerUnreachable(f"Slurm's answer cannot be understood: {e}") from e


def _job_info(row: Mapping[str, str], excluded: str) -> JobInfo:
    state, flags = job_state(row["State"])
    is_array = not absent(row["ArrayTaskID"])
    job_id = row["JobArrayID"] if is_array else row["JobID"]
    num_nodes = _leading_int(row["NumNodes"])
    code, by_signal = _exit(row["exit_code"])
    began = state not in {JobState.PENDING, JobState.CONFIGURING}
    std_out, std_err = output_files(
        "" if absent(row["StdOut"]) else row["StdOut"],
        "" if absent(row["StdErr"]) else row["StdErr"],  # newer versions have none if it is the same
        work_dir=row["WorkDir"],
        job_id=row["JobID"],
        array_job_id=row["ArrayJobID"] if is_array else "",
        array_task_id=row["ArrayTaskID"] if is_array else "",
        name=row["Name"],
        user=row["UserName"],
    )
    return JobInfo(
        job_id=job_id,
        name=row["Name"],
        user=row["UserName"],
        partition=row["Partition"],
        account="" if absent(row["Account"]) else row["Account"],
        state=state,
        flags=flags,
        reason="" if absent(row["Reason"]) else row["Reason"].replace(" ", "_"),
        restart_count=int(row["RestartCnt"]),
        submit_time=_needed_time(row["SubmitTime"]),
        start_time=_time(row["StartTime"]) if began else None,  # before, it is Slurm's guess
        end_time=_time(row["EndTime"])
        if state.is_over
        else None,  # before, it is when the time limit ends it
        eligible_time=_time(row["EligibleTime"]),
        time_limit=_duration(row["TimeLimit"]),
        nodes=expand_nodes(row["NodeList"]),
        excluded_nodes=expand_nodes(excluded),
        num_nodes=num_nodes,
        num_tasks=_count(row["NumTasks"]) or num_nodes,
        tasks_per_node=_count(row["NTPerNode"]),
        gpus=_gpus(row["tres-alloc"], row["tres-per-node"], num_nodes),
        held=state is JobState.PENDING and row["PriorityLong"] == "0",
        requeueable=row["Requeue"] == "1",
        is_batch=row["BatchFlag"] != "0",
        exit_code=code if state.is_over else None,
        exit_signal=by_signal if state.is_over else None,
        std_out=std_out,
        std_err=std_err,
        work_dir=row["WorkDir"],
        comment="" if row["Comment"] == "(null)" else row["Comment"],
    )


def _node_info(row: Mapping[str, str]) -> NodeInfo:
    state, flags = node_state(row["StateComplete"])
    return NodeInfo(
        name=row["NodeList"],
        state=state,
        flags=flags,
        reason="" if row["Reason"] == "none" else row["Reason"],
        reason_user="" if absent(row["User"]) else row["User"],
    )


def _accounted(attempts: Sequence[Mapping[str, str]]) -> JobInfo:
    """Accounting has a record for each attempt, oldest first; what came before the last one were restarts."""
    row = attempts[-1]
    state, flags = job_state(row["State"].split(" ")[0])  # CANCELLED by 1000
    code, by_signal = _exit(row["ExitCode"])
    num_nodes = _leading_int(row["NNodes"])
    return JobInfo(
        job_id=row["JobID"],
        name=row["JobName"],
        user=row["User"],
        partition=row["Partition"],
        account=row["Account"],
        state=state,
        flags=flags,
        reason="" if absent(row["Reason"]) else row["Reason"],
        restart_count=len(attempts) - 1,
        submit_time=_needed_time(row["Submit"]),
        start_time=_time(row["Start"]),
        end_time=_time(row["End"]),
        eligible_time=_time(row["Eligible"]),
        time_limit=_minutes(row["TimelimitRaw"]),
        nodes=() if row["NodeList"] == "None assigned" else expand_nodes(row["NodeList"]),
        num_nodes=num_nodes,
        num_tasks=num_nodes,
        exit_code=code if state.is_over else None,
        exit_signal=by_signal if state.is_over else None,
        work_dir=row["WorkDir"],
        comment=row["Comment"],
    )


def node_state(text: str) -> tuple[str, tuple[str, ...]]:
    """The base state of a node, and the flags beside it."""
    base, *flags = text.upper().split("+")
    if suffix := base.lstrip("ABCDEFGHIJKLMNOPQRSTUVWXYZ_"):  # IDLE*: sinfo(1), NODE STATE CODES
        base = base[: -len(suffix)]
        flags += ["NOT_RESPONDING"] if "*" in suffix else []
    return base, tuple(dict.fromkeys(flags))


def job_state(text: str) -> tuple[JobState, tuple[str, ...]]:
    """The base state, and the flags beside it. Newer versions print several words, joined by a plus sign."""
    words = re.split(r"[+,]", text.upper())
    for word in words:
        if word in JobState.__members__:
            return JobState[word], tuple(w for w in words if w != word)
    for word in words:
        if word in _BASE_OF_FLAG:
            return _BASE_OF_FLAG[word], tuple(words)
    return JobState.UNKNOWN, tuple(words)


def _exit(text: str) -> tuple[int | None, int | None]:
    """Exit code and signal, of `1:0` or of a status as wait(2) gives it."""
    if text in _ABSENT:
        return None, None
    if ":" in text:
        code, by_signal = (int(part) for part in text.split(":", 1))
    else:
        code, by_signal = int(text) >> 8, int(text) & 0x7F
    return code, by_signal or None


def _time(text: str) -> datetime | None:
    """A time as Slurm prints it, in UTC (the commands run with TZ=UTC)."""
    if text in _ABSENT:
        return None
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%S").replace(tzinfo=UTC)


def _gpus(allocated: str, per_node: str, nodes: int) -> int | None:
    """Of `cpu=4,gres/gpu=16`, or where GPUs are not accounted, of `gres:gpu:8`; None where neither tells."""
    if (total := re.search(r"(?:^|,)gres/gpu=(\d+)", allocated)) is not None:
        return int(total[1])
    each = re.findall(r"\bgpu(?::[^:,=\d][^:,=]*)?[:=](\d+)", per_node)
    return sum(map(int, each)) * nodes or None if nodes else None


def _needed_time(text: str) -> datetime:
    if (time := _time(text)) is None:
        raise ValueError(f"a job without a submit time: {text!r}")
    return time


def _duration(text: str) -> timedelta | None:
    """`365-00:00:00`, `10:00`; None for UNLIMITED and the like."""
    found = re.fullmatch(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)", text)
    if found is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)


def _minutes(text: str) -> timedelta | None:
    return timedelta(minutes=int(text)) if text.isdecimal() else None


def _leading_int(text: str) -> int:
    """The 2 of `2-4`, as pending jobs have it."""
    found = re.match(r"\d+", text)
    return int(found[0]) if found else 0


def _count(text: str) -> int | None:
    """A count; None where the job has none."""
    value = _leading_int(text)
    return None if value == 0 or value in _NO_VALUE else value
