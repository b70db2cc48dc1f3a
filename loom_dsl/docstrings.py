"""What fields mean: the docstrings below the attributes of a class, read from its source."""

import ast
import inspect
import textwrap


def field_docstrings(cls: type) -> dict[str, str]:
    """Give the docstring below each attribute of a class and of Loom's classes that it inherits from.

    Each is one line, with single backticks. Empty where the source is not there, as in a program without its files.
    """
    found: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        if base.__module__.startswith("loom_"):
            found |= _own(base)
    return found


def plain(text: str) -> str:
    """Write a docstring in one line, with single backticks."""
    return " ".join(text.replace("``", "`").split())


def _own(cls: type) -> dict[str, str]:
    try:
        source = inspect.getsource(cls)
    except (OSError, TypeError):
        return {}
    body = ast.parse(textwrap.dedent(source)).body[0]
    assert isinstance(body, ast.ClassDef)
    found: dict[str, str] = {}
    for field, text in zip(body.body, body.body[1:], strict=False):
        match field, text:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(meaning))):
                found[name] = plain(meaning)
    return found
