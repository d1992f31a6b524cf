"""A real Slurm cluster for the tests and the demo."""
