"""Checkpoints written by the real libraries; see conftest.py for when these tests run."""
