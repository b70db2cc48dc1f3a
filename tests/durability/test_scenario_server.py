"""A scenario on a real server comes to the same as in memory: the same result, and the same work in each branch."""

from pathlib import Path

import pytest

from loom_dsl.graph.compiler import compile_graph
from loom_dsl.graph.plan import Plan
from loom_dsl.simulation.check import check_scenario
from loom_dsl.simulation.scenario import ScenarioCase, load_scenario
from tests.durability.conftest import Opener
from tests.durability.reading import failed_tasks, histories
from tests.support.performing import performed

pytestmark = pytest.mark.server
EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "code-review"
SECONDS = 2.0
"""For the deadlines that pass: long enough for all that comes before them."""
SILENT = [{"say": "nothing, for no model is asked"}]
SIGNED = (
    """
loom: 1
kind: graph
name: signed
nodes:
  sent: {tool: send, with: {x: 1}, next: ask}
  ask: {approval: {ask: "release?", policy: {signed: low}}, deadline: never, next: done}
  done: {end: "${result.by}"}
""",
    """
loom: 1
kind: scenario
name: signed
results: {sent: {result: 1}}
cases:
  - {name: somebody releases it, decisions: {sent: approve, ask: {choice: approve, by: ann, after: 1m}}}
  - {name: nobody releases it, decisions: {ask: {choice: reject, by: bob, after: 1m}}}
""",
)
REVIEW = ((EXAMPLE / "graph.yaml").read_text(), (EXAMPLE / "scenario.yaml").read_text())
KINDS = """
loom: 1
kind: graph
name: kinds
input: {text: str}
defaults: {timeout: 1h, heartbeat: 5s}
agents: {writer: {model: m}}
graphs:
  one:
    nodes:
      fetched: {activity: "m:fetch", with: {x: "${item}"}, next: posted}
      posted: {tool: send, with: {x: "${nodes.fetched}"}, catch: {offline: lost}, next: done}
      lost: {end: lost}
      done: {end: "${result}"}
  part:
    input: {name: str}
    nodes:
      go: {event: go, deadline: never, next: work}
      work: {activity: "m:part", with: {name: "${input.name}"}, next: done}
      done: {end: "${result}"}
nodes:
  begin: {next: [each, summed, part, waiting]}
  each: {map: {over: "[1, 2, 3]", do: one}, next: gather}
  summed: {llm: {model: small, prompt: "Sum up ${input.text}"}, next: written}
  written: {agent: writer, with: {task: "${nodes.summed.text}"}, catch: {any: gather}, next: gather}
  part: {graph: part, child: true, with: {name: "${input.text}"}, next: gather}
  waiting: {activity: "m:slow", deadline: {after: 1h, to: late}, next: gather}
  late: {event: {name: released, key: 7}, deadline: {after: 2h, to: gather}, next: gather}
  gather: {join: taken, next: sent}
  sent: {tool: send, with: {all: "${nodes.gather.each}"}, catch: {rejected: refused}, next: done}
  refused: {end: refused}
  done: {end: {gather: "${nodes.gather}", sent: "${result}"}}
"""
CASES = """
loom: 1
kind: scenario
name: kinds
input: {text: it}
results:
  fetched: {result: "${input.x * 2}", takes: 1m}
  posted: [ok, {error: offline, takes: 2m}, ok]
  small: {result: {text: short}, takes: 10m}
  writer: {result: {answer: long}, takes: 20m}
  part/work: {result: well}
  waiting: {result: too late, takes: 59m}
  sent: {result: {id: 4}}
events: [{name: go, after: 15m}, {name: released, key: 7, data: x, when: late, after: 30m}]
cases:
  - {name: everything in time}
  - {name: work that is cancelled, results: {waiting: {takes: 61m}}}
  - {name: an agent that fails, results: {writer: {error: model_unavailable}}}
  - {name: an agent whose conversation is too long, results: {writer: {error: context_length}}}
  - {name: a tool that is refused, decisions: {sent: {choice: reject, after: 10m}}}
  - name: a tool whose arguments are changed
    decisions: {sent: {choice: edit, edited_arguments: {all: []}, after: 10m}}
  - {name: every tool asks, decisions: {posted: [approve, reject, approve], sent: approve}}
  - {name: an abort, steering: [{op: abort, when: waiting, after: 30m}]}
  - {name: a pause, steering: [{op: pause, after: 12m}, {op: resume, after: 20m}]}
""".replace("{name: go, after: 15m}", "{name: go, when: part/go, after: 15m}")


def cases() -> list[object]:
    found = []
    for name, (graph, text) in {"review": REVIEW, "kinds": (KINDS, CASES), "signed": SIGNED}.items():
        plan, loaded = compile_graph(graph, "graph.yaml"), load_scenario(text, "scenario.yaml")
        assert check_scenario(loaded, plan) == []
        for case in loaded.scenario.whole_cases():
            found.append(pytest.param(plan, case, id=f"{name}: {case.name}"))
    return found


@pytest.mark.parametrize(("plan", "case"), cases())
async def test_a_case_comes_to_the_same_on_a_server(
    house: Opener, task_queue: str, plan: Plan, case: ScenarioCase
) -> None:
    opened = await house(SILENT)
    job, found, expected = await performed(opened, plan, case, task_queue, SECONDS)
    assert found == expected
    assert failed_tasks(await histories(opened.loom.client, job)) == []
