"""What people read in Temporal's web UI: one-line summaries, and a workflow's current details in Markdown.

Text from logs and from people is quoted so that it cannot become Markdown: in fences longer than any run of
backticks within, or as inline code without backticks. The web UI (2.54) cuts a fence at the width of its pane
(some 60 characters), and wraps inline code: only short commands are fenced, and what was found is inline.
"""

import re
from collections.abc import Iterable, Sequence
from datetime import datetime
from urllib.parse import quote

from relight.contracts import Diagnosis, Evidence, Mode, Outcome, Plan
from relight.contracts.policy import OnExpiry, Policy
from relight.contracts.steps import ConfirmResult
from relight.wording import Alike, certainty, collapse, moment, place

MAX_SUMMARY = 200
"""Bytes. Temporal refuses summaries that are not much longer."""
MAX_DETAILS = 7_500
"""Bytes of a page, percent-encoded: the web UI has it rendered by the address of a frame
(`/render?content=...`, UI 2.54), and nginx in front of it refuses a request line above 8 KiB by default.
Temporal itself allows 20,000."""
MAX_QUOTED = 8
"""Pieces of evidence that are quoted."""
MAX_QUOTE = 300
"""Bytes of one quoted text."""

Block = Sequence[str]
"""Lines that belong together; an empty line comes after them."""


def clip(text: str, limit: int = MAX_SUMMARY) -> str:
    """Cuts to `limit` bytes of UTF-8, on a character's edge."""
    data = text.encode("utf-8", "replace")
    if len(data) <= limit:
        return text
    return data[: limit - 3].decode("utf-8", "ignore") + "..."


def code(text: str) -> str:
    """Inline code, on one line."""
    return "`" + (re.sub(r"[`\r\n]", " ", text) or " ") + "`"


def said(text: str) -> str:
    """Inline code of bounded length, for what others wrote."""
    return code(clip(text, MAX_QUOTE))


def fence(text: str) -> str:
    """A block that shows the text as it is, and that the text cannot end."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    ticks = "`" * max(3, longest + 1)
    return f"{ticks}text\n{text}\n{ticks}"


def link(workflow_id: str, namespace: str) -> str:
    """A link to a workflow's page, relative to the page that the web UI renders details on."""
    path = "/".join(quote(part, safe="") for part in ("namespaces", namespace, "workflows", workflow_id))
    return f"[{code(workflow_id)}]({path})"


def counted(number: int, one: str, many: str = "") -> str:
    """`1 signal`, `2 signals`."""
    return f"{number} {one if number == 1 else many or one + 's'}"


def page(blocks: Iterable[Block], log: Sequence[str] = ()) -> str:
    """Puts a page together that the web UI can show.

    What does not fit is left out, from the end, in whole lines: in a cut line, a quote could stay open.
    Of the log the latest lines stay.

    Args:
        blocks: Markdown, the most important first; empty ones are left out.
        log: what was done so far, oldest first; text of others, too.
    """
    room = MAX_DETAILS
    shown: list[str] = []
    for line in [line for block in blocks if block for line in (*block, "")]:
        room -= _encoded(line)
        if room < 0:
            shown.append("...")
            break
        shown.append(line)
    latest: list[str] = []
    room -= _encoded(_earlier(len(log))) + _encoded("## Done so far")
    for entry in reversed(log):
        line = f"- {said(entry)}"
        room -= _encoded(line)
        if room < 0:
            break
        latest.insert(0, line)
    if latest:
        missing = len(log) - len(latest)
        shown += ["## Done so far", *([_earlier(missing)] if missing else []), *latest]
    return "\n".join(shown).rstrip("\n")


def _earlier(missing: int) -> str:
    return f"- ({counted(missing, 'earlier line')}: `relight show JOB`)"


def _encoded(line: str) -> int:
    """Bytes of the line and its end in a URL, as JavaScript's encodeURIComponent writes it."""
    return len(quote(line, safe="!'()*-._~", errors="replace")) + len("%0A")


