"""`python -m sensor.node OPTIONS`: the resident process of the node sensor, its options as JSON."""

import os
import sys
from importlib import import_module


def main() -> int:
    """Runs it. Returns the exit code."""
    # structlog loads rich for coloured tracebacks where it is installed: a tenth of this process's memory.
    sys.modules.setdefault("rich", None)  # type: ignore[arg-type]  # "cannot be imported", to Python
    watch = import_module("sensor.node.watch")
    options = watch.NodeOptions.model_validate_json(sys.argv[1])
    safe = ["-P"] if sys.flags.safe_path else []
    courier = [sys.executable, *safe, "-m", "sensor.node.tell", options.node, str(options.state)]
    return int(watch.run(options, courier))


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # a thread that is stuck in the driver would keep an ordinary exit waiting
