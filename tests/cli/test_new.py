"""`loom new` and `loom schema`: what they write is valid, runs as it says itself, and is never written over."""

import json
import re
import shlex
import uuid
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft7Validator

from loom_cli.dev.server import DevServer
from loom_cli.project.templates import MODELINE, SCHEMA, STARTS
from loom_dsl.authoring.schema import KINDS, schema_of
from loom_dsl.documents.document import load_yaml
from tests.cli.conftest import House, Said, served
from tests.cli.test_project import Command, apart, loom
from tests.support.ports import own_port

__all__ = ["loom"]


def modules(folder: Path) -> list[str]:
    return [word for file in folder.glob("*.py") for word in ("--tools", file.stem)]


def documents(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.yaml"))


# -- what is written -----------------------------------------------------------------------------------


def test_the_kinds_are_listed_with_a_line_each(loom: Command, tmp_path: Path) -> None:
    said = loom("new")
    assert said.code == 0
    listed = dict(line.split(None, 1) for line in said.out.splitlines()[: len(STARTS)])
    assert listed == STARTS
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", [None, "my-own_1"])
@pytest.mark.parametrize("kind", STARTS)
def test_a_starting_point_is_valid_as_it_stands(
    loom: Command, loom_at_hand: list[str], tmp_path: Path, kind: str, name: str | None
) -> None:
    begun = loom("new", kind, *([name] if name else []))
    assert (begun.code, begun.err) == (0, "")
    written = {file.name for file in tmp_path.iterdir()}
    assert {line for line in begun.out.splitlines() if not line.startswith("Next: ")} == written
    assert f"loom validate {name or kind}.yaml" in begun.out
    files = [file.name for file in documents(tmp_path)]
    checked = apart(tmp_path, "validate", *files, *modules(tmp_path), command=loom_at_hand)
    assert checked.code == 0, checked
    assert not [line for line in checked.out.splitlines() if ": ok  " not in line]


@pytest.mark.parametrize("kind", STARTS)
def test_another_name_is_everywhere_where_the_kind_names_a_file(loom: Command, tmp_path: Path, kind: str) -> None:
    loom("new", kind, "other")
    for file in tmp_path.iterdir():
        text = file.read_text()
        assert file.name.startswith("other")
        assert not re.search(rf"\b{kind.replace('-', '_')}_(steps|tools)\b|\b{kind}\.(\w+\.)?yaml", text), text
        named = re.findall(r"[\w-]+(?:\.\w+)?\.yaml|\w+_(?:steps|tools)\b", text)
        beside = {one.name for one in tmp_path.iterdir()} | {one.stem for one in tmp_path.iterdir()}
        assert set(named) <= beside


@pytest.mark.parametrize("kind", STARTS)
def test_every_key_at_the_top_is_explained(loom: Command, tmp_path: Path, kind: str) -> None:
    loom("new", kind)
    lines = (tmp_path / f"{kind}.yaml").read_text().splitlines()
    assert len(lines) <= 60
    for number, line in enumerate(lines):
        if re.match(r"\w+:", line) and not line.startswith(("kind:", "name:", "extends:")):
            assert " # " in line or lines[number + 1].strip().startswith("#"), f"{kind}: say what this is: {line}"


def test_a_directory_is_made_where_there_is_none(loom: Command, tmp_path: Path) -> None:
    begun = loom("new", "graph", "first", "--dir", "deep/down")
    assert begun.code == 0
    assert "deep/down/first.yaml" in begun.out.splitlines()
    assert (tmp_path / "deep/down/first_steps.py").exists()


@pytest.mark.parametrize("taken", ["loop.yaml", "loop_steps.py"])
def test_nothing_is_written_over(loom: Command, tmp_path: Path, taken: str) -> None:
    (tmp_path / taken).write_text("mine")
    begun = loom("new", "loop")
    assert (begun.code, begun.out) == (2, "")
    assert f"already holds {taken}; nothing was written" in begun.err
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [(taken, "mine")]


def test_nothing_is_written_through_a_link_that_leads_nowhere(loom: Command, tmp_path: Path) -> None:
    (tmp_path / "loop.yaml").symlink_to(tmp_path / "elsewhere")
    assert loom("new", "loop").code == 2
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["lop"], "there is no starting point 'lop'; did you mean `loop`?"),
        (["../loop"], "there is no starting point '../loop'"),
        (["loop", "Two Words"], "'Two Words' is not a name; use lower-case letters"),
        (["loop", "../x"], "'../x' is not a name"),
        (["loop", ""], "'' is not a name"),
        (["loop", "--dir", "file"], "cannot be written: "),
    ],
)
def test_what_cannot_begin_is_refused(loom: Command, tmp_path: Path, arguments: list[str], said: str) -> None:
    (tmp_path / "file").write_text("")
    begun = loom("new", *arguments)
    assert (begun.code, begun.out) == (2, "")
    assert said in begun.err
    assert [file.name for file in tmp_path.iterdir()] == ["file"]


