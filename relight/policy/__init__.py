"""Pure decisions: what to do about a diagnosis, and whether relight may do it alone. No I/O."""
