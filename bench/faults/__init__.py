"""The fault suite: real faults of a real PyTorch training on a real Slurm cluster, and what relight makes of them."""