# -- the schema ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", STARTS)
def test_documents_name_the_schema_that_is_written_beside_them(loom: Command, tmp_path: Path, kind: str) -> None:
    assert loom("new", kind, "--schema").code == 0
    validator = Draft7Validator(json.loads((tmp_path / SCHEMA).read_text()))
    for file in documents(tmp_path):
        text = file.read_text()
        assert text.startswith(MODELINE)
        assert list(validator.iter_errors(load_yaml(text, file.name).data)) == []


def test_no_document_names_a_schema_that_is_not_there(loom: Command, tmp_path: Path) -> None:
    loom("new", "agent")
    assert "$schema" not in (tmp_path / "agent.yaml").read_text()
    assert not (tmp_path / SCHEMA).exists()


def test_a_second_start_uses_the_schema_that_is_there_and_tells_of_an_old_one(loom: Command, tmp_path: Path) -> None:
    loom("new", "agent", "--schema")
    assert loom("new", "loop", "--schema").err == ""
    (tmp_path / SCHEMA).write_text("{}")
    begun = loom("new", "graph", "--schema")
    assert begun.code == 0
    assert f"renew it: loom schema --output {SCHEMA}" in begun.err
    assert (tmp_path / SCHEMA).read_text() == "{}"
    assert loom("schema", "--output", SCHEMA) == Said(0, f"{SCHEMA}\n", "")
    assert json.loads((tmp_path / SCHEMA).read_text()) == schema_of()


@pytest.mark.parametrize("kind", [None, *KINDS])
def test_the_schema_is_printed(loom: Command, kind: str | None) -> None:
    said = loom("schema", *([kind] if kind else []))
    assert (said.code, said.err) == (0, "")
    assert json.loads(said.out) == schema_of(kind)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["graf"], "there is no kind of document 'graf'; did you mean `graph`?"),
        (["nothing"], "the kinds are graph, agent, fake-model, scenario"),
        (["--output", "no/such/place.json"], "no/such/place.json cannot be written: No such file or directory"),
    ],
)
def test_a_schema_that_cannot_be_given_is_refused(loom: Command, arguments: list[str], told: str) -> None:
    said = loom("schema", *arguments)
    assert (said.code, said.out) == (2, "")
    assert told in said.err


# -- the commands at the head of each starting point ------------------------------------------------------

ENDS: dict[str, Any] = {
    "agent": 'The tool says: {"holds":5,"loom":4,"the":3,"warp":4}',
    "graph": {"text": "the quick brown fox", "words": 4, "size": "long"},
    "approval": {"ordered": True, "number": "order-chair-500"},
    "fan-out": {"words": 2, "letters": 8},
    "loop": {"passed": True, "output": ""},
    "agents": {
        "decision": "REJECT: it is not true.",
        "facts": "The moon is made of rock.",
        "style": "The sentence is short and clear.",
    },
    "extend": "There are: 3 paths match *.yaml in .\n\nextend.script.yaml\nextend.turn.yaml\nextend.yaml",
}
"""What a job says in the end."""


def commands(file: Path) -> list[tuple[dict[str, str], list[str]]]:
    """The commands at a document's head: variables and arguments."""
    found = []
    for line in file.read_text().splitlines():
        if told := re.fullmatch(r"#   (\S.*?)(?:\s{2,}\(.*\))?", line):
            words = shlex.split(told[1])
            at = words.index("loom")
            found.append((dict(word.split("=", 1) for word in words[:at]), words[at + 1 :]))
    return found


@pytest.mark.server
@pytest.mark.parametrize("kind", STARTS)
def test_a_starting_point_runs_as_its_head_says(
    dev_server: DevServer, loom_at_hand: list[str], tmp_path: Path, kind: str
) -> None:
    house = House(tmp_path, dev_server.address, tmp_path / "state" / "loom.db", f"new-{uuid.uuid4().hex[:8]}", {})
    house.ready = loom_at_hand
    assert house.loom("new", kind).code == 0
    port = str(own_port())
    with ExitStack() as stack:
        for variables, arguments in commands(tmp_path / f"{kind}.yaml"):
            env = house.environment(**{name: value.replace("8126", port) for name, value in variables.items()})
            words = [port if word == "8126" else word for word in arguments]
            match words[0]:
                case "fake-model":
                    stack.enter_context(served(words, env, tmp_path, "http://", house.ready))
                case "dev":  # the server is there, so only its worker is started
                    stack.enter_context(served(["worker", *words[1:]], env, tmp_path, "worker ready", house.ready))
                case "validate":
                    assert house.loom(*words).code == 0
                case _:
                    assert words[0] == "run"
                    job = house.loom(*words, "--detach").out.strip()
                    if kind == "approval":
                        house.pending(job)
                        assert house.loom("approve", "--yes").code == 0
        ended = json.loads(house.loom("result", job, "--json").out)
    assert ended["status"] == "completed", ended
    said = ended.get("result") if ended.get("answer") is None else ended["answer"]
    assert said == ENDS[kind]
