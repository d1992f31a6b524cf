"""`relight diagnose`: what happened to a run, from its logs alone. Needs neither Slurm nor Temporal."""

import codecs
import json
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

import typer
from hostlist import BadHostlist, expand_hostlist
from rich.markup import escape

from relight.cli.busy import busy
from relight.cli.exit_codes import CommandError, ExitCode
from relight.cli.invocation import invocation
from relight.cli.log_text import why_no_log
from relight.cli.output import AsJson, complain, console, duration, print_json
from relight.cli.shapes import DiagnoseView, FirstError, LastProgress, QuotedLine
from relight.contracts import Action, Cause
from relight.diagnosis.cases import predict, read_rows
from relight.diagnosis.catalogue import Catalogue
from relight.diagnosis.offline import Line, LogInput, LogKind, Report, investigate
from relight.diagnosis.steplines import FORMATS, StepFormat, custom
from relight.wording import cause_of, collapse

PIECE = 1 << 20
QUOTED = 8
UNREAD = "None of these files could be read as a log: nothing is known of the run."
NAME_LOGS = "name the files that the job wrote, unpacked, as text"
_DURATION = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s?)?")
_DO = {
    Action.RESTART: "Restart it.",
    Action.RESTART_EXCLUDE_NODE: "Restart it without {nodes}.",
    Action.RESTART_PREVIOUS_CHECKPOINT: "Restart it from the checkpoint before the newest.",
    Action.STOP: "Do not restart it: somebody must change something first.",
    Action.NONE: "Nothing.",
}


def parse_duration(text: str) -> timedelta:
    """`90`, `90s`, `15m`, `1h30m`, `2d`.

    Raises:
        typer.BadParameter: it is none of these.
    """
    m = _DURATION.fullmatch(text.strip())
    if m is None or not any(m.groups()):
        raise typer.BadParameter(f"{text!r} is no duration; write 90s, 15m or 1h30m")
    days, hours, minutes, seconds = (float(g or 0) for g in m.groups())
    return timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)


