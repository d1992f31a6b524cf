"""Checks the ends of a checkpoint's files, or all their bytes, many files at a time."""

import json
import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from relight.checkpoints.access import Access, BadContentError, ReadAt
from relight.checkpoints.budget import Level, OverBudgetError
from relight.checkpoints.formats import safetensors, torch_legacy, zips
from relight.checkpoints.layouts.base import Problem, Structure, bad, missing
from relight.checkpoints.peers import PAYLOAD
from relight.checkpoints.stores import NotListedError, UnreadableError
from relight.checkpoints.tree import File

THREADS = 8
"""Files are read in parallel because each read waits for the network on a shared file system."""
_BATCH = 128
_MAX_PROBLEMS = 20
_MAX_JSON = 1 << 20
_CHUNK = 4 << 20

_PICKLED = re.compile(
    r".+\.(?:pt|pth|ckpt|pkl)|(?:pytorch_model|optimizer|scheduler|sampler|adapter_model|training_args).*\.bin"
)
_JSON_NAMES = frozenset({".zarray", ".zgroup", ".zattrs", ".zmetadata", "_METADATA", "_CHECKPOINT_METADATA"})


@dataclass
class Outcome:
    """What reading a candidate's files showed."""

    problems: list[Problem] = field(default_factory=list)
    verified: set[str] = field(default_factory=set)
    """Paths whose length their own format confirmed."""
    read: int = 0
    """How many files were looked into."""
    stopped: str = ""
    """Why not all were, if so."""


def check_files(access: Access, files: Sequence[File], structure: Structure, level: Level) -> Outcome:
    """Checks files at a level: `HEADERS` or `DEEP`."""
    outcome = Outcome()

    def check_batch(batch: Sequence[File]) -> None:
        for file in batch:
            if outcome.stopped or len(outcome.problems) >= _MAX_PROBLEMS:
                return
            _check_one(access, file, structure, level, outcome)

    batches = [files[i : i + _BATCH] for i in range(0, len(files), _BATCH)]
    if len(batches) == 1 and level is Level.HEADERS:
        check_batch(batches[0])
        return outcome
    if level is Level.DEEP:
        batches = [files[i : i + 1] for i in range(len(files))]
    with ThreadPoolExecutor(min(THREADS, len(batches) or 1), "checkpoint-reader") as pool:
        list(pool.map(check_batch, batches))
    return outcome


def _check_one(access: Access, file: File, structure: Structure, level: Level, outcome: Outcome) -> None:
    try:
        check = _format(file, structure.parts.get(file.path))
        if not file.size:
            if check is not None or file.name.endswith(PAYLOAD):
                outcome.problems.append(bad(f"{file.path} is empty"))
            return
        read = access.reader(level, file.path)
        if check is not None and check(read, file.size, level is Level.DEEP):
            outcome.verified.add(file.path)
        elif level is Level.DEEP:
            _read_through(read, file.size)
        outcome.read += check is not None or level is Level.DEEP
    except BadContentError as error:
        outcome.problems.append(bad(f"{file.path}: {error}"))
    except NotListedError:
        return
    except UnreadableError as error:
        outcome.problems.append(missing(f"{file.path}: {error}"))
    except OverBudgetError as error:
        outcome.stopped = str(error)


Check = Callable[[ReadAt, int, bool], bool]
"""Takes the reader, the size and whether to read every byte; tells if the format confirmed the length."""


def _format(file: File, parts: Sequence[tuple[int, int]] | None) -> Check | None:
    name = file.name
    if parts is not None:
        return lambda read, size, deep: _check_parts(read, size, deep, parts)
    if name.endswith(".safetensors"):
        return _check_safetensors
    if name.endswith(".distcp"):
        return _check_shard
    if name.endswith(".npz"):
        return _check_zip
    if _PICKLED.fullmatch(name):
        return _check_pickled
    if name.endswith(".bin"):
        return _check_bin
    if (name.endswith(".json") or name in _JSON_NAMES) and file.size <= _MAX_JSON:
        return _check_json
    return None


def _check_zip(read: ReadAt, size: int, deep: bool) -> bool:
    members = zips.check(read, 0, size)
    if deep:
        zips.check_deep(read, 0, members)
    return True


def _check_parts(read: ReadAt, size: int, deep: bool, parts: Sequence[tuple[int, int]]) -> bool:
    """An archive at each of the places; without `deep`, only the first and the last are looked at."""
    for offset, length in parts if deep else {parts[0], parts[-1]}:
        members = zips.check(read, offset, length, members=deep)
        if deep:
            zips.check_deep(read, offset, members)
    return True


def _check_shard(read: ReadAt, size: int, deep: bool) -> bool:
    """Archives one after another, of which no index tells where they are: only both ends can be checked."""
    if read(0, 4) != zips.LOCAL:
        raise BadContentError("it does not start as a zip archive")
    zips.check_end(read, size)
    return False


def _check_safetensors(read: ReadAt, size: int, deep: bool) -> bool:
    safetensors.check(read, size)
    return not deep  # it has no checksums: reading it through is all that is left


def _check_json(read: ReadAt, size: int, deep: bool) -> bool:
    try:
        json.loads(read(0, size))
    except (ValueError, RecursionError) as error:
        raise BadContentError("not valid JSON") from error
    return True


def _check_pickled(read: ReadAt, size: int, deep: bool) -> bool:
    head = read(0, 4)
    if head == zips.LOCAL:
        return _check_zip(read, size, deep)
    if not torch_legacy.START.match(head):
        raise BadContentError("it starts neither as a zip archive nor as a pickle")
    return torch_legacy.check(read, size)


def _check_bin(read: ReadAt, size: int, deep: bool) -> bool:
    head = read(0, 4)
    return head == zips.LOCAL and _check_zip(read, size, deep)


def _read_through(read: ReadAt, size: int) -> None:
    at = 0
    while at < size:
        chunk = read(at, _CHUNK)
        if not chunk:
            raise BadContentError(f"it ends after {at} of {size} bytes")
        at += len(chunk)
