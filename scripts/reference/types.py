"""Types in words, as somebody meets them who writes TOML or YAML, or reads JSON."""

import types
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, SecretStr

_PLAIN: dict[Any, str] = {
    str: "text",
    int: "integer",
    float: "number",
    bool: "true, false",
    Path: "path",
    SecretStr: "text (secret)",
    timedelta: "duration",
    datetime: "time",
    type(None): "null",
    Any: "anything",
}


def words(annotation: Any, link: Callable[[type[BaseModel]], str] = lambda model: model.__name__) -> str:
    """A type in words; enumerations by their values, models by what `link` gives."""
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return words(args[0], link)
    if origin is Literal:
        return ", ".join(f"`{value}`" for value in args)
    if origin in (Union, types.UnionType):
        return " or ".join(words(arg, link) for arg in args)
    if origin in (tuple, list):
        return f"list of {words(args[0], link)}"
    if origin in (dict, Mapping):
        return f"table from {words(args[0], link)} to {words(args[1], link)}"
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return ", ".join(f"`{member.value}`" for member in annotation)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return link(annotation)
    return _PLAIN[annotation]


def models_in(annotation: Any) -> list[type[BaseModel]]:
    """The models that a type mentions, in order."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for arg in get_args(annotation) for model in models_in(arg)]
