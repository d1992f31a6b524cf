"""Only `make test-pyslurm` collects this directory; it is no part of `make test`."""

import os

collect_ignore_glob = [] if os.environ.get("RELIGHT_REAL_PYSLURM") else ["test_*.py"]
