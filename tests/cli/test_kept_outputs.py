"""A job that failed over the results of its items says what failed, where the results are, and gives them."""

import json
from collections.abc import Callable

import pytest

from tests.cli.conftest import House

pytestmark = pytest.mark.server
GRAPH = """
loom: 1
kind: graph
name: lengths
input: {words: list}
permissions: {allow: [calculator]}
nodes:
  each: {map: {over: input.words, do: one}, next: done}
  done: {end: {longest: "${len(nodes.each)}", all: "${nodes.each.total}"}}
graphs:
  one:
    nodes:
      twice: {tool: calculator, with: {expression: "${len(item)} * 2"}, next: done}
      done: {end: "${nodes.twice}"}
"""


def test_show_tells_the_error_and_gives_what_was_kept(house: House, fresh: Callable[[str], str]) -> None:
    path = house.folder / "lengths.yaml"
    path.write_text(GRAPH.replace("${nodes.each.total}", "${[x.total for x in nodes.each]}"))
    job = fresh("lengths")
    words = ("--input", 'words=["a", "bcd"]')
    ran = house.loom("run", str(path), *words, "--job", job, "--workdir", house.workdir())
    assert ran.code == 1
    shown = house.loom("show", job)
    assert shown.code == 0, shown
    told = " ".join(shown.out.split())
    assert "error expression_error: node `done`: " in told
    assert "in `[x.total for x in nodes.each]`, in its `end`" in told
    assert f"loom show {job} --node each" in shown.out
    kept = house.loom("show", job, "--node", "each")
    assert kept.code == 0, kept
    values = json.loads(kept.out)
    assert len(values) == 2
    assert "6" in str(values[1])
    (output,) = json.loads(house.loom("show", job, "--json").out)["outputs"]
    assert (output["node"], output["items"], output["done"]) == ("each#1", 2, 2)
    missing = house.loom("show", job, "--node", "other")
    assert missing.code == 2
    assert f"job {job} kept no output of a node 'other': it kept those of each" in missing.err
