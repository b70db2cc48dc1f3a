"""`loom simulate`: what it prints, its exit status, and what is wrong with what it is given; and the pytest fixture."""

import json
import shutil
from pathlib import Path

import pytest

from loom_cli.dev.server import DevServer
from loom_cli.project.scenarios_on_server import differences
from tests.cli.test_project import Command, loom, written

__all__ = ["loom"]

pytest_plugins = ["pytester"]
ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "code-review"
GRAPH = """
loom: 1
kind: graph
name: g
nodes:
  work: {activity: "m:f", timeout: 2h, heartbeat: 1m, next: [{if: result.ok, to: ask}, {to: bad}]}
  ask: {approval: "Go on?", deadline: {after: 1d, to: bad}, next: done}
  bad: {fail: it is bad}
  done: {end: 7}
"""
HEAD = "loom: 1\nkind: scenario\nname: s\n"
OK = f"{HEAD}graph: graph.yaml\nresults: {{work: {{result: {{ok: true}}, takes: 1h}}}}\ndecisions: {{ask: approve}}\n"
CASES = f"{OK}cases:\n  - {{name: well, expect: {{result: 7}}}}\n  - {{name: wrong, expect: {{visits: {{ask: 2}}}}}}\n"


@pytest.fixture
def graph(tmp_path: Path) -> str:
    return written(tmp_path, graph=GRAPH)[0]


def test_a_scenario_names_its_graph_or_goes_with_one(loom: Command, tmp_path: Path, graph: str) -> None:
    written(tmp_path, ok=OK)
    alone = loom("simulate", "ok.yaml")
    assert (alone.code, alone.err) == (0, "")
    assert alone.out.splitlines()[0] == "ok      s  (completed)  1h"
    assert loom("simulate", graph, "--mock", "ok.yaml") == alone
    (tmp_path / "deeper").mkdir()
    shutil.move(tmp_path / "ok.yaml", tmp_path / "deeper" / "ok.yaml")
    shutil.copy(tmp_path / graph, tmp_path / "deeper")
    assert loom("simulate", "deeper/ok.yaml") == alone


def test_what_is_doubtful_about_the_graph_is_told_beside_the_output(loom: Command, tmp_path: Path, graph: str) -> None:
    written(tmp_path, doubtful=GRAPH.replace("heartbeat: 1m, ", ""), ok=OK)
    for more in (("--mock", "ok.yaml"), ("--mock", "ok.yaml", "--json"), ()):
        plain, said = loom("simulate", graph, *more), loom("simulate", "doubtful.yaml", *more)
        assert said.err.startswith("warning: doubtful.yaml:6:36: L141 `work` may run for 7200 s"), said
        assert (said.err.count("\n"), said.code, plain.err) == (1, plain.code, "")
        assert said.out.replace("doubtful.yaml", graph) == plain.out


def test_the_example_uses_every_node_and_every_edge(loom: Command, tmp_path: Path) -> None:
    said = loom("simulate", str(EXAMPLE / "scenario.yaml"), "--json")
    assert said.code == 0, said
    told = json.loads(said.out)
    assert told["ok"]
    assert (told["coverage"]["nodes"]["unused"], told["coverage"]["edges"]["unused"], told["unused"]) == ([], [], [])


def test_a_case_that_goes_another_way_is_told_and_is_status_1(loom: Command, tmp_path: Path, graph: str) -> None:
    written(tmp_path, cases=CASES)
    said = loom("simulate", "cases.yaml")
    assert said.code == 1
    lines = said.out.splitlines()
    assert "ok      well  (completed)  1h" in lines
    assert lines[lines.index("FAILED  wrong  (completed)  1h") + 1] == "        visits of `ask`: expected 2, got 1"
    assert lines[-1] == "2 cases: 1 went another way"
    assert "        +1h  work#1 done" in lines
    assert "coverage: 3 of 4 nodes, 2 of 4 edges" in lines
    assert "  never entered: bad" in lines
    quiet = loom("simulate", "cases.yaml", "--quiet").out.splitlines()
    assert quiet.count("        +1h  work#1 done") == 1  # only of the case that differs


def test_json_has_everything(loom: Command, tmp_path: Path, graph: str) -> None:
    written(tmp_path, cases=CASES)
    said = loom("simulate", "cases.yaml", "--json")
    assert said.code == 1
    told = json.loads(said.out)
    well, wrong = told["cases"]
    assert (well["ok"], well["result"], well["seconds"], well["visits"]["ask"]) == (True, 7, 3600.0, 1)
    assert well["trace"] == {"main": ["work#1"]}
    assert well["log"] == [
        {"seconds": 3600.0, "at": "work#1", "what": "done"},
        {"seconds": 3600.0, "at": "ask#1", "what": "approve by scenario"},
    ]
    assert wrong["differences"] == ["visits of `ask`: expected 2, got 1"]
    assert told["coverage"]["edges"]["unused"] == ["work -> bad", "ask -> bad"]


