"""The layouts that are recognised, most telling first."""

from relight.checkpoints.layouts.base import Layout
from relight.checkpoints.layouts.marker import Marker
from relight.checkpoints.layouts.megatron import Megatron

LAYOUTS: tuple[Layout, ...] = (Megatron(), Marker())
"""The first whose `find` yields candidates is taken."""
