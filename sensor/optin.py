"""Jobs that ask to be watched, by JSON in their comment.

`{"relight": {"policy": NAME, "checkpoints": DIR, "logs": GLOB or [GLOB, ...], "mode": "observe",
"run": NAME, "resume_variable": NAME}}`, every key optional, or the form of NVIDIA's Autonomous Job Recovery,
`{"APS": {"auto_resume_mode": "requeue", "max_requeue_times": N}}`.

The job's user writes it, so it can ask for less than the settings allow, never for more.
"""

import json
from typing import Any

from relight.config import Settings
from relight.contracts import JobInfo, Mode, Policy, TrainingJob
from relight.contracts.policy import variable_name
from relight.policy.choose import Chosen, JobFacts, NotAllowed, choose
from relight.policy.file import PolicyFile
from relight.scheduler.port import log_files

MAX_LOGS = 16


class BadRequest(ValueError):
    """The comment asks for something that cannot be done; the message says what."""


def opted_in(info: JobInfo, cluster: str, settings: Settings, policies: PolicyFile) -> TrainingJob | None:
    """How the job asks to be watched; None if it does not.

    A comment that relight itself has tagged belongs to a job that has its monitor already.

    Args:
        info: the job, with its comment.
        cluster: where it runs.
        settings: the most that it may ask for.
        policies: the policies in force.

    Raises:
        BadRequest: it asks for a policy that it cannot have, or with a value of the wrong kind.
    """
    try:
        comment = json.loads(info.comment) if info.comment.lstrip().startswith("{") else None
    except (ValueError, RecursionError):
        return None
    if not isinstance(comment, dict):
        return None
    ours, older = comment.get("relight"), comment.get("APS")
    if isinstance(ours, dict):
        return None if "recovery" in ours else _ours(info, ours, cluster, settings, policies)
    if isinstance(older, dict):
        return _older(info, older, cluster, settings, policies)
    return None


def _ours(
    info: JobInfo, asked: dict[str, Any], cluster: str, settings: Settings, policies: PolicyFile
) -> TrainingJob:
    logs = asked.get("logs", [])
    logs = [logs] if isinstance(logs, str) else logs
    if not isinstance(logs, list) or len(logs) > MAX_LOGS:
        raise BadRequest(f"'logs' is not a glob or a list of at most {MAX_LOGS} globs")
    if not all(isinstance(p, str) and len(p) <= 4096 and _printable(p) for p in logs):
        raise BadRequest("a glob of 'logs' is not a text")
    checkpoints = _text(asked, "checkpoints")
    chosen = _choose(info, policies, _mode(_text(asked, "mode"), settings), _text(asked, "policy"))
    policy = chosen.policy
    if variable := _text(asked, "resume_variable"):
        try:
            policy = policy.model_copy(update={"resume_variable": variable_name(variable)})
        except ValueError as e:
            raise BadRequest(f"'resume_variable': {e}") from e
    return _job(
        info,
        cluster,
        run=_text(asked, "run"),
        policy=policy,
        mode=chosen.mode,
        logs=[_absolute(p, info) for p in logs],
        checkpoints=_absolute(checkpoints, info) if checkpoints else None,
    )


def _older(
    info: JobInfo, asked: dict[str, Any], cluster: str, settings: Settings, policies: PolicyFile
) -> TrainingJob | None:
    mode = asked.get("auto_resume_mode")
    if mode != "requeue":
        # `singleton_dependency` restarts by a second, held job: that is the user's own arrangement.
        raise BadRequest(f"auto_resume_mode {mode!r} is not supported; only 'requeue' is")
    times = asked.get("max_requeue_times")
    chosen = _choose(info, policies, settings.mode)
    policy = chosen.policy
    if isinstance(times, int) and not isinstance(times, bool) and times >= 0:
        policy = policy.model_copy(update={"retries_general": min(times, policy.retries_general)})
    elif times is not None:
        raise BadRequest(f"max_requeue_times {times!r} is not a number of restarts")
    return _job(info, cluster, run="", policy=policy, mode=chosen.mode, logs=[], checkpoints=None)


def _job(
    info: JobInfo,
    cluster: str,
    *,
    run: str,
    policy: Policy,
    mode: Mode,
    logs: list[str],
    checkpoints: str | None,
) -> TrainingJob:
    return TrainingJob(
        cluster=cluster,
        run=run or info.name or info.job_id,
        attempt=info.attempt(cluster),
        user=info.user,
        partition=info.partition,
        account=info.account,
        nodes=info.nodes,
        tasks_per_node=info.tasks_per_node,
        log_paths=tuple(dict.fromkeys([*map(str, log_files(info)), *logs])),
        checkpoint_dir=checkpoints,
        policy=policy,
        mode=mode,
        opted_in=True,
    )


def _choose(info: JobInfo, policies: PolicyFile, mode: Mode, asked: str = "") -> Chosen:
    facts = JobFacts(partition=info.partition, user=info.user, account=info.account)
    try:
        return choose(policies, facts, mode, asked)
    except NotAllowed as e:
        raise BadRequest(str(e)) from e


def _mode(asked: str, settings: Settings) -> Mode:
    if asked not in {"", *Mode}:
        raise BadRequest(f"mode {asked!r} is neither 'observe' nor 'act'")
    return Mode.OBSERVE if asked == Mode.OBSERVE else settings.mode


def _text(asked: dict[str, Any], key: str) -> str:
    value = asked.get(key, "")
    if not isinstance(value, str) or len(value) > 4096 or not _printable(value):
        raise BadRequest(f"{key!r} is not a text")
    return value


def _printable(text: str) -> bool:
    """JSON can escape what no file name and no message can carry: NUL, and half a surrogate pair."""
    return "\0" not in text and not any("\ud800" <= c <= "\udfff" for c in text)


def _absolute(path: str, info: JobInfo) -> str:
    if path.startswith("/"):
        return path
    if not info.work_dir.startswith("/"):
        raise BadRequest(f"{path!r} is not an absolute path, and the job's directory is not known")
    return f"{info.work_dir}/{path}"