def test_without_a_scenario_it_says_what_one_must_give(loom: Command, tmp_path: Path, graph: str) -> None:
    said = loom("simulate", graph)
    assert said.code == 1  # with nothing the graph fails
    assert "it failed (failed: it is bad)" in said.out
    start = said.out[said.out.index("loom: 1") : said.out.index("Then: loom simulate")]
    assert "  work: {result: {ok: false}}" in start
    (tmp_path / "start.yaml").write_text(start.replace("ok: false", "ok: true"))
    assert loom("simulate", "start.yaml").code == 0
    assert json.loads(loom("simulate", graph, "--json").out)["start"] == start


def test_without_a_scenario_it_says_what_it_assumes_and_where_a_graph_is_stuck(loom: Command, tmp_path: Path) -> None:
    graph = "loom: 1\nkind: graph\nname: g\ninput: {n: int}\nnodes:\n  a: {event: go, deadline: never, next: b}\n"
    written(tmp_path, g=f"{graph}  b: {{approval: Sure?, deadline: never, next: c}}\n  c: {{end: '${{input.n}}'}}\n")
    said = loom("simulate", "g.yaml")
    assert said.code == 1
    assert '  input: {"n":0}\n  nobody decides b\n  no event comes: go\n' in said.out
    assert "it is stuck: it waits at a#1, and nothing that is scripted moves it on" in said.out
    (tmp_path / "s.yaml").write_text(f"{HEAD}graph: g.yaml\ninput: {{n: 1}}\nevents: [{{name: go}}]\n")
    stuck = loom("simulate", "s.yaml", "--json")
    assert (stuck.code, json.loads(stuck.out)["cases"][0]["status"]) == (1, "waiting")
    (tmp_path / "s.yaml").write_text((tmp_path / "s.yaml").read_text() + "expect: {waits: [b]}\n")
    assert loom("simulate", "s.yaml").code == 0  # where that is what it is to show


@pytest.mark.server
def test_a_scenario_comes_to_the_same_on_a_server(
    loom: Command, tmp_path: Path, graph: str, dev_server: DevServer
) -> None:
    cases = (
        "cases:\n  - {name: approved}\n  - {name: nobody decides, decisions: {ask: null}, expect: {failure: failed}}\n"
        "  - {name: refused by the world, results: {work: {error: busy}}, expect: {failure: busy}}\n"
    )
    written(tmp_path, s=f"{OK}{cases}")
    said = loom("simulate", "s.yaml", "--quiet", "--server", "--address", dev_server.address)
    assert (said.code, said.err) == (0, "")
    told = said.out.partition("On the server:\n")[2].splitlines()
    assert told == ["the same  approved", "the same  nobody decides", "the same  refused by the world"]
    # What stands still in memory has no end to compare.
    (tmp_path / "g2.yaml").write_text(GRAPH.replace("{after: 1d, to: bad}", "never"))
    text = OK.replace("graph.yaml", "g2.yaml").replace("{ask: approve}", "{ask: null}")
    written(tmp_path, s=f"{text}expect: {{waits: [ask]}}\n")
    stuck = loom("simulate", "s.yaml", "--server", "--address", dev_server.address, "--json")
    assert stuck.code == 0
    assert json.loads(stuck.out)["server"][0]["skipped"] == "it waits at ask#1, so it has no end to compare"


def test_a_server_needs_a_scenario_and_must_be_there(loom: Command, tmp_path: Path, graph: str) -> None:
    alone = loom("simulate", graph, "--server")
    assert (alone.code, alone.err) == (2, "error: --server runs the cases of a scenario; give one with --mock FILE\n")
    written(tmp_path, ok=OK)
    nobody = loom("simulate", "ok.yaml", "--server", "--address", "127.0.0.1:9")
    assert nobody.code != 0
    assert "127.0.0.1:9" in nobody.err
    assert "Traceback" not in nobody.err


def test_what_differs_on_the_server_is_told_by_branch() -> None:
    memory = {"status": "completed", "code": "", "result": 7, "trace": {"main": [("a#1", "done")]}}
    server = {"status": "failed", "code": "busy", "result": None, "trace": {"main": [("a#1", "busy")], "b#1[0]": []}}
    assert list(differences(memory, memory)) == []
    assert list(differences(memory, server)) == [
        'status: in memory "completed", on the server "failed"',
        'code: in memory "", on the server "busy"',
        "result: in memory 7, on the server null",
        "trace of main: in memory a#1, on the server a#1:busy",
    ]


