"""PyTorch Lightning and NeMo: `epoch=3-step=4000.ckpt`, a file or a directory, and `last.ckpt`.

Lightning (lightning/pytorch/callbacks/model_checkpoint.py): `last.ckpt` is one more save, or a link. NeMo
(nemo/utils/callbacks/nemo_model_checkpoint.py, nemo/lightning/pytorch/callbacks/model_checkpoint.py): names
end in `-last`, a file `<name>-unfinished` stands beside a save under way, and files may be spread over
`mp_rank_TT/` or `tp_rank_TT_pp_rank_PPP/`.
"""

import re
from collections.abc import Mapping, Sequence

from relight.checkpoints.access import Access
from relight.checkpoints.layouts import dcp, zero
from relight.checkpoints.layouts.base import (
    Candidate,
    Structure,
    join,
    missing,
    some,
    under,
    unfinished,
)
from relight.checkpoints.layouts.contents import step_of
from relight.checkpoints.layouts.ranks import absent
from relight.checkpoints.tree import File, Tree

_STEP = re.compile(r"(?:^|[^a-z])(?:global_)?step[=_-]?(\d{1,18})")
_EPOCH = re.compile(r"(?:^|[^a-z])epoch[=_-]?(\d{1,18})")
_LAST = re.compile(r"(?:.*-)?last(?:-v\d+)?(?:\.ckpt)?")
_RANK = re.compile(r"mp_rank_(\d+)|tp_rank_(\d+)_pp_rank_(\d+)")
_UNFINISHED = "-unfinished"


class Lightning:
    """See the module."""

    name = "lightning"

    def find(self, tree: Tree, access: Access) -> list[Candidate]:
        """See `Layout.find`."""
        return [_candidate(tree, name, files) for name, files in _saves(tree).items()]

    def pointer(self, candidates: Sequence[Candidate], access: Access) -> str | None:
        """See `Layout.pointer`: the target of the link `last.ckpt`, or the newest file of such a name."""
        if "last.ckpt" in access.tree.links:
            return access.tree.links["last.ckpt"].rstrip("/").rpartition("/")[2]
        aliases = [c for c in candidates if c.alias]
        return max(aliases, key=lambda c: (c.step or 0, c.name)).name if aliases else None

    def check(self, candidate: Candidate, candidates: Sequence[Candidate], access: Access) -> Structure:
        """See `Layout.check`."""
        inside = candidate.inside()
        if not inside:
            return Structure([unfinished("the directory is empty")])
        ranked = {
            f.path.partition("/")[0] for f in candidate.files if _RANK.fullmatch(f.path.partition("/")[0])
        }
        if ranked:
            everywhere = {
                f.path.partition("/")[0]
                for c in candidates
                for f in c.files
                if _RANK.fullmatch(f.path.partition("/")[0])
            }
            lost = absent(ranked, _RANK) | (everywhere - ranked)
            problems = [missing(f"no file of {some(lost)}")] if lost else []
            return Structure(problems, checked=["set of model-parallel ranks"])
        if len(candidate.files) == 1 and candidate.files[0].path == candidate.name:
            step = None if candidate.step is not None else step_of(candidate.files[0], access)
            return Structure(step=step)
        return _check_directory(inside, access)


class NeMo(Lightning):
    """Lightning's layout with NeMo's markers and ranks."""

    name = "nemo"

    def find(self, tree: Tree, access: Access) -> list[Candidate]:
        """See `Layout.find`."""
        found = super().find(tree, access)
        names = [*tree.entries]
        is_nemo = any(
            n.endswith(_UNFINISHED) or _RANK.fullmatch(n) or "consumed_samples" in n for n in names
        ) or any(p.startswith(("weights/", "context/")) for c in found for p in c.inside())
        return found if is_nemo else []


def _saves(tree: Tree) -> Mapping[str, tuple[File, ...]]:
    """Name of a save to its files."""
    saves: dict[str, tuple[File, ...]] = {}
    for entry in tree.entries.values():
        if entry.name in tree.links:
            continue
        if _RANK.fullmatch(entry.name):
            for file in entry.files:
                if file.name.endswith(".ckpt"):
                    saves[file.name] = (*saves.get(file.name, ()), file)
        elif entry.name.endswith(".ckpt") or (
            entry.is_dir and _is_nemo_directory(entry.name, entry.inside())
        ):
            saves[entry.name] = entry.files
    return saves


def _is_nemo_directory(name: str, inside: frozenset[str]) -> bool:
    return bool(_STEP.search(name)) and any(p.startswith(("weights/", "context/")) for p in inside)


def _candidate(tree: Tree, name: str, files: tuple[File, ...]) -> Candidate:
    step, epoch = _STEP.search(name), _EPOCH.search(name)
    alias = bool(_LAST.fullmatch(name))
    number = (
        None if step or epoch or alias else dcp.last_number(re.sub(r"-v\d+$", "", name.removesuffix(".ckpt")))
    )
    marker = name.removesuffix(".ckpt") + _UNFINISHED
    return Candidate(
        name,
        files,
        step=int(step[1]) if step else number,
        epoch=int(epoch[1]) if epoch else None,
        unfinished=f"{marker} is there: the save did not end" if marker in tree.files else "",
        alias=alias,
    )


def _check_directory(inside: Mapping[str, File], access: Access) -> Structure:
    """A directory that a sharded strategy wrote: FSDP (distributed checkpoint) or DeepSpeed."""
    parts = []
    if dcp.directories(inside):
        parts.append(dcp.check_directories(inside, access))
    for place in sorted({p.rpartition("/")[0] for p in inside if zero.is_zero(frozenset({p}))}):
        parts.append(zero.check(under(inside, place), place))
    if not parts:
        return Structure(checked=["no index that says what belongs to it"])
    joined = join(*parts)
    return Structure(joined.problems, joined.committed, parts=joined.parts, checked=joined.checked)
