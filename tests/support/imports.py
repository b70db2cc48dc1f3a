"""Which modules of the product import each other in a circle: ``python -m tests.support.imports`` lists them.

Every import counts, also one inside a function or under TYPE_CHECKING: who reads one module of a circle needs them all.
"""

import ast
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = (
    "loom_dsl", "loom_store", "loom_tools", "workflows", "activities", "loom_client", "loom_gateway", "loom_cli",
    "demo",
)  # fmt: skip
MODULES = ("worker",)


def modules(root: Path = ROOT) -> dict[str, Path]:
    """The product's modules by their names."""
    files = [root / f"{name}.py" for name in MODULES]
    files += [file for name in PACKAGES for file in sorted((root / name).rglob("*.py"))]
    return {_name(file.relative_to(root)): file for file in files}


def _name(file: Path) -> str:
    parts = file.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(name: str, source: str, known: Mapping[str, object], *, package: bool = False) -> set[str]:
    """The known modules that a module imports, wherever it does.

    Args:
        name: The module.
        source: Its text.
        known: All modules that count.
        package: Whether it is a package's `__init__`.
    """
    found = set[str]()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = name.split(".")[: None if package and node.level == 1 else (1 if package else 0) - node.level]
            base = ".".join([*(above if node.level else ()), *filter(None, [node.module])])
            found |= {full if (full := f"{base}.{alias.name}") in known else base for alias in node.names}
    return {module for module in found if module in known and module != name}


def import_graph(root: Path = ROOT) -> dict[str, set[str]]:
    """Each module of the product, and those that it imports."""
    files = modules(root)
    return {
        name: imports(name, file.read_text(), files, package=file.name == "__init__.py") for name, file in files.items()
    }


def circles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """The sets of modules of which each imports, over others, each: Tarjan's strongly connected components."""
    number, low, stack, found = dict[str, int](), dict[str, int](), list[str](), list[list[str]]()

    def visit(name: str) -> Iterator[str]:
        number[name] = low[name] = len(number)
        stack.append(name)
        for other in sorted(graph[name]):
            if other not in number:
                yield other
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], number[other])
        if low[name] == number[name]:
            circle = stack[stack.index(name) :]
            del stack[stack.index(name) :]
            if len(circle) > 1:
                found.append(sorted(circle))

    for start in sorted(graph):
        path = [visit(start)] if start not in number else []
        while path:  # not recursive: a chain of imports may be longer than Python's stack
            deeper = next(path[-1], None)
            if deeper is None:
                path.pop()
            else:
                path.append(visit(deeper))
    return sorted(found)


if __name__ == "__main__":
    told = circles(import_graph())
    print("\n".join(" ".join(circle) for circle in told) or "no module imports in a circle")
    sys.exit(bool(told))
