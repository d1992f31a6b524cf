"""Benchmarks that anyone can rerun; each prints a ratio against a named peer or limit."""
