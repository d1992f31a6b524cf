"""`relight config`: the effective settings, and where each came from."""

import typer
from rich.markup import escape
from rich.table import Table

from relight.cli.invocation import invocation
from relight.cli.output import AsJson, complain, console, print_json
from relight.cli.shapes import SettingView
from relight.config import ConfigError, Settings, effective, find_config_file, written_value
from relight.contracts import Policy
from relight.policies import Policies
from relight.policy.file import BUILT_IN, DEFAULT


def config(ctx: typer.Context, as_json: AsJson = False) -> None:
    """Print the effective settings and where each came from: default, file, environment or flag."""
    call = invocation(ctx)
    found = [
        SettingView(key=one.key, value=one.value, origin=one.origin)
        for one in effective(call.settings, call.config_file, **call.flags)
    ]
    found += _default_policy(call.settings, {one.key for one in found})
    found.sort(key=lambda one: one.key.startswith("policies."))  # together, also those of no settings file
    if as_json:
        print_json(found)
        return
    table = Table("SETTING", "VALUE", "FROM", box=None, pad_edge=False)
    for one in found:
        table.add_row(one.key, escape("" if one.value is None else str(one.value)), escape(one.origin))
    out = console()
    out.print(table)
    file = find_config_file(call.config_file)
    out.print(f"\nsettings file: {file or 'none found'}", markup=False)
    out.print(
        "Temporal's address, namespace and keys: TEMPORAL_* variables or a profile (temporal config list)"
    )


def _default_policy(settings: Settings, known: set[str]) -> list[SettingView]:
    """The policy of jobs that ask for none: it is in force also where the settings do not define it."""
    origin, policy = "default", BUILT_IN[DEFAULT]
    try:
        file = Policies(settings).file
    except ConfigError as error:
        complain(f"{error}\nServices go on with the last one that could be used", "warning")
    else:
        policy = file.policy(DEFAULT)
        if DEFAULT in file.policies and DEFAULT not in settings.policies:
            origin = f"policy file {settings.policy_file}"
    views = []
    for name in sorted(set(Policy.model_fields) - {"name"}):
        key, value = f"policies.{DEFAULT}.{name}", getattr(policy, name)
        if key not in known and not isinstance(value, dict):
            unchanged = value == getattr(BUILT_IN[DEFAULT], name)
            told = "default" if unchanged else origin
            views.append(SettingView(key=key, value=written_value(value), origin=told))
    return views
