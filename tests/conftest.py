"""Fixtures for all tests."""

pytest_plugins = ["tests.slurm.plugin"]
