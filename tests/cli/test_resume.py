"""`loom fork` of a graph's job that failed: another job goes on there, and does nothing of it again."""

import json
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cli.conftest import House, Said, served

pytestmark = pytest.mark.server
STEPS = '''
"""Steps that write down that they were called, and need a file that bears their name."""

from loom_dsl.tools.context import ToolContext


def step(name: str, context: ToolContext) -> str:
    """Do something that happens once."""
    with (context.working_dir / "called").open("a") as called:
        called.write(name + "\\n")
    return name


def needy(name: str, context: ToolContext) -> str:
    """Do the same where what it needs is there."""
    step(name, context)
    if not (context.working_dir / "mended").exists():
        raise RuntimeError(f"{name} needs the file mended")
    return name
'''
HEAD = "loom: 1\nkind: graph\n"
MAP = f"""{HEAD}
name: many
state: {{seen: {{type: list, reduce: append}}}}
nodes:
  first: {{activity: "resume_steps:step", with: {{name: first}}, write: {{seen: "${{result}}"}}, next: items}}
  items: {{map: {{over: "range(10)", do: item, window: 1}}, next: done}}
  done: {{end: {{seen: "${{state.seen}}", items: "${{result}}"}}}}
graphs:
  item:
    nodes:
      begun:
        activity: "resume_steps:step"
        with: {{name: "begun ${{item}}"}}
        next: [{{if: item == 6, to: needs}}, {{to: done}}]
      needs: {{activity: "resume_steps:needy", with: {{name: "needs ${{item}}"}}, retry: {{attempts: 1}}, next: done}}
      done: {{end: "${{result}}"}}
"""
DEEP = f"""{HEAD}
name: deep
nodes:
  rounds: {{loop: {{do: round, until: "result == 2", max: 5}}, next: done}}
  done: {{end: "${{result}}"}}
graphs:
  round:
    nodes:
      before: {{activity: "resume_steps:step", with: {{name: "before ${{index}}"}}, next: inside}}
      inside: {{graph: inner, with: {{number: "${{index}}"}}, next: done}}
      done: {{end: "${{nodes.inside}}"}}
  inner:
    input: {{number: int}}
    nodes:
      one: {{activity: "resume_steps:step", with: {{name: "one ${{input.number}}"}}, next: two}}
      two:
        activity: "resume_steps:needy"
        with: {{name: "two ${{input.number}}"}}
        retry: {{attempts: 1}}
        next: done
      done: {{end: "${{input.number}}"}}
"""
THROWN = f"""{HEAD}
name: thrown
input: {{item: str}}
nodes:
  looked: {{activity: "resume_steps:step", with: {{name: "${{input.item}}"}}, next: thrown_away}}
  thrown_away: {{fail: {{code: useless, message: nobody wants it}}}}
"""
MENDED = THROWN.replace("{fail: {code: useless, message: nobody wants it}}", "{end: kept}")
UNDONE = f"""{HEAD}
name: undone
nodes:
  booked:
    activity: "resume_steps:step"
    with: {{name: booked}}
    compensate: {{activity: "resume_steps:step", with: {{name: unbooked}}}}
    next: paid
  paid: {{activity: "resume_steps:needy", with: {{name: paid}}, retry: {{attempts: 1}}, next: done}}
  done: {{end: 1}}
"""


