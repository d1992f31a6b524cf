"""The checkpoint gate: which checkpoint of a directory can a run be resumed from?"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from relight.checkpoints import headers, peers
from relight.checkpoints.access import Access
from relight.checkpoints.budget import Budget, Level, OverBudgetError
from relight.checkpoints.layouts import LAYOUTS, OTHER_NAMES
from relight.checkpoints.layouts.base import Candidate, Kind, Layout, Problem, Structure
from relight.checkpoints.layouts.described import Described
from relight.checkpoints.remote import FsspecStore
from relight.checkpoints.report import CheckpointError, CheckpointState, Report, State, WronglyAsked
from relight.checkpoints.stores import LocalStore, Store
from relight.checkpoints.tree import Tree, newest
from relight.contracts.outcome import CheckpointRef
from relight.contracts.policy import CheckpointLayout

SETTLED = timedelta(minutes=2)
"""A checkpoint that nobody wrote to for this long is no longer being saved."""
SUBDIRECTORIES = ("checkpoints", "checkpoint", "ckpts", "ckpt", "weights")
"""Where a run's directory has its checkpoints, if not directly."""
DEFAULT_BUDGET = timedelta(seconds=30)


def inspect(
    root: Path | str,
    *,
    layout: str | CheckpointLayout | None = None,
    deep: bool = False,
    budget: timedelta = DEFAULT_BUDGET,
    enough: int | None = None,
    before: CheckpointRef | None = None,
) -> Report:
    """Judges all checkpoints in a directory, newest first. Reads only; never unpickles.

    Args:
        root: the run's checkpoint directory.
        layout: name of the layout, or the description of one; None: recognised from the directory.
        deep: also read every byte, and compare checksums where the format has them.
        budget: the longest it may take. What could not be checked in that time is said in `checked` and
            `notes`.
        enough: after so many usable checkpoints were found, older ones are judged by their names and sizes
            only. None: no limit.
        before: only usable checkpoints older than this one count for `enough`.

    Raises:
        WronglyAsked: there is no such directory, or no layout of that name.
        CheckpointError: the directory cannot be read, or not in this time.
    """
    store = open_store(root)
    return inspect_store(store, layout=layout, deep=deep, budget=budget, enough=enough, before=before)


def open_store(root: Path | str) -> Store:
    """The store for a path, or for an address such as `s3://bucket/run`.

    Raises:
        WronglyAsked: there can be none.
    """
    if isinstance(root, str) and "://" in root:
        return FsspecStore(root)
    return LocalStore(Path(root))


def inspect_store(
    store: Store,
    *,
    layout: str | CheckpointLayout | None = None,
    deep: bool = False,
    budget: timedelta = DEFAULT_BUDGET,
    enough: int | None = None,
    before: CheckpointRef | None = None,
) -> Report:
    """`inspect` for any store."""
    limits = Budget(budget.total_seconds())
    try:
        tree = store.scan(limits)
    except OverBudgetError as error:
        raise CheckpointError(f"{store.root} could not be listed: {error}") from error
    choices = [layout] if isinstance(layout, str | CheckpointLayout) else None
    for access in _places(Access(store, tree, limits)):
        for choice in LAYOUTS if choices is None else map(layout_named, choices):
            if candidates := choice.find(access.tree, access):
                judged = _judge_all(choice, candidates, access, deep, enough, before)
                return _report(choice, candidates, judged, access)
    return _nothing(tree, layout)


def _places(access: Access) -> Iterator[Access]:
    """The root, and then the directories in which some frameworks put all checkpoints of a run."""
    yield access
    for name in SUBDIRECTORIES:
        if name in access.tree.directories:
            yield replace(access, tree=access.tree.beneath(name), prefix=f"{name}/")


def layout_named(name: str | CheckpointLayout) -> Layout:
    """The layout of this name, or the one that the framework of this name uses, or the one described.

    Raises:
        WronglyAsked: there is none.
    """
    if isinstance(name, CheckpointLayout):
        return Described(name)
    known = {layout.name: layout for layout in LAYOUTS}
    layout = known.get(OTHER_NAMES.get(name, name))
    if layout is None:
        names = ", ".join(sorted([*known, *OTHER_NAMES]))
        raise WronglyAsked(f"there is no layout {name!r}; known layouts: {names}")
    return layout


