"""Effective training time of a simulated run, by measured recovery times: `python -m bench.ettr`."""
