"""One module for each checkpoint layout and file format, and the choice of the newest usable checkpoint."""

from relight.checkpoints.gate import inspect
from relight.checkpoints.report import CheckpointError, CheckpointState, Report, State

__all__ = ["CheckpointError", "CheckpointState", "Report", "State", "inspect"]
