"""The texts under fields, members and constants: Python forgets them, so they are read from the source."""

import ast
import inspect
import textwrap
from itertools import pairwise
from types import ModuleType
from typing import Any


def below(where: type[Any] | ModuleType) -> dict[str, str]:
    """Name, and the text that follows its assignment: of a class (inherited ones too) or of a module."""
    if isinstance(where, ModuleType):
        return _texts(ast.parse(inspect.getsource(where)).body)
    found: dict[str, str] = {}
    for cls in reversed(where.__mro__):
        if cls.__module__.split(".")[0] == "relight":
            tree = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0]
            assert isinstance(tree, ast.ClassDef)
            found |= _texts(tree.body)
    return found


def about(cls: type[Any]) -> str:
    """The class's own docstring, up to its first empty line; empty where it only has an inherited one."""
    return inspect.cleandoc(cls.__doc__ or "").split("\n\n", 1)[0]


def _texts(body: list[ast.stmt]) -> dict[str, str]:
    found = {}
    for statement, text in pairwise(body):
        match text:
            case ast.Expr(value=ast.Constant(value=str() as said)):
                for name in _names(statement):
                    found[name] = inspect.cleandoc(said)
    return found


def _names(statement: ast.stmt) -> list[str]:
    match statement:
        case ast.AnnAssign(target=ast.Name(id=name)):
            return [name]
        case ast.Assign(targets=targets):
            return [target.id for target in targets if isinstance(target, ast.Name)]
    return []
