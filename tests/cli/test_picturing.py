"""graph and diff: in every format, at a terminal, of a job under way."""

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest

from loom_client.start.submission import plan_of
from loom_dsl.authoring.dot import dot
from loom_dsl.authoring.mermaid import mermaid_plan
from tests.cli.conftest import LOOM, House
from tests.support.waiting import PATIENCE

Loom = Callable[..., tuple[int, str, str]]
ROOT = Path(__file__).resolve().parents[2]
GRAPH = """\
loom: 1
kind: graph
name: g
nodes:
  one: {tool: calculator, with: {expression: "1"}, next: [{if: "result > 1", to: three}, {to: two}]}
  two: {end: {}}
  three: {fail: too much}
"""


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "old.yaml").write_text(GRAPH)
    (tmp_path / "new.yaml").write_text(GRAPH.replace("result > 1", "result > 2").replace("too much", "enough"))
    (tmp_path / "bad.yaml").write_text(GRAPH.replace("to: two", "to: tow"))
    return tmp_path


@pytest.fixture
def loom(loom_at_hand: list[str]) -> Loom:
    """Runs a command in a folder; in a fresh interpreter where there are variables that this reads."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("LOOM_", "PYTHONIO", "LC_"))}
    own = {"PYTHONPATH": str(ROOT), "COLUMNS": "80"}

    def call(folder: Path, *arguments: str, **env: str) -> tuple[int, str, str]:
        done = subprocess.run(
            [*(LOOM if env else loom_at_hand), *arguments],
            cwd=folder,
            env={**kept, **own, **env},
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        return done.returncode, done.stdout, done.stderr

    return call


def test_each_format_can_be_asked_for_and_mermaid_goes_into_pipes(files: Path, loom: Loom) -> None:
    plan = plan_of(files / "old.yaml")
    assert loom(files, "graph", "old.yaml") == (0, mermaid_plan(plan), "")
    assert loom(files, "graph", "old.yaml", "--format", "mermaid", "--whole") == (0, mermaid_plan(plan, whole=True), "")
    assert loom(files, "graph", "old.yaml", "--format", "dot") == (0, dot(plan), "")
    assert loom(files, "graph", "old.yaml", "--format", "text", PYTHONIOENCODING="utf-8") == (
        0,
        "g\n● start\n│\n■ one  tool: calculator\n├─ if result > 1 → ✗ three  fail: too much\n└─ else → ◉ two\n",
        "",
    )


def test_svg_needs_nothing_but_packages_and_has_every_node_and_way(files: Path, loom: Loom) -> None:
    code, out, err = loom(files, "graph", "old.yaml", "--format", "svg", PATH="/nowhere")
    assert (code, err) == (0, "")
    picture = ElementTree.fromstring(out)
    groups = picture.iterfind(".//{http://www.w3.org/2000/svg}g")
    drawn = [(group.get("class"), group.findtext("{http://www.w3.org/2000/svg}title")) for group in groups]
    assert {title for what, title in drawn if what == "node"} == {"g0/>/start", "g0/one", "g0/two", "g0/three"}
    assert len([title for what, title in drawn if what == "edge"]) == 3


def test_a_place_without_unicode_gets_ascii(files: Path, loom: Loom) -> None:
    code, out, _ = loom(files, "graph", "old.yaml", "--format", "text", PYTHONIOENCODING="ascii")
    assert (code, out) == (
        0,
        "g\n@ start\n|\n* one  tool: calculator\n+- if result > 1 -> x three  fail: too much\n`- else -> o two\n",
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("graph",), "give the file of a graph, or --job and a job's id"),
        (("graph", "old.yaml", "--job", "j"), "give the file of a graph, or --job and a job's id"),
        (("graph", "old.yaml", "--format", "png"), "--format png: write one of text, mermaid, dot, svg"),
        (("graph", "none.yaml"), "there is no file and no graph 'none.yaml'"),
        (("diff", "old.yaml", "none.yaml"), "there is no file and no graph 'none.yaml'"),
        (("diff", "bad.yaml", "old.yaml"), "L102"),
    ],
)
def test_a_mistake_is_told_in_a_line(files: Path, loom: Loom, arguments: tuple[str, ...], said: str) -> None:
    code, out, err = loom(files, *arguments)
    assert (code, out) == (2, "")
    assert said in err
    assert "Traceback" not in err


def test_diff_tells_what_changed_and_says_so_in_its_status(files: Path, loom: Loom) -> None:
    assert loom(files, "diff", "old.yaml", "old.yaml") == (0, "", "")
    assert loom(files, "diff", "old.yaml", "new.yaml", PYTHONIOENCODING="utf-8") == (
        1,
        "~ graph g\n"
        "  ~ node three\n"
        '      fail.message: "too much" → "enough"\n'
        "  - edge one → three: result > 1\n"
        "  + edge one → three: result > 2\n",
        "",
    )
    code, out, _ = loom(files, "diff", "old.yaml", "new.yaml", "--json")
    assert code == 1
    assert json.loads(out)["graphs"][0]["nodes"] == [
        {
            "node": "three",
            "change": "changed",
            "was": "",
            "fields": [{"field": "fail.message", "old": "too much", "new": "enough"}],
        }
    ]
    code, out, _ = loom(files, "diff", "old.yaml", "old.yaml", "--json")
    assert (code, json.loads(out)) == (0, {"fields": [], "graphs": []})


def test_agents_differ_by_their_fields(files: Path, loom: Loom) -> None:
    for name, model in (("a", "m"), ("b", "n")):
        (files / f"{name}.yaml").write_text(f"loom: 1\nkind: agent\nname: x\nmodel: {model}\n")
    assert loom(files, "diff", "a.yaml", "b.yaml", PYTHONIOENCODING="utf-8") == (1, 'agent.model: "m" → "n"\n', "")


@pytest.mark.server
def test_a_job_that_waits_shows_where_its_token_is(house: House) -> None:
    job = house.started("writer")
    house.pending(job)
    said = house.loom("graph", "--job", job, "--format", "text", PYTHONIOENCODING="utf-8", COLUMNS="120")
    assert (said.code, said.err) == (0, "")
    assert "◇ guard  [1 visit]" in said.out
    assert "≡ calls  for each: loom.tool_call  [1 visit, 1 here]" in said.out
    assert "◆ ask  approval  [1 visit, 1 waiting]" in said.out
    coloured = house.loom("graph", "--job", job)
    assert "    class g0_calls,g1_ask here\n" in coloured.out
    with house.at_terminal("graph", "--job", job) as terminal:
        terminal.expect("1 waiting")
        assert terminal.end() == 0
    assert house.loom("abort", job).code == 0


@pytest.mark.server
def test_a_job_that_is_not_there_is_told(house: House) -> None:
    said = house.loom("graph", "--job", "nobody")
    assert (said.code, said.out) == (2, "")
    assert "there is no job 'nobody'" in said.err
