"""The connection to Temporal, the same for the worker, the sensor and the command."""

import asyncio
from typing import Any

from temporalio.client import Client
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.envconfig import ClientConfig
from temporalio.runtime import Runtime
from temporalio.service import RPCError


class TemporalUnavailable(Exception):
    """Temporal cannot be reached. The message says where it was looked for and what to do."""


async def connect(*, runtime: Runtime | None = None, timeout: float = 5.0) -> Client:
    """Connects as `TEMPORAL_ADDRESS`, `TEMPORAL_NAMESPACE`, profiles, TLS and API key settings say.

    Raises:
        TemporalUnavailable: nothing answers there within `timeout` seconds, or the settings are wrong.
    """
    try:
        config: dict[str, Any] = dict(ClientConfig.load_client_connect_config())
    except (RuntimeError, ValueError, OSError) as e:
        raise TemporalUnavailable(f"the Temporal client settings cannot be read: {e}") from e
    config.setdefault("target_host", "localhost:7233")
    target = f"{config['target_host']}, namespace {config.get('namespace', 'default')}"
    try:
        return await asyncio.wait_for(
            Client.connect(data_converter=pydantic_data_converter, runtime=runtime, **config), timeout
        )
    except (RuntimeError, RPCError, TimeoutError, ValueError) as e:
        raise TemporalUnavailable(
            f"no Temporal server answers at {target}: {e}. Start one with `relight up`, or set "
            "TEMPORAL_ADDRESS (and TEMPORAL_NAMESPACE) to an existing one."
        ) from e
