"""The connection to Temporal, the same for the worker, the sensor and the command."""

import asyncio
import re
from pathlib import Path
from typing import Any

from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client
from temporalio.envconfig import ClientConfig
from temporalio.runtime import Runtime
from temporalio.service import RPCError, RPCStatusCode

from relight.encryption import data_converter


class TemporalUnavailable(Exception):
    """Temporal cannot be used. The message says where it was looked for and what to do."""


class TemporalSettingsError(TemporalUnavailable):
    """The settings of Temporal's client cannot be used. The message says why, and where they come from."""


class NotReady(Exception):
    """Temporal answers, but its namespace is not set up for relight. The message says what to do."""


async def connect(
    *, key_file: Path | None = None, runtime: Runtime | None = None, timeout: float = 5.0
) -> Client:
    """Connects as `TEMPORAL_ADDRESS`, `TEMPORAL_NAMESPACE`, profiles, TLS and API key settings say.

    Args:
        key_file: the keys that payloads are encrypted with (`relight.encryption`); None: they are not.
        runtime: Temporal's, if it is not the usual one.
        timeout: seconds.

    Raises:
        EncryptionError: the key file cannot be used.
        TemporalSettingsError: the client's settings cannot be read or used.
        TemporalUnavailable: nothing answers there within `timeout` seconds, or the namespace does not exist.
    """
    converter = data_converter(key_file)
    try:
        config: dict[str, Any] = dict(ClientConfig.load_client_connect_config())
    except (RuntimeError, ValueError, OSError) as e:
        why = " ".join(str(e).split())
        raise TemporalSettingsError(
            f"the Temporal client settings cannot be read: {why}. They come from the variables TEMPORAL_... "
            "and from the file that TEMPORAL_CONFIG_FILE names (else temporalio/temporal.toml in the user's "
            "configuration directory)"
        ) from e
    config.setdefault("target_host", "localhost:7233")
    target = f"{config['target_host']}, namespace {config.get('namespace', 'default')}"
    try:
        async with asyncio.timeout(timeout):
            client = await Client.connect(data_converter=converter, runtime=runtime, **config)
            await _check_namespace(client)
    except (RuntimeError, RPCError, TimeoutError, ValueError) as e:
        if "invalid target URL" in str(e):
            raise TemporalSettingsError(
                f"Temporal's address {config['target_host']!r} cannot be used: {_in_short(e, timeout)}. "
                "Write TEMPORAL_ADDRESS (or address in the profile) as host:port"
            ) from e
        raise TemporalUnavailable(
            f"no Temporal server answers at {target}: {_in_short(e, timeout)}. Start one with `relight up`, "
            "or set TEMPORAL_ADDRESS (and TEMPORAL_NAMESPACE) to an existing one."
        ) from e
    return client


async def _check_namespace(client: Client) -> None:
    """Connecting does not ask for the namespace: without this, each later call would fail on it."""
    try:
        await client.workflow_service.describe_namespace(DescribeNamespaceRequest(namespace=client.namespace))
    except RPCError as e:
        if e.status is RPCStatusCode.NOT_FOUND:
            raise TemporalUnavailable(
                f"Temporal at {client.service_client.config.target_host} has no namespace "
                f"{client.namespace!r}: create it (`temporal operator namespace create --namespace "
                f"{client.namespace}`), or set TEMPORAL_NAMESPACE to an existing one."
            ) from e
        # A key may use a namespace and still not be allowed to describe it.
        if e.status is not RPCStatusCode.PERMISSION_DENIED:
            raise


def _in_short(error: Exception, timeout: float) -> str:
    """The telling part of a connection error, which is otherwise a screenful of type names."""
    if isinstance(error, TimeoutError):
        return f"no answer within {timeout:g} s"
    messages = re.findall(r'message: "([^"]*)"', str(error))
    return messages[-1] if messages else str(error)
