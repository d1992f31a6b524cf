"""Hugging Face's names of weights, whole or sharded, and its files per rank; several frameworks use them."""

import re
from collections.abc import Mapping

from relight.checkpoints.access import Access, BadContentError
from relight.checkpoints.budget import OverBudgetError
from relight.checkpoints.layouts import dcp, zero
from relight.checkpoints.layouts.base import Problem, Structure, bad, join, missing, some, under
from relight.checkpoints.layouts.ranks import absent
from relight.checkpoints.stores import NotListedError, UnreadableError
from relight.checkpoints.tree import File

_WEIGHTS = re.compile(
    r"(?:.*/)?(?:(?:model|pytorch_model|adapter_model|diffusion_pytorch_model)[\w.-]*\.(?:safetensors|bin)|tf_model\.h5)"
)
_OF = re.compile(r"(.*-)(\d{5})(-of-(\d{5})\.(?:safetensors|bin))")
_INDEXED = re.compile(r"(?:.*/)?(?:model|pytorch_model)-")
_RANKED = (
    re.compile(r"rng_state_(\d+)\.pth"),
    re.compile(r"random_states_(\d+)\.pkl"),
)


def check(inside: Mapping[str, File], access: Access) -> Structure:
    """Judges weights with their indexes, states per rank, and nested FSDP and DeepSpeed directories."""
    nested = []
    if dcp.directories(inside):
        nested.append(dcp.check_directories(inside, access))
    nested += [zero.check(under(inside, d), d) for d in _zero_directories(inside)]
    has_weights = any(map(_WEIGHTS.fullmatch, inside)) or bool(nested)
    own = Structure(
        [
            *([] if has_weights else [missing("there are no weights")]),
            *_index_problems(inside, access),
            *_numbered_problems(inside),
        ],
        committed=True,
        checked=["weights and ranks"],
    )
    joined = join(own, *nested)
    return Structure(joined.problems, joined.committed, parts=joined.parts, checked=joined.checked)


def _zero_directories(inside: Mapping[str, File]) -> list[str]:
    return sorted({p.rpartition("/")[0] for p in inside if "/" in p and zero.is_zero(frozenset({p}))})


def _index_problems(inside: Mapping[str, File], access: Access) -> list[Problem]:
    problems = []
    for path, file in inside.items():
        if not path.endswith((".safetensors.index.json", ".bin.index.json")):
            continue
        place = path.rpartition("/")[0]
        try:
            shards = access.json(file).get("weight_map")
        except (NotListedError, OverBudgetError):
            continue
        except UnreadableError as error:
            problems.append(missing(f"{path} {error}"))
            continue
        except BadContentError as error:
            problems.append(bad(f"{path}: {error}"))
            continue
        if not isinstance(shards, dict) or not all(isinstance(s, str) for s in shards.values()):
            problems.append(bad(f"{path} has no map of weights"))
            continue
        names = {f"{place}/{s}" if place else s for s in shards.values()}
        if lost := names - inside.keys():
            problems.append(missing(f"{len(lost)} of {len(names)} shards missing: {some(lost)}"))
    return problems


def _numbered_problems(inside: Mapping[str, File]) -> list[Problem]:
    lost: set[str] = set()
    for pattern in _RANKED:
        lost |= absent(inside, pattern)
    series: dict[tuple[str, str, int], set[str]] = {}
    for match in filter(None, map(_OF.fullmatch, inside)):
        series.setdefault((match[1], match[3], int(match[4])), set()).add(match[0])
    for (start, end, total), there in series.items():
        if total > 1 and _INDEXED.fullmatch(
            start
        ):  # transformers looks for the index, and finds no weights without it
            lost |= {f"{start[:-1]}{end[end.rindex('.') :]}.index.json"} - inside.keys()
        lost |= {f"{start}{i:05d}{end}" for i in range(1, total + 1)} - there
    return [missing(f"{len(lost)} files missing: {some(lost)}")] if lost else []
