"""`loom show --tree` and `--profile`: the recursion as a picture, and what each level of it took."""

import io
import json
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from loom_cli.commands.show.recursion import profile_lines
from loom_cli.render.reports import draw_tree
from loom_cli.render.terminal import Terminal
from loom_dsl.agent.turn import turn_id
from tests.cli.conftest import House

GRAPH = """
loom: 1
kind: graph
name: nightly
nodes:
  ask: {agent: helper, with: {task: look around}, next: done}
  done: {end: "${nodes.ask.answer}"}
agents:
  helper: {model: "calm:any", tools: [glob, read_file]}
"""


@pytest.fixture(scope="module")
def calm(house: House) -> str:
    """A job of two turns, the first with two calls."""
    agent, workdir, job = house.agent("calm"), house.workdir(), f"calm-{uuid.uuid4().hex[:4]}"
    said = house.loom("run", agent, "look around", "--workdir", workdir, "--job", job)
    assert said.code == 0, said
    return job


def told(house: House, *arguments: str) -> dict[str, Any]:
    said = house.loom("show", *arguments, "--json")
    assert said.code == 0, said
    found: dict[str, Any] = json.loads(said.out)
    return found


@pytest.mark.server
def test_programs_get_the_tree_and_the_profile(house: House, calm: str) -> None:
    found = told(house, calm, "--tree", "--profile")
    tree, profile = found["tree"], found["profile"]
    assert (tree["job"], tree["agent"], tree["status"], tree["children"]) == (calm, "scribe", "completed", [])
    assert [(turn["turn"], turn["depth"], turn["turn_id"]) for turn in tree["turns"]] == [
        (1, 0, turn_id(calm, 0)),
        (2, 1, turn_id(calm, 1)),
    ]
    calls = {call["tool"]: (call["status"], call["seconds"] is not None) for call in tree["turns"][0]["tools"]}
    assert calls == {"glob": ("success", True), "read_file": ("error", True)}
    assert [turn["tools"] for turn in profile] == [["glob", "read_file"], []]
    assert sum(turn["usage"]["prompt_tokens"] for turn in profile) == found["usage"]["prompt_tokens"]
    assert all(0 <= turn["model_seconds"] <= turn["seconds"] + 1 for turn in profile)
    assert "conversation" not in found
    assert [turn["turn_id"] for turn in profile] == [turn["turn_id"] for turn in tree["turns"]]


@pytest.mark.server
def test_people_see_the_recursion_as_a_trunk_with_calls_as_branches(house: House, calm: str) -> None:
    brief = house.loom("show", calm).out
    whole = house.loom("show", calm, "--tree", "--profile").out
    assert whole.startswith(brief)
    lines = whole[len(brief) :].splitlines()
    at = lines.index("  tree")
    assert lines[0] == "  profile"
    assert [line.split()[0] for line in lines[1:at]] == ["TURN", "1", "2", "all"]
    drawn = lines[at + 1 :]
    assert drawn[0].startswith(f"    {calm}  scribe  completed  2 turns  ")
    assert drawn[1].startswith("    ● turn 1  ")
    assert sorted(line.split()[2] for line in drawn[2:4]) == ["glob", "read_file"]
    assert all(line.startswith("    │ ") for line in drawn[2:4])
    assert drawn[4].startswith("    ● turn 2  depth 1  ")
    assert len(drawn) == 5


@pytest.mark.server
def test_no_line_of_it_is_wider_than_the_terminal(house: House, calm: str) -> None:
    for columns in (80, 200):
        with house.at_terminal("show", calm, "--tree", "--profile", columns=columns, NO_COLOR="1") as terminal:
            terminal.expect("turn 2  depth 1")
            assert terminal.end() == 0
            lines = terminal.screen.splitlines()
        assert max(len(line.rstrip()) for line in lines) < columns


@pytest.mark.server
def test_the_tree_of_a_graphs_job_has_its_agents_and_no_profile(house: House, fresh: Callable[[str], str]) -> None:
    job = fresh("tree")
    path = house.folder / f"{job}.yaml"
    path.write_text(GRAPH)
    said = house.loom("run", str(path), "--job", job, "--workdir", house.workdir())
    assert said.code == 0, said
    tree = told(house, job, "--tree")["tree"]
    assert tree["turns"] == []
    (child,) = tree["children"]
    assert (child["job"], child["agent"], len(child["turns"])) == (f"{job}.ask.1", "helper", 2)
    drawn = house.loom("show", job, "--tree").out
    assert f"    ┆ {job}.ask.1  helper  completed  2 turns  " in drawn
    assert "    ┆ ● turn 2  depth 1  " in drawn
    refused = house.loom("show", job, "--profile")
    assert (refused.code, refused.out) == (2, "")
    assert f"job {job} is a graph's and has neither turns nor entries" in refused.err


