"""Stages about Temporal: the server, the namespace, the workers, the guard."""

from temporalio.client import WorkflowExecutionStatus
from temporalio.service import RPCError, RPCStatusCode

from relight.bytecode import why_compiled_anew
from relight.cli.checkup.base import Bench, Broken, Well
from relight.cli.exit_codes import CommandError, ExitCode
from relight.cli.setup import look
from relight.cli.watched import worker_polls
from relight.contracts.ids import guard_id
from relight.encryption import EncryptionError
from relight.temporal import TemporalUnavailable


async def temporal(bench: Bench) -> Well:
    """A server answers."""
    try:
        bench.client = await bench.call.client()
    except EncryptionError as error:
        mend = "set encryption.key_file to the cluster's key file, for its owner only"
        raise Broken(str(error), mend, ExitCode.USAGE) from error
    except TemporalUnavailable as error:
        if not _no_namespace(error):
            mend = "start it (`relight up` for a try-out), or set TEMPORAL_ADDRESS, or a profile"
            raise Broken(str(error), mend, ExitCode.NO_TEMPORAL) from error
        bench.missing_namespace = str(error)
        return Well("a server answers")
    return Well(f"{bench.client.service_client.config.target_host} answers")


async def namespace(bench: Bench) -> Well:
    """The namespace exists."""
    if bench.missing_namespace:
        mend = "`temporal operator namespace create --namespace NAME`, or set TEMPORAL_NAMESPACE"
        raise Broken(bench.missing_namespace, mend, ExitCode.NO_TEMPORAL)
    return Well(bench.client.namespace)


async def search_attributes(bench: Bench) -> Well:
    """They are registered, with their types. Without them workflows would be stuck."""
    try:
        report = await look(bench.client)
    except CommandError as error:
        if error.code is ExitCode.REFUSED:  # a key that may not look; `relight setup` has the last word
            return Well("this key may not list them", str(error))
        raise Broken(str(error), "remove it, or use another namespace", ExitCode.NOT_READY) from error
    if report.missing:
        found = f"namespace {report.namespace} lacks {', '.join(report.missing)}"
        raise Broken(found, "run `relight setup`", ExitCode.NOT_READY)
    return Well("registered")


async def worker(bench: Bench) -> Well:
    """A worker asks for work."""
    queue = bench.settings.task_queue
    if not await worker_polls(bench.client, queue):
        mend = (
            "start `relight worker`; if one runs, its task_queue or namespace is another one, or see its log"
        )
        raise Broken(f"no worker polls task queue {queue!r}", mend, ExitCode.NOT_READY)
    # By this process' environment: the doctor runs as the worker's user, if not by the same unit.
    return Well(f"one polls task queue {queue!r}", why_compiled_anew())


async def guard(bench: Bench) -> Well:
    """The cluster's guard runs: recoveries ask it before their first change."""
    if not bench.settings.guard:
        return Well("not wanted (setting guard)")
    name = guard_id(bench.cluster)
    try:
        described = await bench.client.get_workflow_handle(name).describe()
        runs = described.status is WorkflowExecutionStatus.RUNNING
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise
        runs = False
    if not runs:
        mend = "a worker starts it within a minute, if its settings say `guard = true` and the same cluster"
        raise Broken(
            f"{name} does not run: recoveries wait before their first change", mend, ExitCode.NOT_READY
        )
    return Well(f"{name} runs")


def _no_namespace(error: TemporalUnavailable) -> bool:
    cause = error.__cause__
    return isinstance(cause, RPCError) and cause.status is RPCStatusCode.NOT_FOUND
