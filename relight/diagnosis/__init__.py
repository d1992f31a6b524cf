"""From text and numbers to anomalies, and from anomalies to one diagnosis.

`verdict` is pure and runs inside workflows: nothing it imports may do I/O or load the pattern engine.
"""
