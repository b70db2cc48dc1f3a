"""A document that was read is handed along: nothing opens its file again, and what is said of it stays the same."""

from pathlib import Path

import pytest

from loom_cli.commands.run.start_agent import Request, load
from loom_cli.commands.run.start_graph import GraphRequest, is_graph, load_graph, needed, read_once
from loom_client.start.submission import plan_of
from loom_dsl.documents.document import load_yaml
from loom_dsl.errors import DocumentError
from loom_dsl.graph.compiler import check_document, check_text, compile_document, compile_graph

AGENT = "loom: 1\nkind: agent\nname: reader\nmodel: m\n"
GRAPH = "loom: 1\nkind: graph\nname: g\ninput: {n: int}\nstart: z\nnodes: {z: {end: '${input.n}'}}\n"
WRONG = {
    "a field": "loom: 1\nkind: graph\nname: g\nstart: z\nnods: {z: {end: 1}}\n",
    "an expression": "loom: 1\nkind: graph\nname: g\nstart: z\nnodes: {z: {end: '${input.n}'}}\n",
    "part of it": "loom: 1\nkind: graph\nname: g\nstart: a\nnodes: {a: {shell: 1}, z: {end: '${state.x}'}}\n",
    "its kind": "loom: 1\nkind: scenario\nname: g\n",
    "its kind and version": "loom: 2\nkind: grph\nname: g\n",
    "its head": "name: g\n",
}


def written(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "it.yaml"
    file.write_text(text)
    return file


def test_an_agent_s_file_is_not_opened_again_once_it_was_read(tmp_path: Path) -> None:
    file = written(tmp_path, AGENT)
    document = read_once(file)
    file.unlink()
    assert not is_graph(document)
    assert load(Request(file, "do it", document=document))[0].name == "reader"


def test_a_graph_s_file_is_not_opened_again_once_it_was_read(tmp_path: Path) -> None:
    file = written(tmp_path, GRAPH)
    document = read_once(file)
    file.unlink()
    assert is_graph(document)
    plan, given = load_graph(GraphRequest(file, ("n=3",), document=document))
    assert (plan.root, given) == ("g", {"n": 3})


def test_what_a_document_names_is_looked_for_beside_it(tmp_path: Path) -> None:
    (tmp_path / "helper.yaml").write_text(AGENT)
    nodes = "nodes: {a: {agent: helper, with: {task: x}, next: z}, z: {end: 1}}\n"
    file = written(tmp_path, f"loom: 1\nkind: graph\nname: g\nagents: {{helper: {{file: helper.yaml}}}}\n{nodes}")
    document = load_yaml(file.read_bytes(), str(file))
    file.unlink()
    assert plan_of(document).agents["helper"]["name"] == "reader"


@pytest.mark.parametrize("wrong", WRONG)
def test_what_is_wrong_is_said_alike_of_a_text_and_of_a_document_that_was_read(wrong: str) -> None:
    text = WRONG[wrong]
    found = check_text(text, "x.yaml")
    assert found
    assert check_document(load_yaml(text, "x.yaml")) == found
    with pytest.raises(DocumentError) as of_text:
        compile_graph(text, "x.yaml")
    with pytest.raises(DocumentError) as of_document:
        compile_document(load_yaml(text, "x.yaml"))
    assert str(of_document.value) == str(of_text.value)


def test_a_file_that_cannot_be_read_is_no_graph_and_why_is_said_by_what_needs_it(tmp_path: Path) -> None:
    file = written(tmp_path, "a: [")
    assert not is_graph(read_once(tmp_path / "missing.yaml"))
    assert not is_graph(read_once(file))
    with pytest.raises(DocumentError, match=r"it\.yaml:1:"):
        needed(file, read_once(file), None, None, None)
    with pytest.raises(DocumentError, match=r"it\.yaml:1:"):
        load(Request(file, "do it", document=read_once(file)))
