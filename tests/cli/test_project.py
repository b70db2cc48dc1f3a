"""init, validate, graph and prune, and that every example is valid."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from loom_cli.app import run
from loom_cli.project.templates import FILES
from loom_cli.project.validate import check_file, load_tools
from loom_dsl.authoring.mermaid import mermaid, mermaid_plan
from loom_dsl.graph.compiler import compile_graph
from loom_dsl.graph.library import shipped, source_of
from loom_store.store import Store
from tests.cli.conftest import LOOM, Said
from tests.support.waiting import PATIENCE

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))

Command = Callable[..., Said]

AGENT = "loom: 1\nkind: agent\nname: a\nmodel: m\n"
GRAPH = "loom: 1\nkind: graph\nname: g\nstart: one\nnodes:\n  one: {next: two}\n  two: {end: {}}\n"
SCRIPT = "loom: 1\nkind: fake-model\nname: s\nsteps: [{say: hi}]\n"


@pytest.fixture
def loom(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Command:
    """The command, in this process and an empty directory."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str) -> Said:
        capsys.readouterr()
        code = run(list(arguments))
        shown = capsys.readouterr()
        return Said(code, shown.out, shown.err)

    return call


def apart(folder: Path, *arguments: str, command: Sequence[str] = LOOM) -> Said:
    """The command in a process of its own, for what imports a user's modules."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("LOOM_", "OPENAI_"))}
    done = subprocess.run(
        [*command, *arguments],
        cwd=folder,
        env={**kept, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    return Said(done.returncode, done.stdout, done.stderr)


def written(folder: Path, **files: str) -> list[str]:
    """Write documents; their names."""
    for name, text in files.items():
        (folder / f"{name}.yaml").write_text(text, encoding="utf-8")
    return [f"{name}.yaml" for name in files]


# -- init ----------------------------------------------------------------------------------------------


def test_init_writes_a_project_that_is_valid_at_once(tmp_path: Path) -> None:
    begun = apart(tmp_path, "init", "hello")
    assert (begun.code, begun.err) == (0, "")
    assert begun.out.splitlines()[: len(FILES)] == [f"hello/{name}" for name in FILES]
    checked = apart(tmp_path / "hello", "validate", "agent.yaml", "script.yaml", "--tools", "tools")
    assert checked == Said(0, "agent.yaml: ok  agent hello\nscript.yaml: ok  fake-model hello\n", "")


def test_the_tool_of_a_new_project_does_what_it_says(loom: Command, tmp_path: Path) -> None:
    loom("init")
    code = "import json, tools; print(json.dumps(tools.word_count('The loom, the weft; the warp.', top=1)))"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == {"words": 6, "the": 3}


@pytest.mark.parametrize("taken", FILES)
def test_init_overwrites_nothing(loom: Command, tmp_path: Path, taken: str) -> None:
    (tmp_path / "hello").mkdir()
    (tmp_path / "hello" / taken).write_text("mine")
    begun = loom("init", "hello")
    assert begun.code == 2
    assert taken in begun.err
    assert [(file.name, file.read_text()) for file in (tmp_path / "hello").iterdir()] == [(taken, "mine")]


def test_init_does_not_write_through_a_link_that_leads_nowhere(loom: Command, tmp_path: Path) -> None:
    (tmp_path / "tools.py").symlink_to(tmp_path / "elsewhere.py")
    assert loom("init").code == 2
    assert not (tmp_path / "elsewhere.py").exists()


def test_init_says_why_it_cannot_write(loom: Command, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    begun = loom("init", "file/hello")
    assert begun.code == 2
    assert "Not a directory" in begun.err


# -- validate ------------------------------------------------------------------------------------------


def test_every_kind_of_document_can_be_checked(loom: Command, tmp_path: Path) -> None:
    said = loom("validate", *written(tmp_path, a=AGENT, g=GRAPH, s=SCRIPT))
    assert said == Said(0, "a.yaml: ok  agent a\ng.yaml: ok  graph g\ns.yaml: ok  fake-model s\n", "")


def test_a_directory_stands_for_the_documents_below_it(loom: Command, tmp_path: Path) -> None:
    for folder in ("jobs/deep", "jobs/.venv/lib"):
        (tmp_path / folder).mkdir(parents=True)
    written(tmp_path / "jobs", a=AGENT, compose="services: {}\n")
    written(tmp_path / "jobs/deep", g="# first\n" + GRAPH)
    written(tmp_path / "jobs/.venv/lib", other=GRAPH)
    assert loom("validate", "jobs") == Said(0, "jobs/a.yaml: ok  agent a\njobs/deep/g.yaml: ok  graph g\n", "")
    written(tmp_path / "jobs/deep", g=GRAPH + "x: 1\n")
    assert loom("validate", "jobs").code == 2


@pytest.mark.parametrize(
    ("text", "findings"),
    [
        (AGENT + "tools: [globb]\n", ["x.yaml:5:9: L150 there is no built-in tool 'globb'; did you mean 'glob'?"]),
        (AGENT + "modle: x\n", ["x.yaml:5:1: L002 unknown field `modle`; did you mean `model`?"]),
        (
            AGENT.replace("model: m", "model: x${env:LOOM_TEST_NOT_SET}"),
            ["x.yaml:4:8: L008 `${env:NAME}` must be the whole value"],
        ),
        (AGENT + "tools: {glob: 1}\n", ["x.yaml:5:8: L004 `tools`: should be a list"]),
        (AGENT + "permissions: {allow: ['glob(']}\n", ["glob("]),
        (
            AGENT + "limits: {max_iterations: 0}\ntools: [grepp, 7]\n",
            ["x.yaml:5:26: L004", "x.yaml:6:9: L150 there is no built-in tool 'grepp'", "x.yaml:6:16: L004"],
        ),
        (GRAPH.replace("next: two", "next: tow"), ["L102", "did you mean `two`?", "nothing leads to `two`"]),
        (SCRIPT.replace("say", "sya"), ["L002 unknown field `sya`; did you mean `say`?"]),
        ("loom: 1\nkind: agnet\n", ["x.yaml:2:7: L006", "agent"]),
        ("loom: [1\n", ["x.yaml:2:1: L001"]),
        ("", ["L001 the document is empty"]),
        ("a: \udcff", ["L007"]),
    ],
)
def test_a_mistake_is_told_with_its_place(loom: Command, tmp_path: Path, text: str, findings: list[str]) -> None:
    (tmp_path / "x.yaml").write_bytes(text.encode("utf-8", "surrogateescape"))
    said = loom("validate", "x.yaml")
    assert said.code == 2
    for finding in findings:
        assert finding in said.out
    assert said.out.count("\n") >= len(findings)


@pytest.mark.parametrize(
    ("text", "finding"),
    [
        (
            AGENT + "tools: [glob, 'nix:da']\n",
            "x.yaml:5:15: L150 warning: 'nix:da' was not looked at (check it with --tools nix)",
        ),
        (
            AGENT.replace("model: m", "model: ${env:LOOM_TEST_NOT_SET}"),
            "x.yaml:4:8: L008 warning: the environment variable LOOM_TEST_NOT_SET is not set "
            "(set LOOM_TEST_NOT_SET, or write the value here)",
        ),
    ],
)
def test_what_is_only_not_there_where_it_is_checked_is_a_warning(
    loom: Command, tmp_path: Path, text: str, finding: str
) -> None:
    written(tmp_path, x=text)
    assert loom("validate", "x.yaml") == Said(0, f"{finding}\n1 finding\n", "")


def test_the_directory_of_the_examples_is_valid_as_it_is(loom: Command) -> None:
    said = loom("validate", str(ROOT / "examples"))
    assert said.code == 0
    assert " warning: " in said.out


def test_all_mistakes_of_all_files_are_told_at_once(loom: Command, tmp_path: Path) -> None:
    names = written(tmp_path, bad=AGENT + "tools: [globb]\nmodle: x\n", good=GRAPH)
    (tmp_path / "empty").mkdir()
    said = loom("validate", *names, "missing.yaml", "bad.yml", "empty")
    assert said.code == 2
    assert said.out.splitlines() == [
        "bad.yaml:5:9: L150 there is no built-in tool 'globb'; did you mean 'glob'?",
        "bad.yaml:6:1: L002 unknown field `modle`; did you mean `model`?",
        "good.yaml: ok  graph g",
        "L010 missing.yaml cannot be read: No such file or directory",
        "L010 bad.yml cannot be read: No such file or directory; did you mean `bad.yaml`?",
        "L010 empty cannot be read: Is a directory, and no document of Loom (`loom: 1`) is below it",
        "5 findings",
    ]


def test_a_warning_is_told_and_is_no_mistake(loom: Command, tmp_path: Path) -> None:
    (tmp_path / "g.yaml").write_text(GRAPH.replace("{next: two}", '{activity: "m:f", timeout: 2m, next: two}'))
    said = loom("validate", "g.yaml")
    assert said.code == 0
    assert "L141" in said.out


def test_findings_are_a_sarif_log_for_programs_and_an_empty_one_when_all_is_well(loom: Command, tmp_path: Path) -> None:
    bad, good = written(tmp_path, bad=AGENT + "tools: [glob, globb]\n", good=GRAPH)
    (tmp_path / "g.yaml").write_text(GRAPH.replace("next: two", "nxt: two"))
    said = loom("validate", bad, "g.yaml", good, "--json")
    log = json.loads(said.out)
    (run,) = log["runs"]
    assert (said.code, said.err, log["version"]) == (2, "", "2.1.0")
    places = [result["locations"][0]["physicalLocation"] for result in run["results"]]
    assert [
        (r["ruleId"], r["level"], p["artifactLocation"]["uri"]) for r, p in zip(run["results"], places, strict=True)
    ] == [
        ("L150", "error", "bad.yaml"),
        ("L002", "error", "g.yaml"),
    ]
    assert [place["region"] for place in places] == [
        {"startLine": 5, "startColumn": 15},
        {"startLine": 6, "startColumn": 9},
    ]
    assert run["results"][0]["message"]["text"] == "there is no built-in tool 'globb'; did you mean 'glob'?"
    clean = loom("validate", good, "--json")
    assert (clean.code, json.loads(clean.out)["runs"][0]["results"]) == (0, [])


def test_a_tool_module_that_cannot_be_imported_is_told_once(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("import nowhere_to_be_found\n")
    written(tmp_path, a=AGENT + "tools: ['broken:one', 'broken:two', globb]\n")
    said = apart(tmp_path, "validate", "a.yaml", "--tools", "broken")
    assert said.code == 2
    assert said.out.count("L151") == 1
    assert "nowhere_to_be_found" in said.out
    assert [line[:13] for line in said.out.splitlines()[1:-1]] == ["a.yaml:5:37: "]


def test_a_function_that_cannot_be_a_tool_is_told_at_its_reference(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "def shout(text) -> str:\n    return text\n\ndef fine(text: str) -> str:\n    return text\n"
    )
    written(tmp_path, a=AGENT + "tools: ['mine:shout', 'mine:fine', 'mine:fien']\n")
    said = apart(tmp_path, "validate", "a.yaml", "--tools", "mine")
    assert said.code == 2
    first, second, count = said.out.splitlines()
    assert first.startswith("a.yaml:5:9: L150 ")
    assert "text" in first
    assert second == "a.yaml:5:36: L150 the module 'mine' has no tool 'fien'; did you mean 'mine:fine'?"
    assert count == "2 findings"


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_every_example_is_valid(example: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(example.parent))
    tools, problems = load_tools(["board"])
    name, findings = check_file(example, tools, {})
    assert (problems, findings) == ([], [])
    assert name.startswith(("agent ", "graph ", "fake-model "))


# -- graph ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["loom.tt", "loom.tool_call"])
def test_a_shipped_graph_is_drawn(loom: Command, name: str) -> None:
    assert loom("graph", name) == Said(0, mermaid(shipped(name)), "")


def test_a_graphs_file_is_drawn_with_the_graphs_that_it_runs(loom: Command, tmp_path: Path) -> None:
    own = GRAPH.replace("one: {next: two}", "one: {map: {over: input.calls, do: loom.tool_call}, next: two}")
    own = own.replace("nodes:", "input: {calls: list}\nnodes:")
    drawn = loom("graph", *written(tmp_path, g=own))
    assert drawn == Said(0, mermaid_plan(compile_graph(own, "g.yaml")), "")
    assert 'g0_one -. "for each" .- g1' in drawn.out


def test_an_agents_file_is_drawn_as_its_turn_even_when_its_model_is_not_chosen_yet(
    loom: Command, tmp_path: Path
) -> None:
    drawn = loom("graph", *written(tmp_path, a=AGENT.replace("model: m", "model: ${env:LOOM_TEST_NOT_SET}")))
    assert drawn.code == 0
    assert 'subgraph g0["loom.tt"]' in drawn.out
    assert 'subgraph g1["loom.tool_call"]' in drawn.out


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("loom.tx", "there is no file and no graph 'loom.tx'; did you mean loom.tt?"),
        ("nothing.yaml", "there is no file and no graph 'nothing.yaml'; the graphs that Loom ships are loom.tt"),
        ("script.yaml", "script.yaml is a fake-model document, which has no graph"),
        ("broken.yaml", "broken.yaml:6:15: L102"),
    ],
)
def test_what_cannot_be_drawn_is_refused(loom: Command, tmp_path: Path, target: str, said: str) -> None:
    written(tmp_path, script=SCRIPT, broken=GRAPH.replace("next: two", "next: tow"))
    drawn = loom("graph", target)
    assert (drawn.code, drawn.out) == (2, "")
    assert said in drawn.err


def test_a_picture_can_be_read_back_from_the_shipped_source(loom: Command, tmp_path: Path) -> None:
    """A user's copy of loom.tt draws the same as the shipped one, below its graphs' frames."""
    (tmp_path / "copy.yaml").write_text(source_of("loom.tt").replace("name: loom.tt", "name: mine"))
    assert loom("graph", "copy.yaml").out == loom("graph", *written(tmp_path, a=AGENT)).out.replace("loom.tt", "mine")


# -- prune ---------------------------------------------------------------------------------------------


@pytest.fixture
def used_store(tmp_path: Path) -> Path:
    """A store with two jobs that ended, 40 and 2 days ago, and one that runs."""
    path, now = tmp_path / "loom.db", datetime.now(UTC)

    def work(tx: Any) -> None:
        for job, age in (("old", 40), ("new", 2), ("running", None)):
            created = now - timedelta(days=41)
            fields = {"agent": "a", "plan": tx.put_blob(b"plan"), "task": "t", "workdir": "/w", "namespace": "default"}
            tx.create_session(f"s-{job}")
            tx.create_job(job, session=f"s-{job}", task_queue="loom", created_at=created, **fields)
            tx.append_events(job, "k", [{"t": "state", "state": "x"}] * 3)
            if age is not None:
                tx.update_job(job, status="completed", ended_at=now - timedelta(days=age))

    with Store.open(path) as store:
        store.write_sync(work)
    return path


def jobs_of(path: Path) -> list[str]:
    with Store.open(path, create=False) as store:
        return sorted(row["job"] for row in store.read_sync(lambda tx: tx.jobs()))


@pytest.mark.parametrize(
    ("options", "gone"),
    [
        ([], ["old"]),
        (["--older-than", "1d"], ["new", "old"]),
        (["--older-than", "90d"], []),
        (["--older-than", "1d", "--dry-run"], []),
        (["--compact"], ["old"]),
    ],
)
def test_prune_removes_what_ended_long_ago(
    loom: Command, used_store: Path, options: list[str], gone: list[str]
) -> None:
    said = loom("prune", "--store", str(used_store), *options)
    assert (said.code, said.err) == (0, "")
    assert jobs_of(used_store) == sorted({"old", "new", "running"} - set(gone))


def test_prune_counts_what_goes(loom: Command, used_store: Path) -> None:
    said = loom("prune", "--store", str(used_store), "--older-than", "1d", "--dry-run")
    assert "would go" in said.out
    assert "  2 jobs, 2 sessions with 0 entries\n  2 batches of events, 0 effects, 0 approvals\n" in said.out
    assert "nothing was removed" in said.out
    counts = json.loads(loom("prune", "--store", str(used_store), "--json").out)
    assert (counts["jobs"], counts["sessions"], counts["events"], counts["dry_run"]) == (1, 1, 1, False)
    assert counts["store"] == str(used_store)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--store", "missing.db"], "there is no store at"),
        (["--older-than", "a month"], "--older-than a month: "),
        (["--older-than", "30"], "--older-than 30: "),
        (["--store", "postgres://x"], "postgres is not supported"),
    ],
)
def test_prune_refuses_what_it_cannot_do(loom: Command, tmp_path: Path, options: list[str], said: str) -> None:
    pruned = loom("prune", *options)
    assert pruned.code == 2
    assert said in pruned.err
    assert list(tmp_path.iterdir()) == []
