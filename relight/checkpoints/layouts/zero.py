"""DeepSpeed's files of one checkpoint: model states, ZeRO optimizer shards, pipeline layers, experts.

Names: deepspeed/runtime/engine.py (`_get_ckpt_name`, `_get_zero_ckpt_name`), deepspeed/runtime/pipe.
"""

import re
from collections.abc import Mapping

from relight.checkpoints.layouts.base import Structure, missing, some, unfinished
from relight.checkpoints.layouts.ranks import absent
from relight.checkpoints.tree import File

_LAYER = re.compile(r"layer_(\d+)-model_(\d+)-model_states\.pt")
_SETS = (
    re.compile(r"mp_rank_(\d+)_model_states\.pt"),
    re.compile(r"zero_pp_rank_(\d+)_mp_rank_(\d+)_model_states\.pt"),
    re.compile(r"(?:bf16_|fp16_)?zero_pp_rank_(\d+)_mp_rank_(\d+)_optim_states\.pt"),
    re.compile(r"layer_(\d+)_expert_(\d+)_mp_rank_(\d+)_model_states\.pt"),
    re.compile(r"expp_rank_(\d+)_mp_rank_(\d+)_optim_states\.pt"),
)
_STATES = re.compile(r"(?:.*/)?[\w-]+_(?:model|optim)_states\.pt")


def is_zero(inside: Mapping[str, File] | frozenset[str]) -> bool:
    """Some of these are DeepSpeed's state files."""
    return any(map(_STATES.fullmatch, inside))


def check(files: Mapping[str, File], place: str = "") -> Structure:
    """Judges the set of state files in one directory."""
    names = {p for p in files if "/" not in p}
    where = f"{place}/" if place else ""
    if not any(name.endswith("_model_states.pt") for name in names):
        return Structure([unfinished(f"{where}there is no file of model states")])
    lost = absent(names, _LAYER, gaps={0})
    for pattern in _SETS:
        lost |= absent(names, pattern, gaps={0} if "layer_" in pattern.pattern else frozenset())
    problems = (
        [missing(f"{len(lost)} files missing: {some({where + name for name in lost})}")] if lost else []
    )
    return Structure(problems, checked=["sets of ranks"])
