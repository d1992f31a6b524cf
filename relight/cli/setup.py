"""`relight setup`: makes a Temporal namespace ready for relight, by registering its search attributes."""

import asyncio
import time
from typing import Annotated

import typer
from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest, ListSearchAttributesRequest
from temporalio.client import Client
from temporalio.common import SearchAttributeIndexedValueType
from temporalio.service import RPCError, RPCStatusCode

from relight.cli.exit_codes import CommandError, ExitCode
from relight.cli.invocation import invocation, run_async
from relight.cli.output import AsJson, print_json, say
from relight.cli.shapes import SetupReport
from relight.contracts.ids import SEARCH_ATTRIBUTES

TAKES_EFFECT_SECONDS = 30.0
"""The server caches the list of search attributes; how long to wait until it knows the new ones."""


def setup(
    ctx: typer.Context,
    check: Annotated[
        bool, typer.Option("--check", help="Only look; exit 7 if something is missing.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Register relight's search attributes in the Temporal namespace (once; again does no harm)."""

    async def work() -> SetupReport:
        client = await invocation(ctx).client()
        return await (look(client) if check else register(client))

    report = run_async(work(), "waiting until Temporal knows the search attributes")
    if as_json:
        print_json(report)
    else:
        say(describe(report))
    if report.missing:
        raise typer.Exit(ExitCode.NOT_READY)


def describe(report: SetupReport) -> str:
    """What was done or found, in a sentence."""
    if report.missing:
        return f"namespace {report.namespace} lacks {', '.join(report.missing)}: run `relight setup`"
    if report.added:
        return f"namespace {report.namespace}: registered {', '.join(report.added)}; it is ready for relight"
    return f"namespace {report.namespace} is ready for relight: nothing to do"


async def look(client: Client) -> SetupReport:
    """Compares the namespace with what relight needs.

    Raises:
        CommandError: a search attribute is there with another type, or the list cannot be read.
    """
    known = await _registered(client)
    present, missing = [], []
    for key in SEARCH_ATTRIBUTES:
        kind = int(key.indexed_value_type)
        if key.name not in known:
            missing.append(key.name)
        elif known[key.name] != kind:
            raise CommandError(
                f"the search attribute {key.name} exists with type {_name(known[key.name])}, but relight "
                f"needs {_name(kind)}: remove it, or use another namespace",
                ExitCode.NOT_READY,
            )
        else:
            present.append(key.name)
    return SetupReport(namespace=client.namespace, present=tuple(present), missing=tuple(missing))


async def register(client: Client) -> SetupReport:
    """Adds what is missing and waits until the server knows it.

    Raises:
        CommandError: as `look`; or the server does not take them.
    """
    before = await look(client)
    if not before.missing:
        return before
    wanted = {
        key.name: IndexedValueType.ValueType(int(key.indexed_value_type))
        for key in SEARCH_ATTRIBUTES
        if key.name in before.missing
    }
    try:
        await client.operator_service.add_search_attributes(
            AddSearchAttributesRequest(namespace=client.namespace, search_attributes=wanted)
        )
    except RPCError as e:
        # Somebody else may be doing the same just now.
        if e.status is not RPCStatusCode.ALREADY_EXISTS:
            raise _not_here(client, e) from e
    deadline = time.monotonic() + TAKES_EFFECT_SECONDS
    while (await look(client)).missing:
        if time.monotonic() > deadline:
            raise CommandError(
                "Temporal took the search attributes but does not show them after "
                f"{TAKES_EFFECT_SECONDS:.0f} s: wait a minute, then run `relight setup --check`",
                ExitCode.NOT_READY,
            )
        await asyncio.sleep(0.2)
    return SetupReport(namespace=client.namespace, added=before.missing, present=before.present)


async def _registered(client: Client) -> dict[str, int]:
    try:
        answer = await client.operator_service.list_search_attributes(
            ListSearchAttributesRequest(namespace=client.namespace)
        )
    except RPCError as e:
        raise _not_here(client, e) from e
    return {**answer.custom_attributes}


def _name(kind: int) -> str:
    """`KeywordList`, as Temporal's own command line takes it."""
    return SearchAttributeIndexedValueType(kind).name.title().replace("_", "")


def _not_here(client: Client, error: RPCError) -> CommandError:
    needed = ", ".join(f"{key.name} ({_name(key.indexed_value_type)})" for key in SEARCH_ATTRIBUTES)
    return CommandError(
        f"search attributes of namespace {client.namespace} cannot be managed from here: {error.message}. "
        f"Create them by hand (Temporal Cloud: web console or `tcld`): {needed}",
        ExitCode.REFUSED if error.status is RPCStatusCode.PERMISSION_DENIED else ExitCode.FAILURE,
    )
