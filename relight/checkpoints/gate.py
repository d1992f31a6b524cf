"""The checkpoint gate: which checkpoint of a directory can a run be resumed from?"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from relight.checkpoints import headers, peers
from relight.checkpoints.access import Access
from relight.checkpoints.budget import Budget, Level, OverBudgetError
from relight.checkpoints.layouts import LAYOUTS, OTHER_NAMES
from relight.checkpoints.layouts.base import Candidate, Kind, Layout, Problem, Structure
from relight.checkpoints.report import CheckpointError, CheckpointState, Report, State
from relight.checkpoints.stores import LocalStore, Store
from relight.checkpoints.tree import newest

SETTLED = timedelta(minutes=2)
"""A checkpoint that nobody wrote to for this long is no longer being saved."""
DEFAULT_BUDGET = timedelta(seconds=30)


def inspect(
    root: Path | str,
    *,
    layout: str | None = None,
    deep: bool = False,
    budget: timedelta = DEFAULT_BUDGET,
    enough: int | None = None,
) -> Report:
    """Judges all checkpoints in a directory, newest first. Reads only; never unpickles.

    Args:
        root: the run's checkpoint directory.
        layout: name of the layout; None: recognised from the directory.
        deep: also read every byte, and compare checksums where the format has them.
        budget: the longest it may take. What could not be checked in that time is said in `checked` and
            `notes`.
        enough: after so many usable checkpoints were found, older ones are judged by their names and sizes
            only. None: no limit.

    Raises:
        CheckpointError: the directory is missing or unreadable, or there is no layout of that name.
    """
    return inspect_store(open_store(root), layout=layout, deep=deep, budget=budget, enough=enough)


def open_store(root: Path | str) -> Store:
    """The store for a path.

    Raises:
        CheckpointError: there can be none.
    """
    return LocalStore(Path(root))


def inspect_store(
    store: Store,
    *,
    layout: str | None = None,
    deep: bool = False,
    budget: timedelta = DEFAULT_BUDGET,
    enough: int | None = None,
) -> Report:
    """`inspect` for any store."""
    limits = Budget(budget.total_seconds())
    try:
        tree = store.scan(limits)
    except OverBudgetError as error:
        raise CheckpointError(f"{store.root} could not be listed: {error}") from error
    access = Access(store, tree, limits)
    chosen, candidates = _recognise(access, layout)
    if chosen is None or not candidates:
        return _nothing(access, layout)
    states = _judge_all(chosen, candidates, access, deep, enough)
    return _report(chosen, candidates, states, access)


def _recognise(access: Access, name: str | None) -> tuple[Layout | None, list[Candidate]]:
    layouts = [layout_named(name)] if name else LAYOUTS
    for layout in layouts:
        if candidates := layout.find(access.tree, access):
            return layout, candidates
    return None, []


def layout_named(name: str) -> Layout:
    """The layout of this name, or the one that the framework of this name uses.

    Raises:
        CheckpointError: there is none.
    """
    known = {layout.name: layout for layout in LAYOUTS}
    layout = known.get(OTHER_NAMES.get(name, name))
    if layout is None:
        names = ", ".join(sorted([*known, *OTHER_NAMES]))
        raise CheckpointError(f"there is no layout {name!r}; known layouts: {names}")
    return layout


def _nothing(access: Access, name: str | None) -> Report:
    payload = sum(f.name.endswith(peers.PAYLOAD) for f in access.tree.files.values())
    if payload and name is None:
        summary = f"{payload} files look like parts of checkpoints, but no layout is recognised"
    else:
        summary = "there is no checkpoint" + (f" of the layout {name}" if name else "")
    return Report(
        layout=name or "unknown", empty=not payload, summary=summary, notes=tuple(access.tree.notes)
    )


@dataclass(frozen=True)
class _Judged:
    candidate: Candidate
    state: CheckpointState
    stopped: str


def _judge_all(
    layout: Layout, candidates: Sequence[Candidate], access: Access, deep: bool, enough: int | None
) -> list[_Judged]:
    judged: list[_Judged] = []
    usable = 0
    for candidate in sorted(candidates, key=_newest_first):
        names_only = enough is not None and usable >= enough
        result = _judge(layout, candidate, candidates, replace(access, names_only=names_only), deep)
        usable += result.state.state is State.USABLE
        judged.append(result)
    return sorted(judged, key=lambda j: _newest_first(replace(j.candidate, step=j.state.step)))


def _newest_first(candidate: Candidate) -> tuple[bool, int, int, bool, str]:
    step, epoch = candidate.step, candidate.epoch
    return (step is None, -(step or 0), -(epoch or 0), candidate.alias, candidate.name)


def _judge(
    layout: Layout, candidate: Candidate, candidates: Sequence[Candidate], access: Access, deep: bool
) -> _Judged:
    problems: list[Problem] = []
    structure = Structure()
    checked = ["names"]
    stopped = ""
    if candidate.unfinished:
        problems.append(Problem(Kind.UNFINISHED, candidate.unfinished))
    else:
        structure = layout.check(candidate, candidates, access)
        problems += structure.problems
        checked += structure.checked
        files = structure.needed if structure.needed is not None else candidate.files
        verified: set[str] = set()
        if not problems and not access.names_only:
            for level in (Level.HEADERS, Level.DEEP) if deep else (Level.HEADERS,):
                outcome = headers.check_files(access, files, structure, level)
                problems += outcome.problems
                verified |= outcome.verified
                stopped = stopped or outcome.stopped
                checked.append(f"{level.value} of {outcome.read} of {len(files)} files")
        if not structure.inventory:
            problems += peers.compare(candidate, candidates, verified)
            checked.append("files and sizes against other checkpoints")
    if access.names_only:
        checked.append("not read: newer ones are usable")
    if stopped:
        checked.append(f"stopped: {stopped}")
    return _Judged(candidate, _state(candidate, structure, problems, checked, access), stopped)


def _state(
    candidate: Candidate,
    structure: Structure,
    problems: Sequence[Problem],
    checked: Sequence[str],
    access: Access,
) -> CheckpointState:
    now, written = access.store.now(), newest(candidate.files)
    fresh = now is not None and written is not None and now - written < SETTLED.total_seconds()
    kinds = {p.kind for p in problems}
    if not problems:
        state = State.USABLE
    elif fresh and not structure.committed:
        state = State.IN_PROGRESS
    elif Kind.BAD in kinds and Kind.UNFINISHED not in kinds:
        state = State.CORRUPT
    else:
        state = State.INCOMPLETE
    return CheckpointState(
        name=candidate.name,
        step=candidate.step if candidate.step is not None else structure.step,
        state=state,
        reason="; ".join(p.text for p in problems[:3]),
        bytes=sum(f.size for f in candidate.files),
        modified_at=None if written is None else datetime.fromtimestamp(written, UTC),
        age=None if written is None or now is None else timedelta(seconds=now - written),
        checked=", ".join(checked),
    )


def _report(
    layout: Layout, candidates: Sequence[Candidate], judged: Sequence[_Judged], access: Access
) -> Report:
    states = tuple(j.state for j in judged)
    best = next((s for s in states if s.state is State.USABLE), None)
    pointer = layout.pointer(candidates, access)
    pointed = next((s for s in states if s.name == pointer), None)
    disagrees = (
        pointer is not None
        and best is not None
        and pointer != best.name
        and (pointed is None or pointed.state is not State.USABLE or pointed.step != best.step)
    )
    notes = [
        *access.tree.notes,
        *dict.fromkeys(f"not everything was checked: {j.stopped}" for j in judged if j.stopped),
    ]
    return Report(
        newest_usable=best.name if best else None,
        step=best.step if best else None,
        layout=layout.name,
        pointer=pointer,
        pointer_disagrees=disagrees,
        checkpoints=states,
        summary=_summary(layout, states, best, pointer if disagrees else None),
        notes=tuple(notes),
    )


def _summary(
    layout: Layout, states: Sequence[CheckpointState], best: CheckpointState | None, pointer: str | None
) -> str:
    newer = states[: states.index(best)] if best else states
    rejected = "; ".join(f"{s.name} is {s.state.value.replace('_', ' ')}: {s.reason}" for s in newer[:3])
    if len(newer) > 3:
        rejected += f"; and {len(newer) - 3} more"
    if best is None:
        return f"none of {len(states)} {layout.name} checkpoints is usable: {rejected}"
    text = f"{best.name} is the newest usable of {len(states)} {layout.name} checkpoints"
    if best.step is not None:
        text += f" (step {best.step})"
    if rejected:
        text += f"; rejected: {rejected}"
    if pointer is not None:
        text += f"; the pointer names {pointer}"
    return text
