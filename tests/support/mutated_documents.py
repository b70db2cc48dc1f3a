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
from loom_dsl.errors import DocumentError, LoomError
from loom_dsl.graph.compiler import check_text, compile_graph
from loom_dsl.graph.nodes import NODE_KINDS
from loom_dsl.graph.plan import Plan
from loom_dsl.simulation.draft import empty_input, empty_results
from loom_dsl.simulation.run import play_case
from loom_dsl.simulation.scenario import ScenarioCase

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("examples", "loom_cli/project/starts", "tests/fixtures")
Path_ = tuple[str | int, ...]

EVERY_FIELD = """
loom: 1
kind: graph
name: every.field
version: "1"
doc: Every field of the language at least once.
input: {n: {type: int, default: 3, doc: how many}, who: {type: str, default: ada, optional: true}, rows: {type: list, default: [1, 2]}}
state:
  seen: {type: list, reduce: append, doc: all}
  sum: {type: int, reduce: add}
  least: {type: int, reduce: min}
  all: {type: dict, reduce: merge}
  now: {type: any, default: null}
defaults: {timeout: 20s, heartbeat: 5s, retry: {attempts: 2, initial: 1s, backoff: 2, longest: 10s}}
permissions: {default: ask, allow: [glob], deny: [bash], ask: [grep]}
approvals: {expires: 1h, on_expiry: deny}
on_abort: gone
start: begin
agents:
  reader: {model: fake, instructions: Read., tools: [], limits: {max_iterations: 3}}
nodes:
  begin: {doc: b, phase: one, state: preparing, emit: {began: {n: "${input.n}"}}, next: {each: [{if: input.n > 1, to: work}, {to: work}]}}
  work:
    activity: steps:work
    with: {n: "${input.n}", text: "for ${input.who}: ${len(input.rows)}"}
    carrier: local
    timeout: 10s
    heartbeat: 3s
    retry: {attempts: 3, initial: 1s, backoff: 2.0, longest: 9s}
    max_outage: 1h
    events: leave
    max_visits: 3
    exhausted: stop
    mutex: room
    only_while: input.n > 0
    deadline: {after: 5m, to: stop}
    catch: {timeout: stop, any: stop}
    compensate: {activity: steps:undo, with: {of: "${result}"}, timeout: 5s, retry: {attempts: 2}}
    write: {seen: "${result}"}
    next: [{if: "has(result, 'again')", to: work}, {to: fan}]
  fan: {next: [ask, wait, rest]}
  ask:
    approval: {request: {summary: "Go for ${input.who}?"}, choices: [approve, reject], late: accept, policy: {expires: 2h, on_expiry: deny}}
    deadline: {after: 1h, to: met}
    next: met
  wait: {event: {name: paid, key: "${input.n}", buffer: true}, deadline: {after: 30m, to: met}, next: met}
  rest: {timer: {after: 5m}, next: until}
  until: {timer: {until: "${run.now + 60}"}, next: met}
  met: {join: {mode: taken, rest: ignore}, next: race}
  race: {race: [first, second]}
  first: {event: {name: go, buffer: false}, deadline: never, next: each}
  second: {timer: 1m, next: each}
  each:
    map:
      over: input.rows
      do: part
      with: {x: "${item}"}
      first: 0
      window: 4
      barrier: {at: p, limit: 2, exclusive: item == 1, key: item}
      need: 1
      done_when: len(result) > 5
      rest: ignore
      complete: enough
    next: open
  open: {map: {over: "[1]", do: part, with: {x: 1}, open: {add: more, close: enough}}, deadline: {after: 1h, to: some}, next: some}
  some: {map: {over: input.rows, do: part, with: {x: "${index}"}, detach: true}, next: round}
  round: {loop: {do: turn, with: {last: "${item}"}, until: result >= 2, max: 4}, next: while}
  while: {loop: {do: turn, with: {last: 1}, while: index < 2, max: 4}, next: once}
  once: {graph: part, with: {x: 1}, child: false, max_depth: 3, next: job}
  job: {graph: part, with: {x: 1}, child: true, next: reads}
  reads: {agent: reader, with: {task: "Read ${input.who}", more: 1}, next: says}
  says: {llm: {model: fake, prompt: "Say ${nodes.reads.answer}", system: kind, parameters: {temperature: 0.1}}, max_outage: never, next: call}
  call: {tool: glob, with: {pattern: "*.py"}, catch: {any: note}, next: note}
  note: {set: {now: "${get(nodes, ['says', 'text'], '')}", sum: 1, least: 2, all: {a: 1}}, next: {times: 2, to: thread}}
  thread: {next: both}
  both: {join: {threads: 2}, next: split}
  split: {next: [one, two]}
  one: {next: need}
  two: {next: need}
  need: {join: {need: 1, rest: cancel}, next: off}
  off: {cancel: [some], next: done}
  stop: {fail: {code: stopped, message: "it was ${input.n}", details: {n: 1}}}
  gone: {end: {was: aborted}, terminate: true}
  done: {end: {seen: "${state.seen}", sum: "${state.sum}", least: "${state.least}", all: "${state.all}", now: "${state.now}"}}
graphs:
  part: {input: {x: any}, nodes: {p: {set: {seen: "${input.x}"}, next: e}, e: {end: "${input.x}"}}}
  turn: {input: {last: any}, state: {k: {type: int, default: 0}}, nodes: {t: {write: {k: 1}, next: e}, e: {end: "${state.k + index}"}}}
"""
"""A graph with every kind of node, and nearly every field."""

VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 3, 1001, 10**18, -(10**18), 0.5, -0.0, 1e308, "", " ", "a", "never", "all", "any", "5m",
    "0s", "-5m", "5 m", "9999999d", "1e3s", "${", "${}", "${1}", "${'x'}", "${null}", "${input}", "${result}", "${state}",
    "${nodes}", "${item}", "${run.now}", "${1/0}", "${[1, 2]}", "${{'a': 1}}", "${secret:KEY}", "${env:KEY}", "$${x}",
    "1 > 0", "result", "nodes.a.b.c", "len(result)", "“x”", "é", "\u202e", "\x00", "x" * 5000, [], {}, [[]], [None], [1],
    ["a"], ["a", "a"], [{}], {"": 1}, {"a": {"b": {"c": []}}}, {"to": "a"}, [{"to": "a"}], [{"if": "true", "to": "a"}],
    {"if": "1"}, {"after": "5m"}, {"file": "x.yaml"}, {"from": "a", "allow": {}}, "loom.tt", "loom.tool_node", "on", "no",
)  # fmt: skip
"""What a value is changed into: what is now and then written by mistake, and what stands at an edge."""


def documents() -> dict[str, str]:
    """Every document that is changed, by its name: of graphs and of agents."""
    found = {"every field": EVERY_FIELD}
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


def paths_of(value: Any, path: Path_ = ()) -> Iterator[Path_]:
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


def _change(data: Any, path: Path_, source: Random, keys: list[str]) -> None:
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
        How it went: ``refused``, ``completed``, ``failed``, ``waiting``, ``aborted``, or ``unplayed`` where the scenario
        cannot be played, which is said.

    Raises:
        AssertionError: A finding has no place, what is found and what is refused differ, or something failed inside.
    """
    text = json.dumps(data)
    folder = (ROOT / name).parent

    def read_file(file: str) -> bytes:
        return (folder / file).read_bytes()

    findings = check_text(text, name, read_file=read_file)
    for found in findings:
        assert found.line is not None and found.column is not None, f"{found} has no place"
        assert found.message, f"{found.code} says nothing"
    wrong = any(found.severity == "error" for found in findings)
    try:
        plan = compile_graph(text, name, read_file=read_file)
    except DocumentError:
        assert wrong, "it is refused, and the check finds nothing"
        return "refused"
    assert not wrong, "it is compiled, and the check finds something"
    return played(plan, source)


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
