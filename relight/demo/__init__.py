"""The small training job of the demo and of the tests."""
