"""Detectors: pure functions from what was seen to anomalies. Time comes in as an argument."""
