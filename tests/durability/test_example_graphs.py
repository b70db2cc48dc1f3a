"""The examples come to the same on a real server as in memory: a day of silence, a majority, a source that is late."""

from pathlib import Path

import pytest

from loom_dsl.graph.compiler import compile_graph
from loom_dsl.simulation.scenario import load_scenario
from tests.durability.conftest import Opener
from tests.support.performing import performed

pytestmark = pytest.mark.server
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
SECONDS = 1.0
CASES = [
    ("purchase", "two of three agree, and the third is not waited for"),
    ("purchase", "two against it, and the money is given back"),
    ("purchase", "a day without a majority goes to the director"),
    ("nightly-report", "one is late, by two rounds of ten minutes"),
]


@pytest.mark.parametrize(("example", "name"), CASES)
async def test_a_case_of_an_example_comes_to_the_same_on_a_server(
    house: Opener, task_queue: str, example: str, name: str
) -> None:
    graph, scenario = (_read(example, file) for file in ("graph.yaml", "scenario.yaml"))
    plan, loaded = compile_graph(graph, "graph.yaml"), load_scenario(scenario, "scenario.yaml")
    (case,) = (case for case in loaded.scenario.whole_cases() if case.name == name)
    opened = await house([{"say": "nothing, for no model is asked"}])
    _, found, expected = await performed(opened, plan, case, task_queue, SECONDS)
    assert found == expected


def _read(example: str, file: str) -> str:
    return (EXAMPLES / example / file).read_text(encoding="utf-8")
