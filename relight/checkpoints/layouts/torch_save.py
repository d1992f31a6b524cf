"""Plain `torch.save` files: `ckpt_1000.pt`, `model-step=500.pth`, `ckpt.pt`; one for each rank, perhaps."""

import re
from collections.abc import Sequence

from relight.checkpoints.access import Access
from relight.checkpoints.layouts.base import Candidate, Structure, missing, singles, some
from relight.checkpoints.layouts.contents import step_of
from relight.checkpoints.layouts.dcp import last_number
from relight.checkpoints.layouts.ranks import absent
from relight.checkpoints.tree import File, Tree

_FILE = re.compile(r"(?P<stem>.+)\.(?:pt|pth|ckpt|bin|pkl)(?P<tmp>\.(?:tmp|part|partial))?")
_RANK = re.compile(r"(.*?)([_.-](?:mp_)?rank[_.-]?\d+)(.*)")
_RANKED = re.compile(r".*[_.-](?:mp_)?rank[_.-]?(\d+).*")
_STEP = re.compile(r"(?:steps?|iter(?:ation)?|it|batch|update)[=_.-]?(\d{1,18})")
_EPOCH = re.compile(r"ep(?:och)?[=_.-]?(\d{1,18})")
_ALIAS = re.compile(r"(?:^|[_.-])(?:last|latest|final|best|newest|current)(?:$|[_.-])")
_OTHER = re.compile(r"(?:training_args|scheduler|optimizer|rng_state|random_states|scaler|args|config).*")


class TorchSave:
    """See the module."""

    name = "torch-save"

    def find(self, tree: Tree, access: Access) -> list[Candidate]:
        """See `Layout.find`."""
        groups: dict[str, list[File]] = {}
        tmp: set[str] = set()
        for file, match in singles(tree, _FILE):
            if _OTHER.fullmatch(file.path):
                continue
            rank = _RANK.fullmatch(file.path)
            name = rank[1] + rank[3] if rank and rank[1] else file.path
            groups.setdefault(name, []).append(file)
            if match["tmp"]:
                tmp.add(name)
        return [_candidate(name, files, name in tmp) for name, files in groups.items()]

    def pointer(self, candidates: Sequence[Candidate], access: Access) -> str | None:
        """See `Layout.pointer`: a link named `latest` or `last`, or a text file `latest`."""
        for name, target in access.tree.links.items():
            if "/" not in name and _ALIAS.search(name.partition(".")[0]):
                return target.rpartition("/")[2]
        return access.pointer_text("latest")

    def check(self, candidate: Candidate, candidates: Sequence[Candidate], access: Access) -> Structure:
        """See `Layout.check`."""
        lost = absent((f.path for f in candidate.files), _RANKED)
        problems = [missing(f"{some(lost)} missing")] if lost else []
        step = step_of(candidate.files[0], access) if candidate.step is None else None
        return Structure(problems, step=step)


def _candidate(name: str, files: Sequence[File], tmp: bool) -> Candidate:
    stem = name.partition(".")[0] if "." in name else name
    step, epoch, alias = _STEP.search(name), _EPOCH.search(name), bool(_ALIAS.search(stem))
    number = None if step or epoch or alias else last_number(re.sub(r"\.[a-z]\w*", "", name))
    return Candidate(
        name,
        tuple(files),
        step=int(step[1]) if step else number,
        epoch=int(epoch[1]) if epoch else None,
        unfinished="its name is that of a save under way" if tmp else "",
        alias=alias,
    )
