"""`loom schedule`: made, listed, shown, triggered, paused and removed; and what is wrong in one line."""

import json
import uuid
from pathlib import Path

import pytest

from tests.cli.conftest import House, Said
from tests.support.waiting import until

pytestmark = pytest.mark.server
GRAPH = """
loom: 1
kind: graph
name: greeting
input: {who: str}
nodes:
  done: {end: "Good morning, ${input.who}."}
"""


@pytest.fixture(scope="module")
def graph(house: House) -> str:
    path: Path = house.folder / "greeting.yaml"
    path.write_text(GRAPH)
    return str(path)


def paused_in_list(house: House, name: str) -> list[bool]:
    """What the list says of a schedule, as often as it is there."""
    listed = [json.loads(line) for line in house.loom("schedule", "list", "--json").out.splitlines()]
    return [each["paused"] for each in listed if each["name"] == name]


def test_a_schedule_is_made_triggered_and_removed(house: House, graph: str) -> None:
    name = f"s-{uuid.uuid4().hex[:8]}"
    times = ("--cron", "30 6 1 1 *", "--timezone", "Europe/Berlin")
    made = house.loom("schedule", "create", name, graph, "--input", "who=Ada", *times, "--workdir", house.workdir())
    assert (made.code, made.err) == (0, ""), made
    assert made.out.startswith(f"schedule {name}: greeting, 30 6 1 1 * Europe/Berlin; next 20")
    assert house.loom("schedule", "trigger", name).code == 0
    (job,) = until(lambda: json.loads(house.loom("schedule", "show", name, "--json").out)["jobs"])

    def written_down() -> Said:
        result = house.loom("result", job)
        assert result.code != 2, result
        return result

    assert until(written_down).out == "Good morning, Ada.\n"
    assert job in house.loom("jobs").out
    assert '"who": "Ada"' in house.loom("show", job, "--json").out.replace('\\"', '"')
    shown = house.loom("schedule", "show", name).out
    assert f"           {job}" in shown
    assert "1 started, 0 skipped, 0 missed" in shown
    assert house.loom("schedule", "pause", name, "--note", "holidays").out == f"schedule {name} is paused\n"
    assert "holidays" in house.loom("schedule", "show", name).out
    until(lambda: paused_in_list(house, name) == [True])  # the server's lists come a moment later
    assert house.loom("schedule", "resume", name, "--json").out == f'{{"schedule": "{name}", "done": "resume"}}\n'
    assert house.loom("schedule", "delete", name).code == 0
    gone = house.loom("schedule", "trigger", name)
    assert (gone.code, gone.out) == (2, "")
    assert gone.err == f"error: there is no schedule '{name}'; `loom schedule list` has those that there are\n"


def test_an_agent_is_scheduled_with_its_task(house: House) -> None:
    name = f"s-{uuid.uuid4().hex[:8]}"
    made = house.loom("schedule", "create", name, house.agent("calm"), "look", "--every", "1h", "--paused", "--json")
    assert made.code == 0, made
    found = json.loads(made.out)
    assert (found["what"], found["times"], found["paused"], found["order"]["task"]) == (
        "scribe",
        "every 1h",
        True,
        "look",
    )
    assert house.loom("schedule", "delete", name).code == 0
    silent = house.loom("schedule", "create", name, house.agent("calm"), "--every", "1h")
    assert (silent.code, silent.err) == (2, "error: the task is empty; say what the agent is to do\n")
    missing = house.loom("schedule", "create", name, "none.yaml", "--every", "1h")
    assert (missing.code, "there is no file none.yaml" in missing.err) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--input", "who=Ada"), "error: say when: either a cron"),
        (("--input", "who=Ada", "--cron", "soon"), "error: cron 'soon': write five fields"),
        (("--input", "who=Ada", "--every", "1h", "--overlap", "maybe"), "error: overlap 'maybe': write one of"),
        (("look", "--every", "1h"), "a graph takes no task"),
    ],
)
def test_a_mistake_is_told_in_one_line(house: House, graph: str, arguments: tuple[str, ...], said: str) -> None:
    ended = house.loom("schedule", "create", "wrong", graph, *arguments)
    assert (ended.code, ended.out) == (2, "")
    assert said in ended.err
    assert ended.err.count("\n") == 1
