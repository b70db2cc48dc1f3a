"""Graphs that are in files of their own."""

import pytest

from loom_dsl.errors import DocumentError
from loom_dsl.graph.compiler import check_text, compile_graph
from loom_dsl.graph.plan import Plan
from tests.support.simulated import run

HEAD = "loom: 1\nkind: graph\nname: {name}\n"
MAIN = HEAD.format(name="main") + "graphs:\n  part: {entry}\nnodes:\n  a: {{graph: part, with: {{n: 3}}, next: b}}\n"
MAIN += "  b: {{end: '${{nodes.a}}'}}\n"
PART = HEAD.format(name="one-part") + "input: {n: int}\nnodes:\n  done: {end: '${input.n * 2}'}\n"


def compiled(files: dict[str, str], entry: str = "{file: sub/part.yaml}") -> Plan:
    def read(name: str) -> str:
        if name not in files:
            raise FileNotFoundError(2, "No such file")
        return files[name]

    return compile_graph(MAIN.format(entry=entry), "dir/main.yaml", read_file=read, env={"MODEL": "m"})


def told(files: dict[str, str], entry: str = "{file: sub/part.yaml}") -> str:
    with pytest.raises(DocumentError) as caught:
        compiled(files, entry)
    return "\n".join(map(str, caught.value.diagnostics))


def test_a_graph_in_a_file_is_the_same_plan_as_one_in_the_document() -> None:
    inline = compiled({}, "{input: {n: int}, nodes: {done: {end: '${input.n * 2}'}}}")
    assert compiled({"sub/part.yaml": PART}).text == inline.text
    assert run(inline).result == 6


def test_a_file_brings_its_agents_and_its_own_files_along() -> None:
    part = PART + "  unused: {agent: writer, with: {task: x}, next: inner}\n  inner: {graph: deep, next: done}\n"
    part = part.replace("nodes:\n", "start: unused\nnodes:\n")
    part += "agents:\n  writer: {file: ../writer.yaml}\ngraphs:\n  deep: {file: deep.yaml}\n"
    writer = "loom: 1\nkind: agent\nname: writer\nmodel: ${env:MODEL}\n"
    deep = HEAD.format(name="deep") + "nodes:\n  e: {end: 1}\n"
    plan = compiled({"sub/part.yaml": part, "sub/../writer.yaml": writer, "sub/deep.yaml": deep})
    assert plan.agents["writer"]["model"] == "m"
    assert {"main/part", "main/deep"} <= set(plan.bodies)


def test_a_file_may_run_itself_by_its_own_name() -> None:
    part = PART.replace("nodes:\n", "start: more\nnodes:\n  more: {next: [{if: input.n > 0, to: less}, {to: done}]}\n")
    part += (
        "  less: {graph: one-part, with: {n: '${input.n - 1}'}, next: [{to: back}]}\n  back: {end: '${nodes.less}'}\n"
    )
    assert run(compiled({"sub/part.yaml": part})).result == 0


@pytest.mark.parametrize(
    ("files", "entry", "message"),
    [
        ({}, "{file: sub/part.yaml}", "dir/main.yaml:5:16: L010 the file sub/part.yaml of the graph `part` cannot be"),
        ({}, "{file: x.yaml, doc: y}", "L002 the graph `part` is in a file, so `doc` does not go here"),
        ({}, "{file: 5}", "L004 `file` of the graph `part` should be a file's name"),
        ({"sub/part.yaml": "nodes: ["}, "{file: sub/part.yaml}", "dir/sub/part.yaml:1:9: L001"),
        ({"sub/part.yaml": PART.replace("end:", "edn:")}, "{file: sub/part.yaml}", "dir/sub/part.yaml:6:10: L002"),
        ({"sub/part.yaml": PART + "permissions: {read_file: deny}\n"}, "{file: sub/part.yaml}", "L011 the file of"),
        (
            {"part.yaml": PART + "graphs:\n  again: {file: ./main.yaml}\n", "./main.yaml": "", "main.yaml": ""},
            "{file: part.yaml}",
            "L011 the files of graphs lead back to where they began: main.yaml → part.yaml → main.yaml",
        ),
    ],
    ids=["no file", "more beside it", "no name", "no YAML", "a mistake in it", "its own permissions", "a circle"],
)
def test_what_is_wrong_with_a_file_is_told_with_its_place(files: dict[str, str], entry: str, message: str) -> None:
    found = told(files, entry)
    assert message in found
    assert found.count("\n") == 0, "nothing else is told"


def test_without_a_reader_no_file_is_read() -> None:
    (found,) = check_text(MAIN.format(entry="{file: x.yaml}"), "main.yaml")
    assert "L010 the graph `part` is in the file x.yaml, and files cannot be read here" in str(found)
