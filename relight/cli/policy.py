"""`relight policy`: the policy file checked, shown as it works out for a job, and its schema for editors."""

import json
from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from relight.cli import policy_watched
from relight.cli.exit_codes import CommandError, ExitCode
from relight.cli.invocation import invocation, run_async
from relight.cli.output import AsJson, complain, console, print_json, say
from relight.cli.shapes import GateView, PolicyCheckView, PolicyView, ProblemView
from relight.config import Settings
from relight.contracts import Policy, clean_text
from relight.durations import format_duration
from relight.known_rules import DETECTORS as BUILT_IN
from relight.known_rules import new_rules
from relight.policies import Policies, merged, read_policy_text, why_unsafe
from relight.policy.choose import Chosen, JobFacts, choose
from relight.policy.file import DEFAULT, PolicyFile, PolicyFileError, parse, schema

app = typer.Typer(help="What relight may do for which job: the policy file.", no_args_is_help=True)
app.command("apply")(policy_watched.apply)
app.command("would-have")(policy_watched.would_have)

DETECTORS = frozenset({*BUILT_IN, "poll"})
"""Detectors that tell of themselves, a monitor's own look among them; Prometheus' rules have signatures."""


@app.command()
def check(
    ctx: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A policy file.")],
    as_json: AsJson = False,
) -> None:
    """Check a policy file: all that is wrong at once, with lines; exit code 1 if something is.

    Nothing is changed and no service is asked. A service reads the file again by itself when it changes.
    """
    settings = invocation(ctx).settings
    found = _checked(file, settings)
    if as_json:
        print_json(found)
    else:
        for problem in found.problems:
            key = f"{problem.key}: " if problem.key else ""
            say(f"{file}:{problem.line}: {key}{problem.message}")
        for warning in found.warnings:
            complain(warning, "warning")
        if found.ok:
            say(f"{file} can be used; jobs may choose: {', '.join(found.policies)}")
        else:
            say(f"{file} cannot be used: {len(found.problems)} problems")
    if not found.ok:
        raise typer.Exit(ExitCode.FAILURE)


@app.command("schema")
def schema_() -> None:
    """Print the JSON schema of the policy file, for editors.

    With the YAML language server: save it, and begin the file with `# yaml-language-server: $schema=PATH`.
    """
    typer.echo(json.dumps(schema(), indent=2))


@app.command()
def show(
    ctx: typer.Context,
    name: Annotated[
        str | None, typer.Argument(help="A policy.", show_default="what a job gets that asks for none")
    ] = None,
    job: Annotated[str | None, typer.Option("--job", metavar="JOB", help="What this job would get.")] = None,
    partition: Annotated[str, typer.Option(help="For a job in this partition.")] = "",
    user: Annotated[str, typer.Option(help="For a job of this user.")] = "",
    account: Annotated[str, typer.Option(help="For a job of this account.")] = "",
    as_json: AsJson = False,
) -> None:
    """Show a policy as it is in force, or what a job gets and why.

    `relight policy show patient` shows that policy with all its values; `--job 4243` asks the scheduler about
    the job; `--partition`, `--user` and `--account` describe one that is not there yet.
    """
    settings = invocation(ctx).settings
    policies = Policies(settings).file
    described = JobFacts(partition, user, account)
    if job is not None and described != JobFacts():
        raise CommandError("say either --job, or what a job would be like", ExitCode.USAGE)
    if job is not None:
        found = run_async(_of_job(settings, policies, job, name or ""), "asking the scheduler")
    else:
        chosen = choose(policies, described, settings.mode, name or "")
        about_job = name is None or described != JobFacts()
        found = _view(chosen) if about_job else PolicyView(policy=policies.policy(name or DEFAULT))
    if as_json:
        print_json(found)
        return
    _print(found)


