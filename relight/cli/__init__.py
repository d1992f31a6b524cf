"""The `relight` command, one module for each group of commands."""
