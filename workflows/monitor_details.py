"""The current details of a monitor, in Markdown: how the job goes, and what a person can do now."""

from collections.abc import Sequence

from relight.contracts import Mode
from relight.contracts.messages import MonitorStatus
from relight.wording import moment
from workflows.details import MAX_QUOTED, Block, code, counted, fence, link, page, said


def monitor_details(status: MonitorStatus, namespace: str = "default") -> str:
    """The page of a monitor.

    Args:
        status: of the monitor.
        namespace: Temporal's, for links to recoveries.
    """
    job = status.job
    blocks: list[Block] = [
        [f"# Job {code(job.attempt.job_id)} ({code(job.run)}): {status.state}"],
        [
            f"User {code(job.user or '?')}, cluster {code(job.cluster)}, "
            f"partition {code(job.partition or '?')}.",
            f"Attempt {code(job.attempt.label)}{_on(job.nodes)}, mode **{job.mode.value}**, "
            f"policy {code(job.policy.name)}.",
        ],
    ]
    if status.progress is not None:
        blocks.append([f"Last reported step: **{status.progress.step}**, at {moment(status.progress.at)}."])
    if status.open_recoveries:
        blocks.append(["Open recovery: " + ", ".join(link(r, namespace) for r in status.open_recoveries)])
    if status.end is not None:
        blocks.append([f"Ended: **{status.end.value}** {said(status.end_detail)}"])
    else:
        blocks.append(_what_to_do(status))
    blocks.append([f"- Noticed: {said(note)}" for note in status.noticed])
    blocks.append(
        [
            f"{counted(status.recoveries, 'recovery', 'recoveries')}, {counted(status.signals, 'signal')}, "
            f"{counted(status.duplicates, 'duplicate')}, {status.stale} of earlier attempts, "
            f"{counted(status.missed, 'fault')} that no sensor reported."
        ]
    )
    return page(blocks)


def _on(nodes: Sequence[str]) -> str:
    if not nodes:
        return ""
    more = f" and {len(nodes) - MAX_QUOTED} more" if len(nodes) > MAX_QUOTED else ""
    return f" on {', '.join(code(node) for node in nodes[:MAX_QUOTED])}{more}"


def _what_to_do(status: MonitorStatus) -> Block:
    job_id = status.job.attempt.job_id
    if status.state == "awaiting-approval":
        return [
            "**A plan waits for a person**: read it on the recovery's page, or decide in a terminal:",
            fence(f"relight show {job_id}\nrelight approve {job_id} --reason WHY"),
        ]
    if status.paused:
        return ["Nothing is changed until somebody ends the pause:", fence(f"relight unpause {job_id}")]
    if status.job.mode is Mode.OBSERVE:
        return ["relight asks a person before it changes anything. To let it act alone on this job:",
                fence(f"relight mode {job_id} act")]  # fmt: skip
    return [
        "relight acts alone on this job. To be asked before any change:",
        fence(f"relight mode {job_id} observe"),
    ]