@pytest.mark.parametrize("kind", ["graph", "approval", "fan-out", "loop", "agents"])
def test_every_starting_point_can_be_played_as_it_stands(loom: Command, tmp_path: Path, kind: str) -> None:
    assert loom("new", kind).code == 0
    said = loom("simulate", f"{kind}.yaml")
    assert (said.code, "1 case: ok" in said.out) == (0, True)
    assert said.out.startswith("There is no scenario (--mock FILE), so this is assumed:\n")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            f"{HEAD}graph: graph.yaml\nresults: {{wrok: 1}}\n",
            "s.yaml:5:11: L004 the graph has no node and runs nothing",
        ),
        (f"{HEAD}graph: graf.yaml\n", "graf.yaml"),
        (f"{HEAD}graph: g\n", "s.yaml:4:8: L003 the scenario does not say which file its graph is in"),
        (HEAD, "the scenario does not say which file its graph is in"),
        (f"{HEAD}graph: s.yaml\n", "is a scenario document, which has no graph"),
        (f"{HEAD}grph: graph.yaml\n", "L002 unknown field `grph`; did you mean `graph`?"),
        ("loom: 1\nkind: fake-model\nname: s\nsteps: [{say: hi}]\n", "s.yaml is a fake-model document"),
        (f"{HEAD}results: [\n", "L001"),
        ("kind: scenario\n", "missing `loom: 1`"),
        (f"{OK}now: soon\n", "L004"),
    ],
)
def test_a_mistake_is_one_line_and_status_2(loom: Command, tmp_path: Path, graph: str, text: str, told: str) -> None:
    written(tmp_path, s=text)
    said = loom("simulate", "s.yaml")
    assert (said.code, said.out) == (2, "")
    assert told in said.err
    assert "Traceback" not in said.err


def test_a_scenario_is_for_one_graph(loom: Command, tmp_path: Path, graph: str) -> None:
    written(tmp_path, s=f"{HEAD}graph: other\n", ok=OK, bad=GRAPH.replace("to: bad}]", "to: nowhere}]"))
    other = loom("simulate", graph, "--mock", "s.yaml")
    assert (other.code, "is for the graph `other`, and this one is `g`" in other.err) == (2, True)
    twice = loom("simulate", "ok.yaml", "--mock", "ok.yaml")
    assert (twice.code, "ok.yaml is a scenario already" in twice.err) == (2, True)
    broken = loom("simulate", "bad.yaml", "--mock", "ok.yaml")
    assert (broken.code, "L102" in broken.err) == (2, True)
    missing = loom("simulate", graph, "--mock", "nothing.yaml")
    assert (missing.code, "nothing.yaml cannot be read" in missing.err) == (2, True)
    turns = loom("simulate", "loom.tt")
    assert (turns.code, "the graph of an agent's turns" in turns.err) == (2, True)


def test_validate_checks_a_scenario_against_its_graph(loom: Command, tmp_path: Path, graph: str) -> None:
    written(tmp_path, ok=OK, wrong=OK.replace("ask:", "aks:"), lost=OK.replace("graph.yaml", "gone.yaml"))
    assert loom("validate", "ok.yaml").out == "ok.yaml: ok  scenario s\n"
    wrong = loom("validate", "wrong.yaml")
    assert (wrong.code, "wrong.yaml:6:13: L004 the graph has no node `aks` (did you mean `ask`?)" in wrong.out) == (
        2,
        True,
    )
    lost = loom("validate", "lost.yaml")
    assert (lost.code, "lost.yaml:4:8: L010" in lost.out) == (2, True)
    written(tmp_path, graph=GRAPH.replace("to: bad}]", "to: nowhere}]"))
    broken = loom("validate", "ok.yaml")
    assert (broken.code, "the graph graph.yaml is not valid" in broken.out) == (2, True)


# -- pytest --------------------------------------------------------------------------------------------------


def test_the_fixture_fails_a_test_with_what_differed(pytester: pytest.Pytester) -> None:
    pytester.makefile(".yaml", graph=GRAPH, ok=OK, cases=CASES)
    pytester.makepyfile("""
        import pytest

        def test_ok(simulate):
            played = simulate("graph.yaml", "ok.yaml")
            assert played.cases[0].result == 7

        def test_wrong(simulate):
            simulate("graph.yaml", "cases.yaml")

        def test_unchecked(simulate):
            assert len(simulate("graph.yaml", "cases.yaml", check=False).cases) == 2

        def test_mistake(simulate):
            simulate("graph.yaml", {"results": {"wrok": 1}})

        def test_graph_in_python(simulate):
            from loom_dsl.graph.builder import GraphBuilder

            g = GraphBuilder("g")
            g.activity("work", "m:f", x=1).to("done")
            g.end("done", x=1)
            simulate(g.build(), {"expect": {"arguments": {"work": {"x": 1}}, "result": {"x": 1}}})
            simulate(g.compile(), {"expect": {"result": {"x": 1}}})
    """)
    done = pytester.runpytest_subprocess("-p", "loom_cli.pytest_plugin", "-p", "no:cacheprovider")
    done.assert_outcomes(passed=3, failed=2)
    done.stdout.fnmatch_lines(["g: wrong", "  visits of `ask`: expected 2, got 1"])
    done.stdout.fnmatch_lines(["scenario:1:*L004 the graph has no node and runs nothing called `wrok`*"])
