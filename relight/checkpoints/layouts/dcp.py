"""PyTorch Distributed Checkpoint: `.metadata` and `__<rank>_<n>.distcp`.

`.metadata` is written last, by renaming. It is a pickle of `torch.distributed.checkpoint.metadata.Metadata`,
whose `storage_data` tells for each tensor the file, offset and length of a `torch.save` archive
(torch/distributed/checkpoint/filesystem.py). Many frameworks nest such directories in their own layouts.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from relight.checkpoints.access import Access, BadContentError
from relight.checkpoints.budget import Level, OverBudgetError
from relight.checkpoints.formats import pickles
from relight.checkpoints.layouts.base import (
    Candidate,
    Problem,
    Structure,
    bad,
    join,
    missing,
    some,
    under,
    unfinished,
)
from relight.checkpoints.stores import NotListedError, UnreadableError
from relight.checkpoints.tree import File, Tree

METADATA = ".metadata"
MAX_METADATA = 16 << 20
"""A larger `.metadata` is not followed, only searched for the names of shards."""
_SHARD_NAME = re.compile(rb"[A-Za-z0-9_][A-Za-z0-9_.\-]*\.distcp")
_ENTRIES = frozenset({"_StorageInfo", "_HFStorageInfo"})
_FOLDED = _ENTRIES | {"MetadataIndex", "TensorStorageMetadata", "ChunkStorageMetadata", "TensorProperties"}
"""Objects of which there is one or more for each tensor."""
_CHUNK = 8 << 20
_OVERLAP = 256


class Dcp:
    """Directories of any name that are distributed checkpoints, or a root that is one itself."""

    name = "dcp"

    def find(self, tree: Tree, access: Access) -> list[Candidate]:
        """See `Layout.find`."""
        if METADATA in tree.files or any(p.endswith(".distcp") and "/" not in p for p in tree.files):
            return [Candidate(".", tuple(tree.files.values()))]
        entries = [e for e in tree.entries.values() if e.is_dir and "" in directories(e.inside())]
        return [Candidate(e.name, e.files, step=last_number(e.name)) for e in entries]

    def pointer(self, candidates: Sequence[Candidate], access: Access) -> str | None:
        """See `Layout.pointer`."""
        return access.pointer_text("latest")

    def check(self, candidate: Candidate, candidates: Sequence[Candidate], access: Access) -> Structure:
        """See `Layout.check`."""
        return check_directories(candidate.inside(), access)


def last_number(name: str) -> int | None:
    """The last number in a name."""
    found: list[str] = re.findall(r"(?<!\d)\d{1,18}(?!\d)", name)
    return int(found[-1]) if found else None


def directories(inside: Mapping[str, File] | frozenset[str]) -> set[str]:
    """The directories of a candidate that are distributed checkpoints, whole or not; `` is the candidate."""
    return {
        path.rpartition("/")[0]
        for path in inside
        if path.endswith(".distcp") or path == METADATA or path.endswith("/" + METADATA)
    }


def check_directories(inside: Mapping[str, File], access: Access) -> Structure:
    """Judges every distributed checkpoint within a candidate; there must be one."""
    found = sorted(directories(inside))
    if not found:
        return Structure([unfinished(f"{METADATA}, which is written last, is missing")])
    return join(*(_check(under(inside, d), d, access) for d in found))


def _check(files: Mapping[str, File], place: str, access: Access) -> Structure:
    where = f"{place}/" if place else ""
    metadata = files.get(METADATA)
    if metadata is None:
        return Structure([unfinished(f"{where}{METADATA}, which is written last, is missing")])
    if not metadata.size:
        return Structure([bad(f"{where}{METADATA} is empty")], committed=True)
    try:
        index = read_index(metadata, access)
    except NotListedError:
        return _names_only(files, metadata, "names of shards")
    except OverBudgetError as error:
        return _names_only(files, metadata, f"names of shards ({error})")
    except UnreadableError as error:
        return Structure([missing(f"{where}{METADATA} {error}")], committed=True)
    except BadContentError as error:
        return Structure([bad(f"{where}{METADATA}: {error}")], committed=True)
    return Structure(
        problems=_compare(index, files, where),
        committed=True,
        needed=[metadata, *(files[p] for p in index.ends if p in files)],
        parts={files[p].path: sorted(parts) for p, parts in index.parts.items() if p in files},
        inventory=True,
        checked=[f"{index.kind} of {len(index.ends)} shards that {METADATA} names"],
    )


def _names_only(files: Mapping[str, File], metadata: File, checked: str) -> Structure:
    shards = [f for p, f in files.items() if p.endswith((".distcp", ".safetensors"))]
    problems: list[Problem] = [] if shards else [missing("there is no shard")]
    return Structure(problems, committed=True, needed=[metadata, *shards], checked=[checked])


@dataclass
class Index:
    """What a `.metadata` demands."""

    ends: dict[str, int] = field(default_factory=dict)
    """Name of a shard to the number of bytes that it must have at least."""
    parts: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    """Name of a shard to the archives in it; shards that are transformed (compressed) are left out."""
    kind: str = "names and lengths"

    def note(self, call: pickles.Call | pickles.Persistent) -> None:
        """Takes in one object of the pickle: an entry of `storage_data` tells of one archive.

        Raises:
            BadContentError: the entry names no file or an impossible place.
        """
        if not isinstance(call, pickles.Call) or not isinstance(call.callee, pickles.Name):
            return
        if call.callee.name not in _FOLDED:
            return
        state = call.take_state()  # there are hundreds of thousands: none is kept
        if call.callee.name not in _ENTRIES:
            return
        name, offset, length = (state.get(key) for key in ("relative_path", "offset", "length"))
        if not isinstance(name, str):
            raise BadContentError("an entry of it names no file")
        if not isinstance(offset, int) or not isinstance(length, int):
            self.ends.setdefault(name, 1)  # another kind of storage, such as safetensors
            return
        if offset < 0 or length <= 0:
            raise BadContentError("an entry of it has an impossible place")
        self.ends[name] = max(self.ends.get(name, 0), offset + length)
        if state.get("transform_descriptors") is None:
            self.parts.setdefault(name, []).append((offset, length))


def _compare(index: Index, files: Mapping[str, File], where: str) -> list[Problem]:
    gone = {where + name for name in index.ends if name not in files}
    problems = [missing(f"{len(gone)} of {len(index.ends)} shards missing: {some(gone)}")] if gone else []
    short = {name: end for name, end in index.ends.items() if name in files and files[name].size < end}
    if short:
        name, end = min(short.items())
        more = f", and {len(short) - 1} more shards are cut off" if len(short) > 1 else ""
        problems.append(bad(f"{where}{name} has {files[name].size} of the {end} bytes needed{more}"))
    if not index.ends:
        problems.append(bad(f"{where}{METADATA} names no shard"))
    return problems


def read_index(metadata: File, access: Access) -> Index:
    """Reads which bytes of which shards are needed.

    Raises:
        BadContentError: it is damaged.
        UnreadableError, OverBudgetError: as `Access.read`.
    """
    if metadata.size <= MAX_METADATA:
        data = access.read(Level.STRUCTURE, metadata.path, 0, metadata.size)
        try:
            index = Index()
            value, end = pickles.read(data, tick=access.budget.check_time, built=index.note)
        except pickles.TooLongError:
            return _search([data])
        if end != len(data) or len(data) != metadata.size:
            raise BadContentError("it does not end where its pickle does")
        if not isinstance(value, pickles.Call) or not value.is_a("Metadata"):
            raise BadContentError("it is not the index of a distributed checkpoint")
        return index
    return _search(
        access.read(Level.STRUCTURE, metadata.path, max(0, at - _OVERLAP), _CHUNK + _OVERLAP)
        for at in range(0, metadata.size, _CHUNK)
    )


def _search(chunks: Iterable[bytes]) -> Index:
    names = {m.decode() for chunk in chunks for m in _SHARD_NAME.findall(chunk)}
    return Index(dict.fromkeys(names, 1), kind="names")
