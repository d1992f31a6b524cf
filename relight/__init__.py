"""relight: keeps distributed training alive on Slurm GPU clusters."""

__version__ = "0.1.0"
