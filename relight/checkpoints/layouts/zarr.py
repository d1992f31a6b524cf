"""Zarr and OCDBT, as JAX programs store arrays through TensorStore: is every chunk there?"""

import json
import re
from collections import Counter
from collections.abc import Mapping, Set
from functools import partial
from math import ceil, prod

from relight.checkpoints.access import Access, BadContentError, ReadAt
from relight.checkpoints.budget import Level, OverBudgetError
from relight.checkpoints.formats import ocdbt
from relight.checkpoints.layouts.base import Problem, Structure, bad, missing, some, under
from relight.checkpoints.stores import NotListedError, UnreadableError
from relight.checkpoints.tree import File

_MAX_HEADER = 1 << 20
_DATA = re.compile(r"(?:.*/)?d/(?!.*\.__lock$)[^/]+")
"""Data files of an OCDBT database; with `.__lock` behind it, what TensorStore holds while it writes one."""


def check_databases(inside: Mapping[str, File], access: Access) -> Structure:
    """Judges every OCDBT database in a checkpoint that no other one includes."""
    roots = {p.rpartition("/")[0] for p in inside if p.rpartition("/")[2] == ocdbt.MANIFEST}
    # While a save is merged, each process writes a database of its own inside; the outer one refers into it.
    outer = {r for r in roots if not any(r.startswith(f"{o}/" if o else "") and r != o for o in roots)}
    problems: list[Problem] = []
    checked: list[str] = []
    for root in sorted(outer):
        files = under(inside, root)
        where = f"{root}/" if root else ""
        try:
            found = ocdbt.needed_ranges(partial(_reader, files, access))
        except NotListedError:  # only sizes are known, and TensorStore writes no data file without data
            empty = {where + p for p, f in files.items() if _DATA.fullmatch(p) and not f.size}
            problems += [bad(f"{len(empty)} data files are empty: {some(empty)}")] if empty else []
            continue
        except OverBudgetError as error:
            checked.append(f"{where}{ocdbt.MANIFEST} not followed ({error})")
            continue
        except UnreadableError as error:
            problems.append(missing(f"{where}{error}"))
            continue
        except BadContentError as error:
            problems.append(bad(f"{where}{error}"))
            continue
        problems += _compare(found.ends, files, where)
        checked.append(found.checked)
    return Structure(problems, committed=True, checked=list(dict.fromkeys(checked)))


def _reader(files: Mapping[str, File], access: Access, path: str) -> tuple[ReadAt, int]:
    if path not in files:
        raise UnreadableError(f"{path} is missing")
    return access.reader(Level.STRUCTURE, files[path].path), files[path].size


def _compare(ends: Mapping[str, int], files: Mapping[str, File], where: str) -> list[Problem]:
    lost = {where + p for p in ends if p not in files}
    problems = [missing(f"{len(lost)} data files missing: {some(lost)}")] if lost else []
    for path, end in ends.items():
        if path in files and files[path].size < end:
            problems.append(bad(f"{where}{path} has {files[path].size} of the {end} bytes needed"))
    return problems


def check_chunks(inside: Mapping[str, File], access: Access) -> list[Problem]:
    """Problems of plain zarr arrays whose writer stores every chunk."""
    problems: list[Problem] = []
    headers = {p.rpartition("/")[0]: f for p, f in inside.items() if p.rpartition("/")[2] == ".zarray"}
    counts = _count_chunks(inside, headers.keys())
    for place, file in headers.items():
        if file.size > _MAX_HEADER:
            problems.append(bad(f"{place}/.zarray has {file.size} bytes: not the header of a zarr array"))
            continue
        try:
            expected = _chunk_count(access.read(Level.STRUCTURE, file.path, 0, file.size))
        except (NotListedError, OverBudgetError):
            continue
        except UnreadableError as error:
            problems.append(missing(f"{place}/.zarray {error}"))
            continue
        except BadContentError as error:
            problems.append(bad(f"{place}/.zarray: {error}"))
            continue
        if counts[place] < expected:
            problems.append(missing(f"{place} has {counts[place]} of {expected} chunks"))
    return problems


def _count_chunks(inside: Mapping[str, File], places: Set[str]) -> Counter[str]:
    """How many chunks each array has; chunks may lie in directories of their own (`0/1/2`)."""
    counts: Counter[str] = Counter()
    for path, file in inside.items():
        parent, _, name = path.rpartition("/")
        if name.startswith(".z") or not file.size:
            continue
        while parent and parent not in places:
            parent = parent.rpartition("/")[0]
        counts[parent] += 1
    return counts


def _chunk_count(text: bytes) -> int:
    try:
        header = json.loads(text)
        shape, chunks = header["shape"], header["chunks"]
        return prod(ceil(int(size) / int(chunk)) for size, chunk in zip(shape, chunks, strict=True))
    except (ValueError, KeyError, TypeError, ZeroDivisionError, OverflowError, RecursionError) as error:
        raise BadContentError("not the header of a zarr array") from error
