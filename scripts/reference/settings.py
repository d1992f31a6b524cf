"""`docs/reference/settings.md`: every setting of `relight.config`."""

from collections.abc import Iterator
from datetime import timedelta
from enum import Enum
from pathlib import Path
from typing import Any

from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

from relight.config import ENV_PREFIX, Settings
from relight.docstrings import about, below
from relight.durations import format_duration
from scripts.reference.markdown import code, head, prose, table
from scripts.reference.types import words

INTRO = """\
The file is the first of: `--config`, `RELIGHT_CONFIG`, `./relight.toml`, `relight/relight.toml` in the user's
configuration directory, `/etc/relight/relight.toml`. An environment variable beats the file, a flag beats
both. The variable is `RELIGHT_` and the setting in capitals, with `__` for the dot:
`RELIGHT_SENSOR__LOG_POLL=1s`. Durations are numbers of seconds or texts such as `250ms`, `30s`, `5m`,
`1h30m`, `2d`. `relight config` shows every effective value and where it came from.

Temporal's address, namespace, TLS and keys are not here: they follow
[Temporal's own conventions](https://docs.temporal.io/develop/environment-configuration)
(`TEMPORAL_ADDRESS`, profiles, ...). Prometheus' bearer token is in `RELIGHT_PROMETHEUS_TOKEN`.
"""
_POLICIES = "table from name to [policy](policy-file.md#policy)"


def page() -> str:
    """The text of the page."""
    plain = [(name, field) for name, field in Settings.model_fields.items() if _section(field) is None]
    parts = [head("Settings", INTRO, "relight/config.py"), "## At the top\n", _table(Settings, plain, "")]
    for name, field in Settings.model_fields.items():
        if (section := _section(field)) is None:
            continue
        parts += [f"## `[{name}]`\n", f"{prose(about(section))}\n"]
        parts.append(_table(section, list(section.model_fields.items()), f"{name}."))
    return "\n".join(parts)


def _section(field: FieldInfo) -> type[BaseModel] | None:
    kind = field.annotation
    return kind if isinstance(kind, type) and issubclass(kind, BaseModel) else None


def _table(cls: type[Any], fields: list[tuple[str, FieldInfo]], prefix: str) -> str:
    texts = below(cls)
    return table(("setting", "value", "default", "meaning"), _rows(fields, texts, prefix))


def _rows(
    fields: list[tuple[str, FieldInfo]], texts: dict[str, str], prefix: str
) -> Iterator[tuple[str, str, str, str]]:
    for name, field in fields:
        value = _POLICIES if name == "policies" else words(field.annotation)
        default = "per user" if name == "state_dir" else code(default_text(field))
        yield f"`{prefix}{name}`", value, default, prose(texts.get(name, ""))


def default_text(field: FieldInfo) -> str:
    """A field's default as one would write it; empty where it is empty or there is none."""
    value = field.get_default(call_default_factory=True, validated_data={})
    match value:
        case timedelta():
            return format_duration(value)
        case Enum():
            return str(value.value)
        case bool():
            return str(value).lower()
        case None | SecretStr() | "" | () | {}:
            return ""
        case tuple():
            return "[" + ", ".join(str(v.value if isinstance(v, Enum) else v) for v in value) + "]"
        case float():
            return f"{value:g}"
        case int() | str() | Path():
            return str(value)
    return ""


assert ENV_PREFIX == "RELIGHT_"
