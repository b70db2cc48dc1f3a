"""The results of a map can be read when it is done, or it never starts; and no error over them loses them."""

import json
from typing import Any

import pytest

from loom_dsl.graph.compiler import check_text
from loom_dsl.machine.commands import RunActivity
from loom_dsl.machine.kinds.maps import MAX_CHUNKED
from loom_dsl.machine.tokens.ending import PIECE
from loom_dsl.simulation.in_memory import Simulation
from loom_dsl.text.canonical import digest
from tests.support.simulated import plan_of, simulate

ONE = {"work": {"set": {}, "next": "done"}, "done": {"end": "${item}"}}
WORK = {"work": {"activity": "echo", "with": {"n": "${item}"}, "next": "done"}, "done": {"end": "${result.n}"}}


def over(count: int, *, end: Any = "${nodes.each}", one: Any = ONE, **each: Any) -> Simulation:
    """A map over so many numbers, and what is made of its results; not run."""
    given = {"map": {"over": "input.items", "do": "one", **each.pop("map", {})}, "next": "done", **each}
    plan = plan_of({"each": given, "done": {"end": end}}, one=one)
    return simulate(plan, input={"items": list(range(count)), "other": list(range(3_000)), "text": "x" * 2_000})


@pytest.mark.parametrize("count", [1_000, 10_000, MAX_CHUNKED])
def test_the_results_of_a_map_of_any_size_can_be_added_up_sorted_and_rewritten(count: int) -> None:
    end = {
        "sum": "${sum(nodes.each)}",
        "most": "${max(nodes.each)}",
        "last": "${last(sorted([x * 2 for x in nodes.each if x % 2 == 0]))}",
        "different": "${len(unique(nodes.each))}",
    }
    outcome = over(count, end=end).run()
    assert outcome.failure is None
    assert outcome.result == {
        "sum": sum(range(count)), "most": count - 1, "last": (count - 2) * 2, "different": count
    }  # fmt: skip


@pytest.mark.parametrize(
    ("place", "changes"),
    [
        ("each.write.all", {"write": {"all": "${[x for x in result if x in result]}"}}),
        ("each.next.first.0.if", {"next": [{"if": "len([x for x in result if x in result]) > 1", "to": "done"},
                                           {"to": "done"}]}),
        ("each.next.each.1.if", {"next": {"each": [{"if": "len(result) > 1", "to": "done"},
                                                   {"if": "any([x in result for x in nodes.each])", "to": "done"}]}}),
        ("each.map.done_when", {"map": {"done_when": "len([[y for y in result] for x in result]) > 0", "window": 5}}),
        ("done.end.twice", {"end": {"twice": "${[[y for y in result] for x in nodes.each]}"}}),
        ("done.end", {"end": "${[x for x in nodes.each if x in input.other]}"}),
        ("done.end", {"end": "the same: ${[[i for i in range(3000)] for x in nodes.each]}"}),
    ],
)  # fmt: skip
def test_a_map_is_refused_before_its_first_item_when_its_results_could_not_be_read(
    place: str, changes: dict[str, Any]
) -> None:
    count = 1_000 if "map" in changes else 2_500
    simulation = over(count, one=WORK, **changes)
    assert not [work for work in simulation.work if work.activity == "echo"]
    failure = simulation.run().failure
    assert failure is not None
    assert failure.code == "expression_error"
    assert f"`{place}` cannot read the {count:,} results of `each`: `" in failure.message
    assert "steps, and an expression may take 2,000,000; go through the results once" in failure.message
    assert not [at for at, _ in simulation.outcome.trace if "work" in at]


@pytest.mark.parametrize(
    ("count", "changes"),
    [
        (300, {"end": "${[x for x in nodes.each if x in nodes.each]}"}),
        (2_500, {"end": "${[x for x in nodes.each if x < 3 and x in nodes.each]}"}),
        (2_500, {"end": "${[[y for y in nodes.each] for x in nodes.each if x == 7]}"}),
        (2_500, {"end": "${[x for x in input.items if x < 9 and [y for y in nodes.each]]}"}),
        (2_500, {"end": "${nodes.each if len(nodes.each) > 5 else [x in nodes.each for x in nodes.each]}"}),
    ],
)
def test_a_map_whose_results_may_be_readable_runs(count: int, changes: dict[str, Any]) -> None:
    outcome = over(count, **changes).run()
    assert outcome.failure is None


@pytest.mark.parametrize(("to", "refused"), [("small", False), ("sure", True)])
def test_only_an_expression_that_every_way_leads_to_refuses_a_map(to: str, refused: bool) -> None:
    heavy = "${[x for x in nodes.each if x in nodes.each]}"
    nodes: dict[str, Any] = {
        "each": {"map": {"over": "input", "do": "one"}, "next": "which"},
        "which": {"set": {}, "next": [{"if": "len(nodes.each) > 9", "to": "small"}, {"to": "other"}]},
        "small": {"set": {}, "next": "sure"},
        "other": {"set": {}, "next": "sure" if to == "sure" else "heavy"},
        "heavy": {"end": heavy},
        "sure": {"end": heavy if to == "sure" else 1},
    }
    nodes = nodes if to != "sure" else {key: node for key, node in nodes.items() if key != "heavy"}
    outcome = simulate(plan_of(nodes, one=ONE), input=list(range(2_000))).run()
    assert bool(outcome.failure) is refused
    assert any("[0]" in event.get("node", "") or event["t"] == "node_start" for event in outcome.events) is not refused