def turn(number: int, **more: Any) -> dict[str, Any]:
    usage = {"prompt_tokens": 1200, "completion_tokens": 30, "cached_tokens": 0}
    spans = {"seconds": 2.5, "model_seconds": 1.5, "tool_seconds": 0.0, "waited_seconds": 0.0}
    return {
        "turn": number,
        "depth": number - 1,
        "usage": usage,
        "tools": [],
        "children": [],
        "compressions": [],
        **spans,
        **more,
    }


def job(name: str, *turns: dict[str, Any], children: tuple[dict[str, Any], ...] = ()) -> dict[str, Any]:
    times = {"created_at": "2026-01-01T00:00:00+00:00", "ended_at": "2026-01-01T00:00:05+00:00"}
    return {"job": name, "agent": "a", "status": "completed", **times, "turns": list(turns), "children": list(children)}


def drawn(tree: dict[str, Any], columns: int = 80, *, fancy: bool = True) -> str:
    stream = io.StringIO()
    draw_tree(Terminal(stream, columns=lambda: columns, fancy=fancy), tree)
    return stream.getvalue()


CALLS = [
    {"tool": "glob", "status": "success", "code": "", "seconds": 0.012},
    {"tool": "rm\x1b[2J", "status": "error", "code": "denied", "seconds": None},
    {"tool": "ls", "status": "warning", "code": "empty_response", "seconds": 1.0},
]
TREE = job(
    "j",
    turn(1, tools=CALLS, tool_seconds=1.012, waited_seconds=3.0, children=[job("j.0.x.1", turn(1))]),
    turn(2, compressions=[{"messages_before": 9, "messages_after": 4, "tokens_before": 4645, "tokens_after": 1289}]),
)
AT_80 = """\
j  a  completed  2 turns  5.0 s
● turn 1  2.5 s · model 1.5 s · tools 1.0 s · waited 3.0 s · 1,200 in, 30 out
│ ✓ glob  12 ms
│ ✗ rm\\x1b[2J  denied
│ ? ls  empty_response  1.0 s
│ ┆ j.0.x.1  a  completed  1 turn  5.0 s
│ ┆ ● turn 1  2.5 s · model 1.5 s · 1,200 in, 30 out
● turn 2  depth 1  2.5 s · model 1.5 s · 1,200 in, 30 out
│ · conversation compressed: 9 -> 4 messages, 4,645 -> 1,289 tokens
"""


def test_a_tree_is_drawn_with_its_calls_and_child_jobs() -> None:
    assert drawn(TREE) == AT_80


def test_a_place_that_shows_only_ascii_gets_ascii() -> None:
    plain = drawn(TREE, fancy=False)
    assert plain.isascii()
    assert "| : * turn 1  2.5 s, model 1.5 s" in plain


def test_jobs_far_below_stay_within_the_width() -> None:
    tree = job("deepest", turn(1))
    for number in range(60):
        tree = job(f"j{number}", children=(tree,))
    assert max(len(line) for line in drawn(tree).splitlines()) < 80


def test_a_tree_that_is_cut_says_so() -> None:
    assert drawn({**job("j"), "cut": True}).splitlines()[1:] == [
        "more jobs are below it: those that began first are shown"
    ]
    assert "more jobs" not in drawn({**job("j"), "cut": False})


def test_a_profile_of_several_turns_ends_with_all_of_them() -> None:
    lines = profile_lines([turn(1, tools=["glob", "grep"], tool_seconds=0.5), turn(2, model_seconds=None)])
    assert lines == [
        ("1", "0", "2.5 s", "1.5 s", "500 ms", "0 ms", "1,200", "30", "2"),
        ("2", "1", "2.5 s", "-", "0 ms", "0 ms", "1,200", "30", "0"),
        ("all", "", "5.0 s", "1.5 s", "500 ms", "0 ms", "2,400", "60", "2"),
    ]
    assert len(profile_lines([turn(1)])) == 1
