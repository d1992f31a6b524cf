"""The layouts that are recognised, most telling first."""

from relight.checkpoints.layouts.accelerate import Accelerate
from relight.checkpoints.layouts.base import Layout
from relight.checkpoints.layouts.composer import Composer
from relight.checkpoints.layouts.dcp import Dcp
from relight.checkpoints.layouts.deepspeed import DeepSpeed, GptNeoX
from relight.checkpoints.layouts.fairseq import Fairseq
from relight.checkpoints.layouts.hf_trainer import HfTrainer
from relight.checkpoints.layouts.levanter import Levanter
from relight.checkpoints.layouts.lightning import Lightning, NeMo
from relight.checkpoints.layouts.marker import Marker
from relight.checkpoints.layouts.megatron import Megatron
from relight.checkpoints.layouts.olmo import Olmo
from relight.checkpoints.layouts.orbax import Orbax
from relight.checkpoints.layouts.torch_save import TorchSave
from relight.checkpoints.layouts.torchtitan import TorchTitan

LAYOUTS: tuple[Layout, ...] = (
    Marker(),
    Megatron(),
    GptNeoX(),
    DeepSpeed(),
    Olmo(),
    Composer(),
    Orbax(),
    TorchTitan(),
    Levanter(),
    Accelerate(),
    HfTrainer(),
    NeMo(),
    Lightning(),
    Fairseq(),
    Dcp(),
    TorchSave(),
)
"""The first whose `find` yields candidates is taken."""

OTHER_NAMES = {"llm-foundry": "composer", "maxtext": "orbax", "olmo-core": "olmo", "metaseq": "fairseq"}
"""Frameworks that use another one's layout."""
