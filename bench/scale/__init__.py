"""What the control plane costs, and how that grows with the number of watched jobs: `python -m bench.scale`."""
