"""The packages and who imports whom, read from the code: for the pictures of the architecture."""

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TOP = (
    *("demo", "loom_cli", "loom_gateway", "loom_client", "worker", "workflows", "activities"),
    *("loom_tools", "loom_store", "loom_dsl"),
)


def rooms_of(package: str) -> dict[str, set[str]]:
    """Give what each part of a package imports of the other parts; of the whole checkout where `package` is empty.

    Args:
        package: A dotted name, such as ``loom_dsl`` or ``loom_dsl.graph``; empty: the packages themselves.

    Returns:
        The names of the parts (modules and packages in it), each with those that it imports anywhere in its text.
    """
    parts = {name: _files(name) for name in TOP} if not package else dict(_parts(package))
    prefix = f"{package}." if package else ""
    found: dict[str, set[str]] = {name: set() for name in parts}
    for name, files in parts.items():
        for file in files:
            for imported in _imports(file):
                other = imported.removeprefix(prefix).partition(".")[0] if imported.startswith(prefix) else ""
                if other in found and other != name:
                    found[name].add(other)
    return found


def direct(graph: Mapping[str, set[str]]) -> dict[str, list[str]]:
    """Leave out of a graph without circles what follows from the rest: who imports a package over another one."""
    reached: dict[str, set[str]] = {}

    def reach(name: str) -> set[str]:
        if name not in reached:
            reached[name] = set(graph[name])
            for other in graph[name]:
                reached[name] |= reach(other)
        return reached[name]

    return {
        name: sorted(other for other in others if not any(other in reach(between) for between in others - {other}))
        for name, others in graph.items()
    }


def mermaid(package: str = "") -> str:
    """Draw the parts of a package, those that import above those that are imported."""
    lines = ["flowchart TD"]
    for name, others in direct(rooms_of(package)).items():
        lines += [f"    {name}"] if not others else [f"    {name} --> {other}" for other in others]
    return "\n".join(lines) + "\n"


def _files(name: str) -> list[Path]:
    place = ROOT / name.replace(".", "/")
    return sorted(place.rglob("*.py")) if place.is_dir() else [place.with_suffix(".py")]


def _parts(package: str) -> Iterator[tuple[str, list[Path]]]:
    for place in sorted((ROOT / package.replace(".", "/")).iterdir()):
        if place.suffix == ".py" and place.stem != "__init__":
            yield place.stem, [place]
        elif (place / "__init__.py").exists():
            yield place.name, sorted(place.rglob("*.py"))


def _imports(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
