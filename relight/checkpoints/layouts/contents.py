"""The step that a `torch.save` file tells in its contents, read without unpickling."""

from relight.checkpoints.access import Access, BadContentError
from relight.checkpoints.budget import Level, OverBudgetError
from relight.checkpoints.formats import pickles, zips
from relight.checkpoints.stores import UnreadableError
from relight.checkpoints.tree import File

MAX_PICKLE = 16 << 20
"""A larger description of the contents is not looked into."""
_KEYS = ("global_step", "iteration", "iter_num", "step", "num_updates", "global_steps", "steps", "iter")
"""Lightning, Megatron, nanoGPT, common scripts, fairseq, DeepSpeed."""
_NESTED = ("trainer_state", "extra_state", "optimizer_history")


def step_of(file: File, access: Access) -> int | None:
    """The step in a file's contents; None where they cannot be read or do not tell."""
    read = access.reader(Level.STRUCTURE, file.path)
    try:
        members = zips.check(read, 0, file.size)
        data = next((m for m in members if m.name.rpartition("/")[2] == "data.pkl"), None)
        if data is None or data.size > MAX_PICKLE:
            return None
        value, _ = pickles.read(zips.read_member(read, 0, data, MAX_PICKLE), tick=access.budget.check_time)
    except (BadContentError, UnreadableError, OverBudgetError, pickles.TooLongError):
        return None  # the check of headers reports what is wrong with the file
    return _find(value, depth=3)


def _find(value: object, depth: int) -> int | None:
    for key in _KEYS:
        found = pickles.get(value, key)
        if type(found) is int and 0 <= found < 1 << 60:
            return found
    if not depth:
        return None
    for key in _NESTED:
        inner = pickles.get(value, key)
        inner = inner[-1] if isinstance(inner, list) and inner else inner
        if (step := _find(inner, depth - 1)) is not None:
            return step
    return None
