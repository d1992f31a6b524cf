"""fairseq, metaseq: `checkpoint_2_1000.pt` (epoch, updates), `checkpoint2.pt` (epoch), `checkpoint_last.pt`.

fairseq/checkpoint_utils.py (`save_checkpoint`). Sharded runs have one file for each shard, `...-shard0.pt`.
`checkpoint_last.pt` is a copy of the newest; a save under way has the ending `.tmp`.
"""

import re
from collections.abc import Sequence

from relight.checkpoints.access import Access
from relight.checkpoints.layouts.base import Candidate, Structure, missing, singles, some
from relight.checkpoints.layouts.contents import step_of
from relight.checkpoints.layouts.ranks import absent
from relight.checkpoints.tree import File, Tree

_FILE = re.compile(
    r"checkpoint(?:_(?P<epoch>\d{1,18})_(?P<step>\d{1,18})|_(?P<updates>\d{1,18})|(?P<only>\d{1,18})"
    r"|_(?P<alias>last|best)[\w.]*?)(?:\.pt)?(?P<shard>-(?:[\w-]*?shard|rank-?)\d+)?(?:\.pt)(?P<tmp>\.tmp)?"
)
_SHARD = re.compile(r".*-(?:[\w-]*?shard|rank-?)(\d+)\.pt")


class Fairseq:
    """See the module."""

    name = "fairseq"

    def find(self, tree: Tree, access: Access) -> list[Candidate]:
        """See `Layout.find`."""
        found = singles(tree, _FILE)
        if not any(m["step"] or m["alias"] or m["shard"] for _, m in found):
            return []
        groups: dict[str, list[tuple[File, re.Match[str]]]] = {}
        for file, match in found:
            name = file.path if not match["shard"] else file.path.replace(match["shard"], "", 1)
            groups.setdefault(name, []).append((file, match))
        return [_candidate(name, group) for name, group in groups.items()]

    def pointer(self, candidates: Sequence[Candidate], access: Access) -> str | None:
        """See `Layout.pointer`."""
        if "checkpoint_last.pt" in access.tree.links:
            return access.tree.links["checkpoint_last.pt"].rpartition("/")[2]
        return next((c.name for c in candidates if c.name.startswith("checkpoint_last")), None)

    def check(self, candidate: Candidate, candidates: Sequence[Candidate], access: Access) -> Structure:
        """See `Layout.check`."""
        names = {f.path for f in candidate.files}
        lost = absent(names, _SHARD)
        fewer = len(names) < max(len(c.files) for c in candidates)
        problems = [missing(f"{some(lost)} missing")] if lost else []
        if fewer and not lost:
            problems.append(missing("shards missing, which other checkpoints have"))
        step = step_of(candidate.files[0], access) if candidate.step is None else None
        return Structure(problems, step=step, checked=["set of shards"])


def _candidate(name: str, group: Sequence[tuple[File, re.Match[str]]]) -> Candidate:
    match = group[0][1]
    step, epoch = match["step"] or match["updates"], match["epoch"] or match["only"]
    return Candidate(
        name,
        tuple(file for file, _ in group),
        step=int(step) if step else None,
        epoch=int(epoch) if epoch else None,
        unfinished="its name is that of a save under way" if match["tmp"] else "",
        alias=bool(match["alias"]),
    )
