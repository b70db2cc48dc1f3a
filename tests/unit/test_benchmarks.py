"""The benchmarks can be run: their script is one, their tools do what the contestants expect, the plain loop ends."""

from contextlib import aclosing

import pytest

from benchmarks.measurements import calls, language, starting, waiting, weight
from benchmarks.measurements.graphs import chain
from benchmarks.measurements.speed import LANES
from benchmarks.report import Table, aim
from benchmarks.stand.loop import Steps
from benchmarks.stand.tools import text_of
from benchmarks.stand.workload import Workload, script
from loom_cli.dev.fake_model.app import FakeModel
from loom_cli.dev.fake_model.server import running
from loom_dsl.documents.document import load_document
from loom_dsl.documents.validation import validate_model
from loom_dsl.errors import ModelRequestRefused
from loom_dsl.graph.compiler import compile_graph
from loom_dsl.simulation.script import Script

WORKLOADS = [w for lane in LANES.values() for w in lane.workloads]
WORKLOADS += [w for part in (weight, starting, calls, waiting) for w in part.WORKLOADS]


def scripted(*workloads: Workload) -> Script:
    return validate_model(load_document(script(workloads), "script", kinds=("fake-model",)), Script)


def plain_loop(url: str) -> aclosing[Steps]:
    return aclosing(Steps({"OPENAI_BASE_URL": url, "OPENAI_API_KEY": "k"}))


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.model)
def test_the_model_calls_the_tool_for_as_many_turns_as_the_workload_says_and_then_answers(workload: Workload) -> None:
    model = scripted(*WORKLOADS)
    last, answer = (model.step(n, model=workload.model) for n in (workload.turns - 1, workload.turns))
    assert [call.tool for call in last.calls] == [workload.tool] * workload.width
    assert not answer.calls
    assert answer.say


async def test_the_plain_loop_asks_once_a_turn_and_once_for_the_answer() -> None:
    workload = Workload(turns=1)
    model = FakeModel(scripted(workload))
    async with running(model) as url, plain_loop(url) as steps:
        answer = await steps.run(workload)
    assert answer == "That is all."
    assert [request.messages for request in model.requests] == [2, 4]


async def test_a_workload_that_the_model_does_not_know_fails_instead_of_ending_early() -> None:
    model = FakeModel(scripted(Workload(turns=1)))
    async with running(model) as url, plain_loop(url) as steps:
        with pytest.raises(ModelRequestRefused, match="404"):
            await steps.run(Workload(turns=2))


def test_the_chain_of_the_benchmarks_is_a_graph_of_so_many_nodes() -> None:
    plan = compile_graph(chain(20), "chain.yaml")
    assert len(plan.bodies[plan.root].nodes) == 21
    language._play(plan)


def test_texts_have_their_size_and_differ_by_their_seed() -> None:
    assert len(text_of("a", 5_000)) == 5_000
    assert text_of("a", 5_000) != text_of("b", 5_000)


@pytest.mark.parametrize(
    ("value", "least", "said"), [(1.2, False, "≤ 1.20 ✓"), (1.21, False, "≤ 1.20 ✗"), (1.19, True, "≥ 1.20 ✗")]
)
def test_a_table_says_whether_an_aim_is_met(value: float, least: bool, said: str) -> None:
    assert aim(value, 1.2, least=least) == said


def test_a_table_is_aligned_markdown() -> None:
    table = Table("Time", ["", "ms"], [["short", "1"], ["a longer one", "12.5"]], notes=["A note."])
    assert table.markdown().splitlines() == [
        "## Time",
        "",
        "|              |   ms |",
        "|--------------|------|",
        "| short        |    1 |",
        "| a longer one | 12.5 |",
        "",
        "A note.",
    ]