def _checked(file: Path, settings: Settings) -> PolicyCheckView:
    text = read_policy_text(file, safe=False)
    try:
        written = parse(text, str(file), tuple(settings.policies))
        found = merged(settings, written, new_rules(settings.state_dir))
    except PolicyFileError as e:
        wrong = tuple(
            ProblemView(line=p.line, key=clean_text(p.key), message=clean_text(p.message)) for p in e.problems
        )
        return PolicyCheckView(file=str(file), ok=False, problems=wrong)
    problems = tuple(_uncompiled(found))
    warnings = [*_unknown_rules(found, settings)]
    if why := why_unsafe(file):
        warnings.append(f"services will refuse it: {why}")
    return PolicyCheckView(
        file=str(file), ok=not problems, problems=problems, warnings=tuple(warnings), policies=found.allowed
    )


def _uncompiled(found: PolicyFile) -> list[ProblemView]:
    """Step patterns that the engine which looks for them cannot use."""
    from relight.diagnosis.steplines import with_custom  # slow to import

    problems = []
    for name, policy in found.policies.items():
        try:
            with_custom(policy.step_patterns)
        except ValueError as e:
            problems.append(ProblemView(line=1, key=f"policies.{name}.step_patterns", message=str(e)))
    return problems


def _unknown_rules(found: PolicyFile, settings: Settings) -> list[str]:
    """Rules that relight has not heard of: one that is misspelt under `observe` would go on acting."""
    from relight.diagnosis.catalogue import Catalogue  # slow to import

    catalogue = Catalogue.load(settings.signatures)
    unknown = []
    for rule in (*found.observe, *found.promote):
        family, _, rest = rule.partition(".")
        coded = rule.startswith(("xid-", "sxid-")) and rule.rpartition("-")[2].isdecimal()
        listed = catalogue.get(rule) or catalogue.get(rule.rpartition("-")[0])
        known = rule in DETECTORS or coded or listed is not None
        if not known and not (rest and family in {"nvml", "watch", "dcgm"}):
            unknown.append(
                f"{rule!r} is no detector, no Xid and no signature of the catalogue "
                "(`relight catalogue list`): misspelt, it means nothing"
            )
    return unknown


async def _of_job(settings: Settings, policies: PolicyFile, job_id: str, asked: str) -> PolicyView:
    from relight.scheduler.opening import open_scheduler  # adapters are slow to import

    info = await open_scheduler(settings).job(job_id)
    facts = JobFacts(partition=info.partition, user=info.user, account=info.account)
    return _view(choose(policies, facts, settings.mode, asked)).model_copy(update={"job_id": job_id})


def _view(chosen: Chosen) -> PolicyView:
    caps = tuple(GateView(gate=cap.gate, why=cap.why, opens=cap.opens) for cap in chosen.caps)
    return PolicyView(policy=chosen.policy, mode=chosen.mode, reasons=chosen.reasons, caps=caps)


def _print(found: PolicyView) -> None:
    out = console()
    head = f"policy [bold]{escape(found.policy.name)}[/]"
    if found.mode is not None:
        head += f", mode [bold]{found.mode.value}[/]"
    out.print(head)
    for reason in found.reasons:
        out.print(f"  {escape(reason)}")
    for cap in found.caps:
        out.print(f"  cannot act: {escape(cap.why)}; to change that, {escape(cap.opens)}")
    default = Policy()
    table = Table("SETTING", "VALUE", "", box=None, pad_edge=False)
    for key in sorted(set(Policy.model_fields) - {"name"}):
        value = getattr(found.policy, key)
        changed = "" if value == getattr(default, key) else "not relight's default"
        table.add_row(key, escape(_text(value)), changed)
    out.print(table)


def _text(value: object) -> str:
    if isinstance(value, timedelta):
        return format_duration(value)
    if isinstance(value, dict):
        rules = {k.value: v.model_dump(mode="json", exclude_none=True) for k, v in value.items()}
        return json.dumps(rules) if rules else "-"
    if isinstance(value, tuple):
        return ", ".join(map(str, value)) or "-"
    return "-" if value is None else str(getattr(value, "value", value))
