"""Effective training time of a simulated run, with recovery times as they were measured: `python -m bench.ettr`."""