def test_the_checks_find_it_where_the_list_is_written_out() -> None:
    text = """
loom: 1
kind: graph
name: twice
nodes:
  each: {map: {over: range(5000), do: one}, next: done}
  done: {end: "${EXPRESSION}"}
graphs:
  one:
    nodes:
      work: {set: {}, next: done}
      done: {end: "${item}"}
"""
    for expression, codes in (
        ("sum(nodes.each)", []),
        ("[x for x in nodes.each if x in nodes.each]", ["L144"]),
        ("[x for x in nodes.each if x == 1 and x in nodes.each]", []),
    ):
        assert [found.code for found in check_text(text.replace("EXPRESSION", expression), "twice.yaml")] == codes


# -- what is kept ------------------------------------------------------------------------------------


class Kept:
    """What a store would hold after a simulation."""

    def __init__(self, simulation: Simulation) -> None:
        self.texts: dict[str, str] = {}
        while True:
            for work in simulation.work:
                if isinstance(work, RunActivity) and "keep" in work.arguments:
                    self.texts[digest(work.arguments["keep"])] = work.arguments["keep"]
            if not simulation.step():
                break
        self.outcome = simulation.outcome

    @property
    def outputs(self) -> dict[str, Any]:
        """What was kept, by the execution that gave it."""
        told = [event for event in self.outcome.events if event["t"] == "output_kept"]
        return {one["node"]: json.loads("".join(self.texts[blob] for blob in one["blobs"])) for one in told}

    @property
    def told(self) -> list[dict[str, Any]]:
        """The events without what names contents."""
        names = ("node", "items", "done")
        return [
            {key: one[key] for key in names if key in one} for one in self.outcome.events if one["t"] == "output_kept"
        ]


@pytest.mark.parametrize("count", [7, 1_000, 1_500, 10_000])
@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"end": "${sum(nodes.each) + nodes.each}"}, "node `done`"),
        ({"end": "${nodes.each[0].x}"}, "node `done`"),
        ({"next": [{"if": "result.x > 1", "to": "done"}, {"to": "done"}]}, "node `each`"),
        ({"write": {"sum": "${sum(result).x}"}}, "node `each`"),
    ],
)
def test_when_an_expression_fails_over_the_results_of_a_map_they_are_kept(
    count: int, changes: dict[str, Any], place: str
) -> None:
    kept = Kept(over(count, **changes))
    assert kept.outcome.failure is not None
    assert kept.outcome.failure.code == "expression_error"
    assert place in kept.outcome.failure.message
    assert kept.outputs == {"each#1": list(range(count))}
    assert kept.told == [{"node": "each#1", "items": count, "done": count}]


def test_the_error_names_the_node_the_slot_and_the_expression() -> None:
    failure = over(3, end={"a": {"b": "${nodes.each.x}"}}).run().failure
    assert failure is not None
    assert failure.message == "node `done`: cannot read `.x` of a list in `nodes.each.x`, in its `end`"


def test_when_an_item_fails_so_the_results_of_those_before_it_are_kept() -> None:
    one = {"work": {"activity": "echo", "with": {"n": "${item}"}, "next": "done"},
           "done": {"end": "${item if item != 33 else item.x}"}}  # fmt: skip
    kept = Kept(over(40, one=one))
    assert kept.outcome.failure is not None
    assert "node `done`, item 33 (33) of `each`: cannot read `.x` of a number" in kept.outcome.failure.message
    assert kept.outputs["each#1"] == [*range(33), *[None] * 7]
    assert {"node": "each#1", "items": 40, "done": 33} in kept.told


def test_when_an_item_of_a_long_list_fails_so_the_parts_that_were_done_are_kept() -> None:
    kept = Kept(over(1_500, one=ONE | {"done": {"end": "${item if item < 700 else item.x}"}}))
    assert kept.outputs["each#1"] == [*range(600), *[None] * 900]
    assert {"node": "each#1", "items": 1_500, "done": 600} in kept.told


def test_what_is_caught_in_the_same_graph_is_there_and_needs_not_be_kept() -> None:
    nodes = {
        "each": {"map": {"over": "input", "do": "one"}, "next": "bad"},
        "bad": {"activity": "echo", "with": {"b": "${nodes.each.x}"}, "catch": {"any": "done"}, "next": "done"},
        "done": {"end": "${nodes.each}"},
    }
    plan = plan_of(nodes, one=ONE)
    kept = Kept(simulate(plan, input=[1, 2]))
    assert kept.outcome.result == [1, 2]
    assert kept.outputs == {}


def test_a_large_output_is_kept_in_pieces_that_an_activity_can_carry() -> None:
    one = {"work": {"set": {}, "next": "done"}, "done": {"end": "${[item, input.text]}"}}
    plan = plan_of({"each": {"map": {"over": "input.items", "do": "one"}, "next": "done"},
                    "done": {"end": "${nodes.each.x}"}}, one=one)  # fmt: skip
    text = 'a "quoted" \\ text with ä and 🙂' * 40
    kept = Kept(simulate(plan, input={"items": list(range(900)), "text": text}))
    assert kept.outputs == {"each#1": [[index, text] for index in range(900)]}
    assert len(kept.texts) > 2
    assert max(map(len, kept.texts.values())) == PIECE


def test_a_result_that_is_too_large_for_a_job_does_not_lose_what_it_was_made_of() -> None:
    kept = Kept(over(1_000, end="${[[x, input.text] for x in nodes.each]}"))
    assert kept.outcome.failure is not None
    assert kept.outcome.failure.code == "result_too_large"
    assert kept.outputs == {"each#1": list(range(1_000))}