def recovery_details(
    *,
    workflow_id: str,
    job_id: str,
    state: str,
    mode: Mode,
    paused: bool,
    diagnosis: Diagnosis,
    confirmation: ConfirmResult | None,
    plan: Plan | None,
    deadline: datetime | None,
    log: Sequence[str],
    ending: str,
    policy: Policy | None = None,
    approvals: Sequence[str] = (),
    outcome: Outcome | None = None,
) -> str:
    """The current details of a recovery: what to do, what happened, the plan, the evidence.

    Args:
        workflow_id: its own.
        job_id: of the job.
        state: what it does now; Markdown.
        mode: of the job.
        paused: it waits until somebody ends a pause.
        diagnosis: what happened.
        confirmation: what other sources said.
        plan: what it is going to do.
        deadline: until when it waits for a person; None: it does not.
        log: what was done so far, oldest first.
        ending: how it ended; empty: it goes on.
        policy: who may decide, and what happens if nobody does; None: not told.
        approvals: who approved the plan that waits.
        outcome: how it ended.
    """
    blocks: list[Block] = [
        [f"# Job {code(job_id)}: {said(ending) if ending else state}"],
        [f"{_in_short(diagnosis)} Mode **{mode.value}**{', **paused**' if paused else ''}."],
    ]
    if deadline is not None and plan is not None:
        blocks += _decide(job_id, plan, deadline, mode, policy, approvals)
    else:
        blocks.append(_what_else(job_id, paused=paused, outcome=outcome, ended=bool(ending)))
    if plan is not None:
        blocks += _the_plan(plan)
    blocks += _what_happened(diagnosis)
    if confirmation is not None:
        blocks.append(
            [
                "## Confirmation",
                f"**{confirmation.verdict}**: {said(confirmation.summary)}",
                "",
                *(
                    f"- {o.source}: **{o.verdict}** {said(o.text)}"
                    for o in confirmation.observations[:MAX_QUOTED]
                ),
            ]
        )
    blocks.append([f"All of it in a terminal: {code(f'relight show {job_id}')}."])
    return page(blocks, log)


def happened(diagnosis: Diagnosis) -> str:
    """The fault and its evidence, for the details that stay in history."""
    return page([[_in_short(diagnosis)], *_what_happened(diagnosis)])


def _in_short(diagnosis: Diagnosis) -> str:
    step = f" after step **{diagnosis.progress.step}**" if diagnosis.progress is not None else ""
    sure = certainty(diagnosis.cause, diagnosis.confidence)
    cause = f"cause **{diagnosis.cause.value}**" + (f" ({sure})" if sure else "")
    return f"**{diagnosis.symptom.value}**, {cause}{step}."


def _what_happened(diagnosis: Diagnosis) -> list[Block]:
    late = diagnosis.detected_at - diagnosis.occurred_at
    head = [
        "## What happened",
        f"At {moment(diagnosis.occurred_at)}, detected {late.total_seconds():.0f} s later.",
    ]
    if diagnosis.explanation:
        head.append(said(diagnosis.explanation))
    if diagnosis.nodes:
        head.append("Suspected: " + ", ".join(code(node) for node in diagnosis.nodes[:MAX_QUOTED]) + ".")
    return [head, quoted_evidence(diagnosis.evidence)]


def quoted_evidence(evidence: Sequence[Evidence]) -> Block:
    """Each piece of evidence: who says it, where, and its own words; what says the same once."""
    alike = collapse(evidence)
    quoted = [_quoted(each) for each in alike[:MAX_QUOTED]]
    if more := len(alike) - len(quoted):
        quoted.append(f"- and {more} more")
    return quoted


