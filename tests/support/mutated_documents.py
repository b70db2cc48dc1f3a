"""Documents with mistakes: those of the examples, the starting points and one with every field, changed by chance.

A change is one of a key or of a value, as a slip of the pen or of an editor makes it, and not only one that is wrong:
what is still a valid document is run.
"""

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from loom_dsl.documents.document import load_yaml
from loom_dsl.errors import LoomError
from loom_dsl.graph.compiler import check_text, compile_graph
from loom_dsl.graph.nodes import NODE_KINDS
from loom_dsl.graph.plan import Plan
from loom_dsl.simulation.draft import empty_input, empty_results
from loom_dsl.simulation.run import play_case
from loom_dsl.simulation.scenario import ScenarioCase

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("examples", "loom_cli/project/starts", "tests/fixtures")
Place = tuple[str | int, ...]

EVERY_FIELD = "tests/fixtures/every-field.yaml"
"""A graph with every kind of node, and nearly every field."""

VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 3, 1001, 10**18, -(10**18), 0.5, -0.0, 1e308, "", " ", "a", "never", "all", "any"),
    *("5m", "0s", "-5m", "5 m", "9999999d", "1e3s", "${", "${}", "${1}", "${'x'}", "${null}", "${input}", "${result}"),
    *("${state}", "${nodes}", "${item}", "${run.now}", "${1/0}", "${[1, 2]}", "${{'a': 1}}", "${secret:KEY}", "on"),
    *("no",),
    *("${env:KEY}", "$${x}", "1 > 0", "result", "nodes.a.b.c", "len(result)", "\u201cx\u201d", "é", "\u202e", "\x00"),
    *("x" * 5000, [], {}, [[]], [None], [1], ["a"], ["a", "a"], [{}], {"": 1}, {"a": {"b": {"c": []}}}, {"to": "a"}),
    *([{"to": "a"}], [{"if": "true", "to": "a"}], {"if": "1"}, {"after": "5m"}, {"file": "x.yaml"}, "loom.tt"),
    *({"from": "a", "allow": {}}, "loom.tool_node"),
)  # fmt: skip
"""What a value is changed into: what is now and then written by mistake, and what stands at an edge."""


@cache
def documents() -> dict[str, str]:
    """Every graph's document that is changed, by its file."""
    found = {}
    for folder in FOLDERS:
        for file in sorted((ROOT / folder).rglob("*.yaml")):
            text = file.read_text("utf-8")
            if "\nkind: graph" in text:
                found[str(file.relative_to(ROOT))] = text
    return found


@cache
def data_of(name: str) -> Any:
    """The content of a document."""
    return load_yaml(documents()[name], name).data


def paths_of(value: Any, path: Place = ()) -> Iterator[Place]:
    """The paths to everything in a value, but not to the value itself."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield (*path, key)
        yield from paths_of(item, (*path, key))


def mutated(data: Any, source: Random, changes: int) -> Any:
    """A copy of a document's content with so many changes."""
    data = json.loads(json.dumps(data))
    keys = sorted({part for path in paths_of(data) for part in path if isinstance(part, str)} | _FIELDS)
    for _ in range(changes):
        paths = [path for path in paths_of(data) if path not in (("loom",), ("kind",))]
        if paths:
            _change(data, source.choice(paths), source, keys)
    return data


def _change(data: Any, path: Place, source: Random, keys: list[str]) -> None:
    *outer, last = path
    around = data
    for part in outer:
        around = around[part]
    kind = source.randrange(8)
    if kind == 0:
        del around[last]
    elif kind == 1 and isinstance(around, dict):
        _renamed(around, last, source.choice([source.choice(keys), _slip(str(last), source)]))
    elif kind == 2 and isinstance(around, dict):
        around[source.choice(keys)] = source.choice([source.choice(VALUES), around[last]])
    elif kind == 3:
        around[last] = _elsewhere(data, source)
    elif kind == 4:
        around[last] = source.choice([[around[last]], {source.choice(keys): around[last]}])
    elif kind == 5 and isinstance(around[last], str):
        around[last] = _slip(around[last], source)
    else:
        around[last] = source.choice(VALUES)


def _elsewhere(data: Any, source: Random) -> Any:
    """A copy of what stands somewhere else."""
    found = data
    for part in source.choice(list(paths_of(data))):
        found = found[part]
    return json.loads(json.dumps(found))


def _renamed(around: dict[str, Any], key: Any, name: str) -> None:
    kept = {name if other == key else other: item for other, item in around.items()}
    around.clear()
    around.update(kept)


def _slip(text: str, source: Random) -> str:
    at = source.randrange(len(text) + 1)
    return source.choice(
        [text[:at] + text[at + 1 :], text[:at] + source.choice("aS _-.${}'\"é1\n") + text[at:], text.upper(), text * 2]
    )


_FIELDS = frozenset(
    {*NODE_KINDS, "next", "with", "catch", "deadline", "retry", "timeout", "each", "all", "first", "times", "to", "if"}
)


def tried(name: str, data: Any, source: Random) -> str:
    """Check a document as `loom validate` does, and run it in memory where nothing is wrong with it.

    Returns:
        How it went: ``refused``, ``completed``, ``failed``, ``waiting``, ``aborted``, or ``unplayed`` where it is said
        that it cannot be played.

    Raises:
        AssertionError: A finding has no place, or something failed inside.
        DocumentError: It is refused, and the check found nothing.
    """
    text = json.dumps(data)
    folder = (ROOT / name).parent

    def read_file(file: str) -> bytes:
        return (folder / file).read_bytes()

    findings = check_text(text, name, read_file=read_file)
    for found in findings:
        assert None not in (found.line, found.column), f"{found} has no place"
        assert found.message, f"{found.code} says nothing"
    if any(found.severity == "error" for found in findings):
        return "refused"
    return played(compile_graph(text, name, read_file=read_file), source)


def played(plan: Plan, source: Random) -> str:
    """Run a plan in memory, with what its work gives drawn by chance."""
    results = {key: {"result": source.choice([value, value, *_GIVEN])} for key, value in empty_results(plan).items()}
    case = ScenarioCase.model_validate({"name": "x", "input": empty_input(plan), "results": results})
    try:
        went = play_case(plan, case)
    except LoomError as error:
        return f"unplayed {error.code}"
    assert went.code != "internal", went.message
    return went.status


_GIVEN: tuple[Any, ...] = (None, 0, "text", [], [1, "a"], {"passed": True, "again": 1}, {"x": {"y": [1]}})


def chosen(seed: int) -> tuple[str, Any, Random]:
    """A document with one to three changes, by chance: its name, its content, and the rest of the chance."""
    source = Random(seed)
    name = EVERY_FIELD if source.random() < 0.3 else source.choice(sorted(documents()))
    return name, mutated(data_of(name), source, source.choice([1, 1, 1, 2, 3])), source
