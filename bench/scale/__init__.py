"""What the control plane costs, and how that grows with the watched jobs: `python -m bench.scale`."""
