"""One module for each checkpoint layout, and the choice of the newest usable checkpoint."""
