"""Only `make test-compose` collects this directory: it needs a container engine, and `make test` has none."""

import os

collect_ignore_glob = [] if os.environ.get("RELIGHT_COMPOSE") else ["test_*.py"]
