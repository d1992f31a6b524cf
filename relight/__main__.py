"""`python -m relight` is the command `relight`."""

from relight.cli.main import run

if __name__ == "__main__":
    run()
