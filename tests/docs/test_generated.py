"""What in the documentation is made from the code is as the code is."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from loom_dsl.graph.graph import Graph
from loom_dsl.graph.nodes import NODE_KINDS
from tests.docs.markdown import PAGES, ROOT, links, name_of

TABLES = [page for page in PAGES if "<!-- table: " in page.read_text(encoding="utf-8")]


def test_the_tables_are_up_to_date() -> None:
    ended = subprocess.run(
        [sys.executable, str(ROOT / "docs" / "tables.py"), "--check"],
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stderr


@pytest.mark.parametrize("page", TABLES, ids=name_of)
def test_every_row_says_what_it_means(page: Path) -> None:
    for found in re.finditer(r"(?s)<!-- table: (\S+) -->\n(.*?)<!-- end", page.read_text(encoding="utf-8")):
        if found[1] in ("events", "errors"):
            continue  # their last columns may be empty
        empty = [line for line in found[2].splitlines() if re.search(r"\|\s*\|$", line) and line != "| | |"]
        assert not empty, f"{found[1]} in {name_of(page)}: give these fields a docstring"


def test_the_reference_of_graphs_has_every_kind_of_node_and_every_part() -> None:
    page = (ROOT / "docs/reference/graph.md").read_text(encoding="utf-8")
    agents = (ROOT / "docs/reference/agent.md").read_text(encoding="utf-8")
    described = set(re.findall(r"(?m)^\*\*(\w+)\.\*\*", page + agents))
    kinds = set(re.findall(r"(?m)^\| `(\w+)` \|", page.partition("table: node-kinds")[2].partition("end of table")[0]))
    assert kinds == set(NODE_KINDS)
    wrappers = {model.__name__ for model in NODE_KINDS.values()}
    elsewhere = {
        "Branch",
        "Body",
        "JsonValue",
        "Risk",
        "RunState",
    }  # the table says it below itself; a graph's own fields; whatever JSON has; lists of words
    assert set(Graph.model_json_schema()["$defs"]) - described - wrappers - elsewhere == set()


def test_every_decision_is_in_the_index() -> None:
    index = (ROOT / "docs/adr/README.md").read_text(encoding="utf-8")
    pages = sorted((ROOT / "docs/adr").glob("[0-9]*.md"))
    assert [page.name for page in pages if f"({page.name})" not in index] == []
    for page in pages:
        text = page.read_text(encoding="utf-8")
        assert text.startswith(f"# {int(page.name[:4])}. ")
        assert re.findall(r"(?m)^## (?:Context|Decision)$", text) == ["## Context", "## Decision"]
        assert "\n## Consequences\n" in text


def test_every_page_can_be_reached_from_the_readme() -> None:
    reached, queue = set(), [ROOT / "README.md"]
    while queue:
        page = queue.pop()
        if page in reached or page.suffix != ".md":
            continue
        reached.add(page)
        queue += [(page.parent / link.partition("#")[0]).resolve() for link in links(page) if "://" not in link]
    assert [name_of(page) for page in PAGES if page not in reached] == []