@pytest.fixture(scope="module")
def steps(house: House, tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """A house whose worker has the steps."""
    folder, queue = tmp_path_factory.mktemp("steps"), f"steps-{uuid.uuid4().hex[:8]}"
    (folder / "resume_steps.py").write_text(STEPS)
    for name, text in (("many", MAP), ("deep", DEEP), ("thrown", THROWN), ("mended", MENDED), ("undone", UNDONE)):
        (folder / f"{name}.yaml").write_text(text)
    made = replace(house, folder=folder, queue=queue)
    with served(["worker", "--tools", "resume_steps"], made.environment(), folder, "worker ready", made.ready):
        yield made


def failed(steps: House, graph: str, job: str, *arguments: str) -> tuple[Path, Said]:
    """Run a graph until it has failed; where it ran, and what was said."""
    place = Path(steps.workdir())
    said = steps.loom("run", f"{graph}.yaml", "--job", job, "--workdir", str(place), *arguments)
    assert said.code == 1, said
    return place, said


def called(place: Path) -> list[str]:
    return (place / "called").read_text().splitlines()


def test_only_the_items_that_were_not_finished_run_again_and_every_command_says_how(
    steps: House, fresh: Callable[[str], str]
) -> None:
    job, branch = fresh("many-1"), fresh("many-2")
    place, said = failed(steps, "many", job)
    how = f"`loom fork {job}` goes on at `items#1[6]/needs#1`; what was finished is not done again"
    assert how in said.err
    assert how in steps.loom("wait", job).err
    assert how in steps.loom("watch", job).err
    assert how in " ".join(steps.loom("show", job).out.split())
    assert json.loads(steps.loom("show", job, "--json").out)["go_on"] == how
    assert "failed_at" not in steps.loom("jobs", "--json").out
    before = called(place)
    (place / "mended").touch()
    said = steps.loom("fork", job, "--job", branch)
    assert said.code == 0, said
    assert f"job {branch} goes on where {job} failed, at `items#1[6]/needs#1`; what was finished is not" in said.err
    wanted = Counter(["first", *(f"begun {index}" for index in range(10)), "needs 6", "needs 6"])
    assert (before, Counter(called(place))) == (["first", *(f"begun {i}" for i in range(7)), "needs 6"], wanted)
    result = json.loads(steps.loom("result", branch).out)
    assert result["seen"] == ["first"]
    assert result["items"] == [*(f"begun {index}" for index in range(6)), "needs 6", "begun 7", "begun 8", "begun 9"]
    shown = json.loads(steps.loom("show", branch, "--json").out)
    assert (shown["forked_from"], shown["go_on"]) == ({"job": job, "turn": None}, "")
    assert f"from {job} where it failed" in " ".join(steps.loom("show", branch).out.split())
    again = steps.loom("fork", branch)
    assert (again.code, "it has completed; start a new job" in again.err) == (2, True)


def test_a_round_of_a_loop_with_a_graph_inside_goes_on_and_fails_and_goes_on_again(
    steps: House, fresh: Callable[[str], str]
) -> None:
    job, second, third = fresh("deep-1"), fresh("deep-2"), fresh("deep-3")
    place, _ = failed(steps, "deep", job)
    said = steps.loom("fork", job, "--job", second)
    assert said.code == 1, said
    assert f"`loom fork {second}` goes on at `rounds#1[0]/inside#1[0]/two#1`" in said.err
    (place / "mended").touch()
    said = steps.loom("fork", second, "--job", third, "--detach", "--json")
    assert json.loads(said.out) == {"job": third}
    assert steps.loom("wait", third).out == "2\n"
    assert Counter(called(place)) == Counter(
        [f"{what} {index}" for what in ("before", "one", "two") for index in range(3)] + ["two 0"] * 2
    )
    assert json.loads(steps.loom("show", third, "--json").out)["forked_from"] == {"job": second, "turn": None}
    said = steps.loom("fork", job, "--job", third)
    assert (said.code, f"job '{third}' has ended" in said.err) == (2, True)


def test_a_graph_that_ended_itself_goes_on_only_when_changed(steps: House, fresh: Callable[[str], str]) -> None:
    job, second = fresh("thrown-1"), fresh("thrown-2")
    place, said = failed(steps, "thrown", job, "--input", "item=lamp")
    assert "loom fork" not in said.err
    said = steps.loom("fork", job)
    assert (said.code, "the graph ended itself at `thrown_away`; go on with a changed graph" in said.err) == (2, True)
    said = steps.loom("fork", job, "--graph", "many.yaml")
    assert (said.code, "the new plan has no node `thrown_away`; name its new home" in said.err) == (2, True)
    said = steps.loom("fork", job, "--graph", "mended.yaml", "--job", second, "--no-input")
    assert said.code == 0, said
    assert steps.loom("result", second).out == "kept\n"
    assert called(place) == ["lamp"]


def test_what_was_taken_back_does_not_go_on(steps: House, fresh: Callable[[str], str]) -> None:
    job = fresh("undone-1")
    place, said = failed(steps, "undone", job)
    assert called(place) == ["booked", "paid", "unbooked"]
    assert "loom fork" not in said.err
    said = steps.loom("fork", job)
    assert (said.code, "was taken back when it failed; start a new job" in said.err) == (2, True)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (["do this"], "a task is for an agent's job"),
        (["--model", "m"], "--model is for an agent's job"),
        (["--turn", "1"], "runs the graph undone, which has no turns; `loom fork"),
        (["--map", "a=b"], "--map gives nodes of a changed graph"),
        (["--graph", "nothing.yaml"], "the graph's file nothing.yaml cannot be read"),
    ],
)
def test_what_is_wrong_is_told_in_a_line(
    steps: House, fresh: Callable[[str], str], given: list[str], told: str
) -> None:
    job = fresh("wrong")
    said = steps.loom("run", "undone.yaml", "--job", job, "--workdir", steps.workdir())
    assert said.code in (1, 2)
    said = steps.loom("fork", job, *given)
    assert (said.code, told in said.err) == (2, True), said


def test_a_failed_agent_says_after_which_turn_to_go_on(house: House, fresh: Callable[[str], str]) -> None:
    agent = house.agent("steered", tools=["glob"], limits={"max_iterations": 2})
    job, second = fresh("limited-1"), fresh("limited-2")
    said = house.loom("run", agent, "go", "--job", job, "--workdir", house.workdir(), "--no-input")
    assert said.code == 1, said
    how = f"`loom fork {job} --turn 2` goes on from its last finished turn, with a limit of its own (max_iterations)"
    assert how in said.err
    assert how in house.loom("wait", job).err
    assert how in " ".join(house.loom("show", job).out.split())
    said = house.loom("fork", job)
    assert (said.code, "is an agent's, and has finished 2 turns; say after which" in said.err) == (2, True)
    said = house.loom("fork", job, "--turn", "1", "--graph", "x.yaml")
    assert (said.code, "are for a graph's job" in said.err) == (2, True)
    said = house.loom("fork", job, "--turn", "2", "--job", second, "--no-input")
    assert f"`loom fork {second} --turn 4`" in said.err
