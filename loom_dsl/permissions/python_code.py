"""What is looked for in Python code before a model may run it: mistakes of syntax, and ways to other programs.

This is advice that comes early, not a wall: Python has countless ways to the same functions, and what keeps the code
from doing harm is the confinement that it runs in.
"""

import ast
import sys
import warnings
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Literal

MODULES = frozenset({"os", "posix", "subprocess", "sys", "pty", "ctypes", "_ctypes", "_posixsubprocess", "importlib"})
CALLS = frozenset({"eval", "exec", "compile", "__import__", "open", "breakpoint", "input"})
ATTRIBUTES = frozenset({"__builtins__", "__globals__", "__subclasses__", "__import__", "__loader__"})
_INSTEAD = {
    "open": "use the tools read_file and write_file, or `pathlib.Path`",
    "input": "nothing can be typed in; write the value into the code",
    "subprocess": "use the tool execute_bash",
    "os": "use `pathlib`, `shutil` or `tempfile`, or the tool execute_bash",
}


@dataclass(frozen=True, slots=True)
class CodeFinding:
    """Something in the code that it is not run with.

    Attributes:
        kind: A mistake of syntax, or something that is not allowed.
        line: Where, from 1.
        name: The name that is not allowed; empty for a mistake.
        message: What it is, and what to do instead.
    """

    kind: Literal["syntax", "refused"]
    line: int
    name: str
    message: str


def check_python(code: str, allowed: Collection[str] = ()) -> list[CodeFinding]:
    """Look through code without running it.

    Args:
        code: The code of a module.
        allowed: Names of `MODULES`, `CALLS` and `ATTRIBUTES` that are no findings.

    Returns:
        What was found, by line; empty when there is nothing.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # such as an escape sequence that means nothing
            tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = getattr(error, "lineno", None) or 1
        text = getattr(error, "msg", None) or str(error) or "it is nested too deeply"
        return [CodeFinding("syntax", line, "", f"line {line}: {text}")]
    found = [finding for node in ast.walk(tree) for finding in _of(node) if finding.name not in allowed]
    return sorted(dict.fromkeys(found), key=lambda finding: (finding.line, finding.name))


def is_harmless(code: str) -> bool:
    """Say whether code surely only computes: it imports little, and uses nothing but what it makes itself.

    No file, no program and no module behind another one is in its reach. Whatever else is not.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    nodes = list(ast.walk(tree))
    made = {node.id for node in nodes if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)}
    made |= {node.arg for node in nodes if isinstance(node, ast.arg)}
    made |= {node.name for node in nodes if isinstance(node, (ast.FunctionDef, ast.ExceptHandler)) and node.name}
    made |= {alias.asname or alias.name for node in nodes if isinstance(node, _IMPORTS) for alias in node.names}
    return all(_only_computes(node, made) for node in nodes)


_IMPORTS = (ast.Import, ast.ImportFrom)
_COMPUTING = frozenset(
    {"math", "cmath", "statistics", "decimal", "fractions", "datetime", "json", "re", "collections", "itertools"}
    | {"functools", "string", "textwrap", "random", "heapq", "bisect"}
)
_PLAIN_TEXT = """
abs all any bin bool bytearray bytes chr complex dict divmod enumerate filter float format frozenset hash hex int
isinstance issubclass iter len list map max min next oct ord pow print range repr reversed round set slice sorted str
sum tuple zip Exception ValueError KeyError TypeError IndexError ZeroDivisionError ArithmeticError StopIteration
"""
_PLAIN = frozenset(_PLAIN_TEXT.split())
_NO_MODULES = frozenset({"copy", "datetime", "random", "time"})
"""Attributes of what may be imported that are called like a module and are none."""


def _only_computes(node: ast.AST, made: Collection[str]) -> bool:
    match node:
        case ast.Import(names=names):
            return all(alias.name in _COMPUTING for alias in names)
        case ast.ImportFrom(module=module, level=level, names=names):
            return level == 0 and module in _COMPUTING and all(_is_plain_attribute(alias.name) for alias in names)
        case ast.Name(id=name, ctx=ast.Load()):
            return name in _PLAIN or (name in made and _is_plain_name(name))
        case ast.Attribute(attr=name):
            return _is_plain_attribute(name)
        case ast.AsyncFunctionDef() | ast.ClassDef() | ast.Global() | ast.Nonlocal() | ast.Match():
            return False
        case _:
            return True


def _is_plain_attribute(name: str) -> bool:
    """Whether it is no way to a module behind the one that was imported, such as `json.codecs`."""
    return _is_plain_name(name) and (name in _NO_MODULES or name not in sys.stdlib_module_names)


def _is_plain_name(name: str) -> bool:
    return not name.startswith("_") and name != "*" and name not in MODULES | CALLS - {"compile"}


def _of(node: ast.AST) -> Iterator[CodeFinding]:
    match node:
        case ast.Import(names=names):
            for alias in names:
                yield from _module(alias.name, node.lineno)
        case ast.ImportFrom(module=str(module), level=0, names=names):
            yield from _module(module, node.lineno)
            for alias in names:  # `from os import path` is found above; this is `from builtins import open`
                if alias.name in CALLS and module == "builtins":
                    yield _refused(alias.name, node.lineno, f"importing {alias.name!r}")
        case ast.Name(id=name, ctx=ast.Load()) if name in CALLS:
            yield _refused(name, node.lineno, f"{name!r}")
        case ast.Name(id=name) if name in ATTRIBUTES:
            yield _refused(name, node.lineno, f"{name!r}")
        case ast.Attribute(attr=name) if name in ATTRIBUTES:
            yield _refused(name, node.lineno, f"the attribute {name!r}")
        case ast.Attribute(value=ast.Name(id="builtins"), attr=name) if name in CALLS:
            yield _refused(name, node.lineno, f"'builtins.{name}'")
        case _:
            return


def _module(name: str, line: int) -> Iterator[CodeFinding]:
    top = name.partition(".")[0]
    if top in MODULES:
        yield _refused(top, line, f"importing {name!r}")


def _refused(name: str, line: int, what: str) -> CodeFinding:
    instead = _INSTEAD.get(name)
    return CodeFinding(
        "refused", line, name, f"line {line}: {what} is not allowed" + (f"; {instead}" if instead else "")
    )
