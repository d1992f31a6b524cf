"""The process that hosts workflows and activities."""