def _nothing(tree: Tree, layout: str | CheckpointLayout | None) -> Report:
    payload = sum(f.name.endswith(peers.PAYLOAD) for f in tree.files.values())
    name = layout.name if isinstance(layout, CheckpointLayout) else layout
    if payload and name is None:
        summary = f"{payload} files look like parts of checkpoints, but no layout is recognised"
    elif payload:
        summary = f"there is no checkpoint of the layout {name}, but {payload} files look like parts of some"
    else:
        summary = "there is no checkpoint"
    return Report(layout=name or "unknown", empty=not payload, summary=summary, notes=tree.notes)


@dataclass(frozen=True)
class _Judged:
    candidate: Candidate
    state: CheckpointState
    stopped: str


def _judge_all(
    layout: Layout,
    candidates: Sequence[Candidate],
    access: Access,
    deep: bool,
    enough: int | None,
    before: CheckpointRef | None,
) -> list[_Judged]:
    judged: list[_Judged] = []
    usable = 0
    ordered = _newest_first(candidates)
    neighbours = peers.Peers(ordered)
    pointer = layout.pointer(candidates, access)
    for candidate in ordered:
        # What the job would load by itself is read in any case: its step may be known to its contents only.
        its_own = candidate.alias or candidate.name == pointer
        names_only = enough is not None and usable >= enough and not its_own
        result = _judge(
            layout, candidate, candidates, neighbours, replace(access, names_only=names_only), deep
        )
        usable += result.state.state is State.USABLE and not is_from(result.state, before)
        judged.append(result)
    by_content = {j.candidate.name: j for j in judged}
    steps = [replace(j.candidate, step=j.state.step) for j in judged]
    return [by_content[c.name] for c in _newest_first(steps)]


def is_from(state: CheckpointState, diverged: CheckpointRef | None) -> bool:
    """It is this checkpoint or one that was saved later; one without a step only if it has the same name."""
    if diverged is None:
        return False
    if state.step is not None and diverged.step is not None:
        return state.step >= diverged.step
    return bool(diverged.name) and state.name == diverged.name


def _newest_first(candidates: Sequence[Candidate]) -> list[Candidate]:
    """By step, then epoch, numerically. Of equals: no alias (`last`) first, then the higher name (`-v2`)."""

    def order(candidate: Candidate) -> tuple[bool, int, int, bool]:
        step, epoch = candidate.step, candidate.epoch
        return step is None, -(step or 0), -(epoch or 0), candidate.alias

    return sorted(sorted(candidates, key=lambda c: c.name, reverse=True), key=order)


def _judge(
    layout: Layout,
    candidate: Candidate,
    candidates: Sequence[Candidate],
    neighbours: peers.Peers,
    access: Access,
    deep: bool,
) -> _Judged:
    problems: list[Problem] = []
    structure = Structure()
    checked = ["names"]
    stopped = ""
    if candidate.unfinished:
        problems.append(Problem(Kind.UNFINISHED, candidate.unfinished))
    else:
        try:
            structure = layout.check(candidate, candidates, access)
        except OverBudgetError as error:
            stopped = str(error)
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
            problems += neighbours.compare(candidate, verified)
            if len(candidates) > 1:
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
        name=access.prefix + candidate.name,
        step=candidate.step if candidate.step is not None else structure.step,
        state=state,
        reason="; ".join(p.text for p in problems[:3]),
        bytes=sum(f.size for f in candidate.files),
        modified_at=None if written is None else datetime.fromtimestamp(written, UTC),
        age=None if written is None or now is None else timedelta(seconds=now - written),
        checked=", ".join(checked),
        unfinished=Kind.UNFINISHED in kinds,
        entries=_entries(candidate, access.prefix),
    )


def _entries(candidate: Candidate, prefix: str) -> tuple[str, ...]:
    """The files of a candidate that is neither a directory nor one file."""
    start = f"{candidate.name}/"
    if candidate.name == "." or any(
        f.path == candidate.name or f.path.startswith(start) for f in candidate.files
    ):
        return ()
    return tuple(prefix + f.path for f in candidate.files)


def _report(
    layout: Layout, candidates: Sequence[Candidate], judged: Sequence[_Judged], access: Access
) -> Report:
    states = tuple(j.state for j in judged)
    best = next((s for s in states if s.state is State.USABLE), None)
    pointer = layout.pointer(candidates, access)
    pointer = None if pointer is None else access.prefix + pointer
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
    better = states[: states.index(best)] if best else states
    newer = [*better, *(s for s in states[len(better) :] if s.step is None and s.state is not State.USABLE)]
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
