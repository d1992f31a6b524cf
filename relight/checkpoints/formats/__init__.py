"""File formats: is this file what its name says, and is all of it there? Nothing is ever unpickled."""
