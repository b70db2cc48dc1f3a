"""Random graphs of all kinds of nodes for the tests of pictures, and their edges as the normal form has them."""

from collections import Counter
from typing import Any

from hypothesis import strategies as st

from loom_dsl.graph.graph import Graph
from loom_dsl.graph.plan import Plan

WORDS_OF_MERMAID = ["end", "End", "style", "class", "graph", "subgraph", "default", "click", "start", "abort", "node"]
Edges = Counter[tuple[str, str, bool]]
"""Source, target, and whether the edge is not one of the node's results."""

ANY_TEXT = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), max_size=12)


def bodies_of_nodes(target: st.SearchStrategy[str], text: st.SearchStrategy[str]) -> st.SearchStrategy[dict[str, Any]]:
    """One of every kind, with the text where a user writes some."""
    return st.one_of(
        st.just({}),
        st.fixed_dictionaries({"activity": text}),
        st.fixed_dictionaries({"tool": text}),
        st.fixed_dictionaries({"agent": text}),
        st.builds(lambda model: {"llm": {"model": model, "prompt": "p"}}, text),
        st.builds(lambda said: {"approval": {"request": {"summary": said.replace("$", "")}}}, text),
        st.builds(lambda name: {"event": name}, text),
        st.sampled_from([{"timer": "5m"}, {"timer": {"until": "${input.at}"}}]),
        st.sampled_from(
            [{"join": "all"}, {"join": {"need": 2, "rest": "cancel"}}, {"join": {"threads": "${input.n}"}}]
        ),
        st.sampled_from([{"map": {"over": "input.list", "do": name}} for name in ("inner", "loom.tool_call", "g")]),
        st.just({"loop": {"do": "inner", "until": "result.done", "max": 5}}),
        st.sampled_from([{"graph": "inner"}, {"graph": "g"}]),
        st.builds(lambda arms: {"race": arms}, st.lists(target, min_size=2, max_size=3)),
        st.just({"set": {"a": 1}}),
        st.builds(lambda other: {"cancel": other}, target),
        st.just({"recurse": {}}),
        st.sampled_from([{"end": {"a": 1}}, {"end": None, "terminate": True}]),
        st.builds(lambda said: {"fail": {"message": said.replace("$", "")}}, text),
    )


@st.composite
def graphs(
    draw: st.DrawFn, text: st.SearchStrategy[str] = ANY_TEXT, most: int = 6, name: str = "g", inner: bool = False
) -> Graph:
    """A graph; nothing checks that it makes sense."""
    text = text.filter(str.strip)  # the schema takes no empty text where a name or a message stands
    identifiers = st.from_regex(r"[A-Za-z][A-Za-z0-9_]{0,8}", fullmatch=True)
    keys = draw(st.lists(identifiers | st.sampled_from(WORDS_OF_MERMAID), min_size=1, max_size=most, unique=True))
    target = st.sampled_from(keys)
    condition = text.map(lambda value: f"turn.x == {value.replace('&', 'and').replace('|', 'or')!r}")
    edge = st.fixed_dictionaries({"to": target}, optional={"if": condition})
    choices = st.lists(edge, max_size=3)
    split = st.builds(lambda to: {"times": 3, "to": to}, target)
    shared = st.fixed_dictionaries(
        {"next": choices | st.lists(target, max_size=3) | choices.map(lambda found: {"each": found}) | split},
        optional={
            "catch": st.dictionaries(st.sampled_from(["any", "timeout"]), target),
            "deadline": st.just("never")
            | st.fixed_dictionaries({"after": st.sampled_from([None, "5m", "${agent.x}"]), "to": target}),
            "exhausted": target,
            "max_visits": st.integers(1, 9),
            "mutex": text,
            "compensate": st.builds(lambda activity: {"activity": activity}, text),
            "phase": text,
        },
    )
    nodes = {key: {**draw(shared), **draw(bodies_of_nodes(target, text))} for key in keys}
    below = {"inner": draw(graphs(text, 3)).model_dump(include={"start", "nodes"}, by_alias=True)} if inner else {}
    return Graph.model_validate(
        {
            "name": name,
            "start": draw(target),
            "on_abort": draw(st.none() | target),
            "nodes": nodes,
            "graphs": below,
        }
    )


def plan_of(graph: Graph) -> Plan:
    """A plan of one document."""
    return Plan(graph.name, {graph.name: graph}, {})


def runs_inner(node: Any) -> bool:
    """Whether a node runs the graph ``inner``."""
    said = node.model_dump()
    return "inner" in ((said.get("map") or said.get("loop") or {}).get("do"), said.get("graph"))


def edges_in(document: dict[str, Any]) -> Edges:
    """The edges of a graph's normal form."""
    found = [("start", document["start"], False)]
    if document.get("on_abort"):
        found.append(("abort", document["on_abort"], False))
    for key, node in document["nodes"].items():
        ways = node.get("next", {})
        found += [(key, edge["to"], False) for edge in [*ways.get("first", []), *ways.get("each", [])]]
        found += [(key, to, False) for to in [*ways.get("all", []), *node.get("race", [])]]
        found += [(key, to, True) for to in node.get("catch", {}).values()]
        found += [(key, node["deadline"]["to"], True)] if node.get("deadline", {}).get("to") else []
        found += [(key, node["exhausted"], True)] if "exhausted" in node else []
    return Counter(found)
