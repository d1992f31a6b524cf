"""Tests of the workflows, on a real Temporal server, with stub activities."""