def _quoted(each: Alike[Evidence]) -> str:
    evidence = each.first
    node = f" {code(evidence.node)}" if evidence.node else ""
    where = f", in {said(place(evidence))}" if evidence.where else ""
    more = f" ({said(each.more)})" if each.more else ""
    return f"- **{evidence.source.value}**{node}: {said(evidence.text)}{where}{more}"


def _decide(
    job_id: str,
    plan: Plan,
    deadline: datetime,
    mode: Mode,
    policy: Policy | None,
    approvals: Sequence[str],
) -> list[Block]:
    """Why a person is asked, who may answer, and how."""
    word = f'{{"by": "YOUR NAME", "reason": "WHY",\n "plan_digest": "{plan.digest}"}}'
    return [
        [
            f"## Waiting for a person, until {moment(deadline)}",
            *(f"- {said(reason)}" for reason in plan.needs_approval_because),
        ],
        _who_may_decide(mode, policy, approvals),
        [
            f"Approve plan **{plan.digest}** in a terminal, or reject it:",
            fence(
                f"relight approve {job_id} --plan {plan.digest} --reason WHY\n"
                f"relight reject {job_id} --plan {plan.digest} --reason WHY"
            ),
        ],
        [
            "Or on this page: *More Actions*, *Send a Signal*, signal **approve** or **reject**, data:",
            fence(word),
        ],
    ]


def _who_may_decide(mode: Mode, policy: Policy | None, approvals: Sequence[str]) -> Block:
    if policy is None:
        return []
    who = ", ".join(code(name) for name in policy.approvers[:MAX_QUOTED])
    if more := len(policy.approvers) - MAX_QUOTED:
        who += f" and {more} more" if more > 0 else ""
    lines = [f"May decide: {who or 'anybody who can reach this page or the command'}."]
    if policy.approvals > 1:
        by = f", by {', '.join(code(name) for name in approvals)}" if approvals else ""
        lines.append(f"Approved by **{len(approvals)} of {policy.approvals}** different people{by}.")
    goes_on = policy.on_expiry is OnExpiry.PROCEED and mode is Mode.ACT
    lines.append(
        "If nobody decides, relight **goes on by itself** then, as the policy says."
        if goes_on
        else "If nobody decides, the recovery ends then; until somebody decides, nothing is changed."
    )
    return lines


_AFTERWARDS = {
    Outcome.RESUMED: "Nothing is left to do: training passed the step that it failed at.",
    Outcome.FAILED_AGAIN: "The restart did not help; another recovery may follow by itself.",
    Outcome.HELD: "**The job waits, held, for a person.** Mend what the reason says, then release it.",
    Outcome.STOPPED: "relight does no more here: another restart would not help. **The job needs a person.**",
    Outcome.ABANDONED: "relight stepped back: somebody or something else moved the job meanwhile.",
    Outcome.REFUTED: "Nothing was changed: the fault was not confirmed.",
    Outcome.REJECTED: "Nothing was changed: a person rejected the plan. **The job needs a person.**",
    Outcome.EXPIRED: "Nothing was changed: nobody decided in time. **The job needs a person.**",
}


def _what_else(job_id: str, *, paused: bool, outcome: Outcome | None, ended: bool) -> Block:
    """What a person can do while nobody is asked."""
    if outcome is not None:
        return [_AFTERWARDS[outcome]]
    if ended:
        return []
    if paused:
        return ["Nothing is changed until somebody ends the pause:", fence(f"relight unpause {job_id}")]
    return [
        "Nobody needs to do anything now. To stop it before its next change:",
        fence(f"relight pause {job_id} --reason WHY"),
    ]


def _the_plan(plan: Plan) -> list[Block]:
    steps = [
        f"{i}. **{step.name}**{' (changes something)' if step.mutates else ''}: {said(step.does)}"
        for i, step in enumerate(plan.steps, 1)
    ]
    return [
        [f"## Plan {plan.digest}: {plan.action.value}", *([said(plan.because)] if plan.because else [])],
        steps,
    ]
