"""What import-linter cannot say: it reads neither single modules at the top nor the names that are imported."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = (
    "loom_dsl", "loom_store", "loom_tools", "workflows", "activities", "loom_client", "loom_gateway", "loom_cli",
    "demo",
)  # fmt: skip
CALLING_SIDE = {"loom_cli", "loom_client", "loom_gateway", "demo"}


def imported(text: str) -> Iterator[tuple[int, str, str]]:
    """Give line, module and name of each import, also of those in functions and for types alone."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom):
            yield from ((node.lineno, "." * node.level + (node.module or ""), alias.name) for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name, "") for alias in node.names)


def private(text: str) -> list[str]:
    """Give the imports of what another module keeps to itself, except from the interpreter's own libraries."""
    return [
        f"line {line}: {module} {name}"
        for line, module, name in imported(text)
        if module.partition(".")[0] in {*PACKAGES, "worker", ""}
        and any(part.startswith("_") and not part.startswith("__") for part in (*module.split("."), name))
    ]


def of_calling_side(text: str) -> set[str]:
    return {module.partition(".")[0] for _, module, _ in imported(text)} & CALLING_SIDE


@pytest.mark.parametrize("package", [*PACKAGES, "worker.py", "docs", "benchmarks", "tests"])
def test_no_module_takes_what_another_keeps_to_itself(package: str) -> None:
    place = ROOT / package
    files = [place] if place.suffix else sorted(place.rglob("*.py"))
    assert files
    found = {str(file.relative_to(ROOT)): taken for file in files if (taken := private(file.read_text()))}
    assert found == {}


def test_the_worker_imports_nothing_of_the_calling_side() -> None:
    assert of_calling_side((ROOT / "worker.py").read_text()) == set()


@pytest.mark.parametrize(
    ("text", "taken"),
    [
        ("from loom_dsl.errors import _secret", 1),
        ("from loom_dsl import _errors", 1),
        ("import loom_dsl._errors", 1),
        ("def f():\n    from loom_store.store import Store, _open", 1),
        ("from . import _other", 1),
        ("from loom_dsl.errors import LoomError", 0),
        ("import loom_cli.__main__", 0),
        ("from os import _exit", 0),
    ],
)  # fmt: skip
def test_a_private_name_is_found(text: str, taken: int) -> None:
    assert len(private(text)) == taken


def test_an_import_of_the_calling_side_is_found_inside_a_function() -> None:
    assert of_calling_side("def f():\n    from loom_client.settings import Settings\n    import loom_store") == {
        "loom_client"
    }
