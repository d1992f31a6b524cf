"""The workflows: they decide, and do no I/O."""
