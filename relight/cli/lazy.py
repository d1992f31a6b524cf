"""Commands whose modules are imported only when one is used: they take as long as all others together."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import typer

from relight.cli.invocation import SpeakingGroup


@dataclass(frozen=True)
class Lazy:
    """Where a command is: a typer app (a group), or a function (a command)."""

    module: str
    attribute: str
    panel: str

    def load(self, name: str) -> Any:
        """Imports it, as typer's command object."""
        found = getattr(import_module(self.module), self.attribute)
        parent = typer.Typer(add_completion=False)
        if isinstance(found, typer.Typer):
            parent.add_typer(found, name=name, rich_help_panel=self.panel)
            group: Any = typer.main.get_command(parent)
            return group.commands[name]
        parent.command(name, rich_help_panel=self.panel)(found)
        return typer.main.get_command(parent)


LAZY: Mapping[str, Lazy] = {
    "logs": Lazy("relight.cli.logs", "logs", "Jobs"),
    "why": Lazy("relight.cli.why", "why", "Jobs"),
    "pause": Lazy("relight.cli.pause", "pause", "Jobs"),
    "unpause": Lazy("relight.cli.pause", "unpause", "Jobs"),
    "simulate": Lazy("relight.cli.simulate", "simulate", "Try it"),
    "guard": Lazy("relight.cli.guard", "app", "Cluster"),
    "rollback": Lazy("relight.cli.rollback", "rollback", "Cluster"),
    "policy": Lazy("relight.cli.policy", "app", "Cluster"),
    "nodes": Lazy("relight.cli.nodes", "app", "Cluster"),
    "audit": Lazy("relight.cli.audit", "app", "Evidence"),
    "quality": Lazy("relight.cli.quality", "quality", "Evidence"),
    "report": Lazy("relight.cli.report", "report", "Evidence"),
    "doctor": Lazy("relight.cli.doctor", "doctor", "Services"),
    "watchdog": Lazy("relight.cli.watchdog", "watchdog", "Services"),
    "diagnose": Lazy("relight.cli.diagnose", "diagnose", "Evidence"),
    "checkpoints": Lazy("relight.cli.checkpoints", "checkpoints", "Evidence"),
    "catalogue": Lazy("relight.cli.catalogue", "app", "Evidence"),
    "schema": Lazy("relight.cli.schema", "schema", "Services"),
    "progress": Lazy("relight.cli.progress", "app", "Evidence"),
}


EPILOG = "Exit codes: relight --help"
"""Below the help of each command: its exit codes mean the same everywhere."""


class LazyGroup(SpeakingGroup):
    """Knows the lazy commands beside those that were added to it."""

    def list_commands(self, ctx: Any) -> list[str]:
        """All names, in the order of the help."""
        return [*super().list_commands(ctx), *LAZY]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of this name; None where there is none."""
        if cmd_name in LAZY and cmd_name not in self.commands:
            self.add_command(LAZY[cmd_name].load(cmd_name), cmd_name)
        found = super().get_command(ctx, cmd_name)
        if found is not None and not found.epilog:
            found.epilog = EPILOG
        return found
