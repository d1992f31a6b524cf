"""`relight schema`: what `--json` prints, as JSON Schema."""

import json
from collections.abc import Mapping
from typing import Annotated, Any

import typer
from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from relight.checkpoints import Report
from relight.cli import shapes
from relight.cli.exit_codes import CommandError, ExitCode
from relight.cli.output import say
from relight.contracts.guard import GuardStatus, NodeView
from relight.contracts.messages import DecisionResult
from relight.contracts.node_drain import NodeDrainStatus
from relight.diagnosis.catalogue import Signature
from relight.diagnosis.findings import Finding
from relight.docstrings import below

PRINTED: Mapping[str, Any] = {
    "jobs": list[shapes.WatchedJob],
    "show": shapes.JobView,
    "logs": shapes.LogsView,
    "why": shapes.WhyView,
    "approve": DecisionResult,
    "reject": DecisionResult,
    "guard": GuardStatus,
    "rollback": shapes.RollbackView,
    "policy check": shapes.PolicyCheckView,
    "policy show": shapes.PolicyView,
    "policy apply": list[shapes.AppliedView],
    "policy would-have": list[shapes.RuleCountView],
    "nodes": list[NodeView],
    "nodes drains": list[NodeDrainStatus],
    "audit show": shapes.AuditView,
    "audit verify": shapes.VerifyView,
    "audit check-archive": list[shapes.ArchiveCheckView],
    "quality": shapes.QualityView,
    "report": shapes.ReportView,
    "diagnose": shapes.DiagnoseView,
    "checkpoints": Report,
    "catalogue list": list[Signature],
    "catalogue test": list[Finding],
    "catalogue lint": shapes.LintView,
    "progress test": shapes.ProgressView,
    "demo": shapes.DemoResult,
    "simulate": shapes.SimulationView,
    "setup": shapes.SetupReport,
    "config": list[shapes.SettingView],
    "doctor": shapes.DoctorView,
    "watchdog": list[shapes.OverdueHold],
}
"""What each command prints with `--json`."""
DIALECT = "https://json-schema.org/draft/2020-12/schema"


def schema(
    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="[COMMAND]...", help="Of this command: `relight schema policy check`."),
    ] = None,
) -> None:
    """Print the JSON schema of what a command prints with --json; without one, list the commands.

    Fields are only ever added: a program should ignore those that it does not know.
    """
    if not command:
        for name in PRINTED:
            say(f"relight {name} --json")
        return
    name = " ".join(command)
    if name not in PRINTED:
        raise CommandError(
            f"there is no command {name!r} with --json; `relight schema` lists those that have it",
            ExitCode.USAGE,
        )
    typer.echo(json.dumps(schema_of(name), indent=2))


def schema_of(command: str) -> dict[str, Any]:
    """The JSON schema of what `relight COMMAND --json` prints.

    Raises:
        KeyError: it is no command with `--json`.
    """
    found = TypeAdapter(PRINTED[command]).json_schema(mode="serialization", schema_generator=_Generator)
    return {"$schema": DIALECT, **found, "title": f"relight {command} --json"}


class _Generator(GenerateJsonSchema):
    """With the docstrings of fields as their descriptions, and numbers that JSON has no word for."""

    def float_schema(self, schema: core_schema.FloatSchema) -> JsonSchemaValue:
        """A number, or the text that stands for one: see `print_json`."""
        return {"anyOf": [super().float_schema(schema), {"enum": ["NaN", "Infinity", "-Infinity"]}]}

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        """A model, with what its source says of each field."""
        found = super().model_schema(schema)
        properties = found.get("properties", {})
        for name, text in below(schema["cls"]).items():
            if name in properties:
                properties[name].setdefault("description", text.replace("\n", " "))
        return found
