"""No module of the product imports, over others, itself: each can be read with only what is below it."""

import pytest

from tests.support.imports import circles, import_graph, imports, modules


def test_no_module_imports_in_a_circle() -> None:
    assert circles(import_graph()) == []


def test_every_module_of_the_language_and_its_machine_is_looked_at() -> None:
    assert {"loom_dsl.machine.kinds.table", "loom_dsl.errors", "loom_cli", "worker", "workflows.graph"} <= set(
        modules()
    )


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import a.b", {"a.b"}),
        ("from a import b, thing", {"a.b", "a"}),
        ("def f():\n    from a.b import thing", {"a.b"}),
        ("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import a", {"a"}),
        ("from . import d", {"a.d"}),
        ("from .d import thing", {"a.d"}),
        ("import json", set()),
        ("import a.c", set()),  # itself
    ],
)
def test_an_import_counts_wherever_it_stands(source: str, found: set[str]) -> None:
    assert imports("a.c", source, dict.fromkeys(["a", "a.b", "a.c", "a.d"])) == found


@pytest.mark.parametrize(("source", "found"), [("from . import b", {"a.b"}), ("from .b import thing", {"a.b"})])
def test_a_package_imports_from_itself(source: str, found: set[str]) -> None:
    assert imports("a", source, dict.fromkeys(["a", "a.b"]), package=True) == found


@pytest.mark.parametrize(
    ("graph", "expected"),
    [
        ({"a": {"b"}, "b": {"c"}, "c": set()}, []),
        ({"a": {"b"}, "b": {"a"}, "c": {"a"}}, [["a", "b"]]),
        ({"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": {"e"}, "e": {"d"}}, [["a", "b", "c"], ["d", "e"]]),
        ({"a": {"b", "c"}, "b": {"d"}, "c": {"d"}, "d": set()}, []),
        ({f"m{i}": {f"m{(i + 1) % 5000}"} for i in range(5000)}, [sorted(f"m{i}" for i in range(5000))]),
    ],
)
def test_circles_are_found(graph: dict[str, set[str]], expected: list[list[str]]) -> None:
    assert circles(graph) == expected
