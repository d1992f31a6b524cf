"""The fault suite: real faults of a real PyTorch training on real Slurm, and what relight makes of them."""
