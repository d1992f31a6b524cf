"""Only `make test-compose` collects this directory; it is no part of `make test`: it needs a container engine."""

import os

collect_ignore_glob = [] if os.environ.get("RELIGHT_COMPOSE") else ["test_*.py"]
