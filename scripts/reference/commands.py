"""`docs/reference/cli.md`: every command with its arguments and options.

Read from the functions of the commands and what they say to typer, and not from its help texts: these look
otherwise from one version of typer to the next.
"""

import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import typer
from typer.models import ArgumentInfo, OptionInfo

from relight.cli.main import app
from scripts.reference.markdown import code, head, prose, table

INTRO = """\
`relight COMMAND --help` says the same. The options of `relight` itself stand before the command and hold for
all commands. What `--json` prints is in [json.md](json.md), exit codes are in [exit-codes.md](exit-codes.md).
"""


@dataclass(frozen=True)
class Parameter:
    """One argument or option."""

    name: str
    """As it is typed: `--json`, `-y, --yes`, `JOB`."""
    value: str
    """What follows an option, or may stand for an argument; empty: a switch."""
    help: str
    default: str
    """Empty: none."""
    argument: bool
    required: bool


def page() -> str:
    """The text of the page."""
    root = typer.main.get_command(app)
    parts = [head("Commands", INTRO, "the commands in relight/cli/"), *_command("relight", root, 2)]
    return "\n".join(parts)


def leaves() -> Iterator[tuple[str, Any]]:
    """Every command and group, by its words: `relight`, `relight nodes`, `relight nodes clear`."""
    yield from _walk("relight", typer.main.get_command(app))


def _walk(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    yield name, command
    if hasattr(command, "list_commands"):
        for below in command.list_commands(None):
            yield from _walk(f"{name} {below}", command.get_command(None, below))


def _command(name: str, command: Any, level: int) -> Iterator[str]:
    parameters = list(parameters_of(command.callback)) if command.callback is not None else []
    yield f"{'#' * level} {code(name)}\n"
    yield f"{prose(command.help or '')}\n"
    yield f"```text\n{_usage(name, command, parameters)}\n```\n"
    if parameters:
        rows = [
            (" ".join(part for part in (code(p.name), code(p.value)) if part), code(p.default), prose(p.help))
            for p in parameters
        ]
        yield table(("argument or option", "default", "meaning"), rows)
    if hasattr(command, "list_commands"):
        for below in command.list_commands(None):
            yield from _command(f"{name} {below}", command.get_command(None, below), min(level + 1, 4))


def _usage(name: str, command: Any, parameters: list[Parameter]) -> str:
    parts = [name]
    parts += ["[OPTIONS]"] if any(not p.argument for p in parameters) else []
    parts += [p.name if p.required else f"[{p.name}]" for p in parameters if p.argument]
    parts += ["COMMAND ..."] if hasattr(command, "list_commands") else []
    return " ".join(parts)


def parameters_of(function: Any) -> Iterator[Parameter]:
    """What a command's function takes from the command line."""
    hints = get_type_hints(inspect.unwrap(function), include_extras=True)
    for name, parameter in inspect.signature(function).parameters.items():
        hint = hints[name]
        if hint is typer.Context:
            continue
        info: Any = typer.Option()
        if get_origin(hint) is Annotated:
            hint, info = get_args(hint)[0], get_args(hint)[1]
        elif isinstance(parameter.default, OptionInfo | ArgumentInfo):
            raise TypeError(f"{name} of {function}: write Annotated[...]")
        if info.hidden:
            continue
        required = parameter.default is inspect.Parameter.empty
        default = None if required else parameter.default
        kind, several = _kind(hint)
        names = _names(info)
        if isinstance(info, ArgumentInfo):
            typed = (info.metavar or name.upper()) + ("..." if several else "")
            value = _values(kind)
        else:
            typed = ", ".join(names or (_option(name, kind, default),))
            value = "" if kind is bool else info.metavar or _values(kind) or "TEXT"
        yield Parameter(
            typed,
            value,
            help=info.help or "",
            default=_default(info, default, kind),
            argument=isinstance(info, ArgumentInfo),
            required=required,
        )


def _names(info: Any) -> tuple[str, ...]:
    """`--json`, as the command declares it: in Annotated[...], typer has the first one as the default."""
    first = (info.default,) if isinstance(info.default, str) else ()
    return (*first, *(info.param_decls or ()))


def _option(name: str, kind: Any, default: object) -> str:
    plain = name.replace("_", "-")
    return f"--{plain}/--no-{plain}" if kind is bool and default is not None else f"--{plain}"


def _kind(hint: Any) -> tuple[Any, bool]:
    """The type of one value, and whether there may be several."""
    if get_origin(hint) in (Union, UnionType):
        hint = next(arg for arg in get_args(hint) if arg is not type(None))
    if get_origin(hint) is list:
        return get_args(hint)[0], True
    return hint, False


def _values(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return "|".join(map(str, get_args(kind)))
    if isinstance(kind, type) and issubclass(kind, Enum):
        return "|".join(str(member.value) for member in kind)
    named = {int: "NUMBER", float: "NUMBER", Path: "PATH", str: "", datetime: "TIME"}
    return named.get(kind, "")


def _default(info: Any, default: object, kind: Any) -> str:
    if isinstance(info.show_default, str):
        return info.show_default
    if default is None or default is False or default == "" or not info.show_default:
        return ""
    if isinstance(default, Enum):
        return str(default.value)
    if kind is bool:
        return "yes"
    return str(default)