def diagnose(
    ctx: typer.Context,
    job_logs: Annotated[
        list[Path] | None,
        typer.Argument(metavar="JOB_LOG...", help="What the job printed; - reads standard input."),
    ] = None,
    kernel_log: Annotated[
        list[str] | None,
        typer.Option(metavar="[NODE=]FILE", help="A kernel log (dmesg, journal), of a node."),
    ] = None,
    slurm_log: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="What Slurm said: slurmctld.log, sacct, scontrol."),
    ] = None,
    metrics: Annotated[
        list[str] | None, typer.Option(metavar="[NODE=]FILE", help="Metrics as CSV (nvidia-smi, exports).")
    ] = None,
    nodes: Annotated[
        str, typer.Option(metavar="LIST", help="The job's nodes in rank order, as node[001-004].")
    ] = "",
    tasks_per_node: Annotated[int | None, typer.Option(min=1, help="Ranks on each node.")] = None,
    still_running: Annotated[bool, typer.Option("--still-running", help="The job has not ended.")] = False,
    silent_for: Annotated[
        str | None, typer.Option(metavar="DURATION", help="It runs, and printed nothing for so long.")
    ] = None,
    exit_code: Annotated[int | None, typer.Option(help="The job's exit code.")] = None,
    step_pattern: Annotated[
        str | None,
        typer.Option(metavar="REGEX", help="How this job prints steps, with the group (?P<step>...)."),
    ] = None,
    signatures: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="DIR",
            help="More signatures, or others for known ids (default: the setting `signatures`).",
        ),
    ] = None,
    case: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Labelled rows (JSON lines): one prediction each.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Tell what happened to a run, where, why, and what to do, from its logs."""
    catalogue = load_catalogue(ctx, signatures)
    if case is not None:
        _predict(case, catalogue)
        return
    doubts: list[str] = []
    inputs = [
        *(_input(LogKind.JOB_LOG, str(p), None, doubts) for p in job_logs or []),
        *(_input(LogKind.SLURM_LOG, str(p), None, doubts) for p in slurm_log or []),
        *(_with_node(LogKind.KERNEL_LOG, text, doubts) for text in kernel_log or []),
        *(_with_node(LogKind.METRICS, text, doubts) for text in metrics or []),
    ]
    if not inputs:
        raise CommandError("name at least one log file (see `relight diagnose --help`)", ExitCode.USAGE)
    silence = parse_duration(silent_for) if silent_for is not None else None
    if silence is None and still_running:
        silence = _since_last_write(job_logs or [])
    with busy("reading the logs"):
        report = investigate(
            inputs,
            catalogue,
            now=datetime.now(UTC),
            nodes=_nodes(nodes),
            tasks_per_node=tasks_per_node,
            still_running=still_running or silence is not None,
            silent_for=silence,
            exit_code=exit_code,
            steps=_steps(step_pattern),
        )
    for doubt in doubts:
        complain(doubt, "warning")
    unread = len(doubts) == len(inputs) and report.cause is Cause.HEALTHY
    if unread:
        report = replace(report, cause=Cause.UNKNOWN, confidence=0.0, explanation=UNREAD, because=NAME_LOGS)
    if as_json:
        print_json(view_of(report, unread=unread))
    elif unread:
        console().print(f"[bold red]{UNREAD}[/]\n\n[bold]What to do:[/] {NAME_LOGS}.")
    else:
        _show(report, silence)
    if unread:
        raise typer.Exit(ExitCode.USAGE)


def load_catalogue(ctx: typer.Context, directories: list[Path] | None) -> Catalogue:
    """The catalogue, with the site's or these directories; complains of entries that had to be left out.

    Raises:
        CommandError: one of these is no directory.
    """
    for directory in directories or ():
        if not directory.is_dir():
            raise CommandError(
                f"--signatures {directory}: there is no such directory; name one that holds *.yaml files",
                ExitCode.USAGE,
            )
    chosen = directories if directories is not None else invocation(ctx).settings.signatures
    catalogue = Catalogue.load([d.absolute() for d in chosen])
    for problem in catalogue.problems:
        complain(f"left out: {problem}", "warning")
    return catalogue


def view_of(report: Report, *, unread: bool = False) -> DiagnoseView:
    """The report as `--json` prints it. `unread`: no file could be read as a log."""
    first, last = report.first_error, report.last_step
    return DiagnoseView(
        symptom=report.symptom,
        cause=report.cause,
        retryable=report.retryable,
        blame_nodes=report.blame_nodes,
        action=report.action,
        confidence=report.confidence,
        first_error=FirstError(file=first.file, line=first.line) if first is not None else None,
        progress=LastProgress(last_step=last, throughput=report.throughput) if last is not None else None,
        evidence=tuple(_quoted(line) for line in report.evidence),
        explanation=report.explanation,
        because=report.because,
        dropped=report.dropped,
        blind=report.blind,
        attempts=report.attempts,
        unread=unread,
    )


def _quoted(line: Line) -> QuotedLine:
    return QuotedLine(
        file=line.file, line=line.line, text=line.text, signature=line.signature, role=line.role
    )


def _show(report: Report, silence: timedelta | None) -> None:
    out = console()
    colour = "green" if report.cause is Cause.HEALTHY else "red"
    out.print(f"[bold {colour}]{escape(report.explanation)}[/]")
    if report.last_step is not None:
        out.print(f"Last step: {report.last_step}.")
    else:
        out.print("Blind: no step line was recognised; `relight progress test FILE` helps to teach one.")
    if silence is not None:
        out.print(f"Silent for {duration(silence)}.")
    if report.evidence:
        out.print("\n[bold]Because of these lines[/]")
        alike = collapse(report.evidence)
        for each in alike[:QUOTED]:
            line = each.first
            out.print(f"  [cyan]{escape(line.file)}:{line.line + 1}[/] {escape(line.text)}", soft_wrap=True)
            told = ", ".join(filter(None, [line.signature, line.role.value, each.more]))
            out.print(f"    [dim]{told}[/]", soft_wrap=True)
        if len(alike) > QUOTED:
            out.print(f"  and {len(alike) - QUOTED} more (--json shows all)")
    if report.dropped:
        out.print("\n[bold]Considered and dropped[/]")
        for text in report.dropped:
            out.print(f"  {escape(text)}", soft_wrap=True)
    do = _DO[report.action].format(nodes=", ".join(report.blame_nodes))
    why = f" ({report.because})" if report.because else ""
    out.print(f"\n[bold]What to do:[/] {escape(do + why)}")
    if report.cause is not Cause.HEALTHY:
        out.print(f"[dim]{cause_of(report.cause, report.confidence)}[/]")


def _predict(case: Path, catalogue: Catalogue) -> None:
    try:
        with case.open(encoding="utf-8") as lines:
            for row in read_rows(lines):
                sys.stdout.write(json.dumps(predict(row, catalogue)) + "\n")
    except OSError as e:
        raise CommandError(f"cannot read {case}: {e.strerror}", ExitCode.USAGE) from e
    except (ValueError, KeyError, TypeError) as e:
        raise CommandError(f"{case} is not a file of cases: {e}", ExitCode.USAGE) from e


def _with_node(kind: LogKind, text: str, doubts: list[str]) -> LogInput:
    node, equals, name = text.partition("=")
    if not equals or "/" in node:
        return _input(kind, text, None, doubts)
    return _input(kind, name, node, doubts)


def _input(kind: LogKind, name: str, node: str | None, doubts: list[str]) -> LogInput:
    """A file; while it is read, `doubts` is told where it can be no log."""
    path = Path("/dev/stdin" if name == "-" else name)
    if not path.exists():
        raise CommandError(f"cannot read {name}: there is no such file", ExitCode.USAGE)
    if path.is_dir():
        raise CommandError(f"cannot read {name}: it is a directory; name the log files in it", ExitCode.USAGE)
    return LogInput(kind, name, _doubted(name, _pieces(path), doubts), node)


def _doubted(name: str, pieces: Iterator[bytes], doubts: list[str]) -> Iterator[bytes]:
    first = next(pieces, b"")
    if why := why_no_log(first):
        doubts.append(f"{name} {why}")
    yield first
    yield from pieces


_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
"""Some tools on other systems write logs so. Anything else is read as UTF-8, with what is not replaced."""


def _pieces(path: Path) -> Iterator[bytes]:
    try:
        with path.open("rb") as f:
            utf16 = f.peek(2)[:2] in _UTF16
            decoder = codecs.getincrementaldecoder("utf-16")("replace") if utf16 else None
            while piece := f.read(PIECE):
                yield piece if decoder is None else decoder.decode(piece).encode("utf-8", "replace")
    except OSError as e:
        raise CommandError(f"cannot read {path}: {e.strerror}", ExitCode.USAGE) from e


def _nodes(text: str) -> tuple[str, ...]:
    if not text:
        return ()
    try:
        return tuple(expand_hostlist(text))
    except BadHostlist as e:
        raise CommandError(f"--nodes {text!r} is no node list: {e}", ExitCode.USAGE) from e


def _steps(pattern: str | None) -> tuple[StepFormat, ...] | None:
    if pattern is None:
        return None
    try:
        return (custom(pattern), *FORMATS)
    except ValueError as e:
        raise CommandError(f"--step-pattern: {e}", ExitCode.USAGE) from e


def _since_last_write(paths: Iterable[Path]) -> timedelta | None:
    """How long ago the job wrote anything, by the times of its files."""
    written = max((p.stat().st_mtime for p in paths if p.is_file()), default=None)
    if written is None:
        return None
    return max(timedelta(0), datetime.now(UTC) - datetime.fromtimestamp(written, UTC))
