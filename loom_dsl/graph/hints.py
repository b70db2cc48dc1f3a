"""Fields of a node that stand where they do not belong: what they go with, and where they would."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pydantic import BaseModel

from loom_dsl.graph.edges import Node
from loom_dsl.graph.nodes import NODE_KINDS, kind_of

# What other languages of workflows call the kinds of nodes and their fields, and what is written here.


FIELDS: Mapping[str, str] = {
    **dict.fromkeys(("args", "arguments", "params", "parameters", "inputs", "input"), "with"),
    **dict.fromkeys(("on_error", "error", "errors", "catches"), "catch"),
    **dict.fromkeys(("concurrency", "parallel", "max_concurrency", "parallelism"), "window"),
    **dict.fromkeys(("goto", "then", "to", "transition"), "next"),
    **dict.fromkeys(("compensation", "rollback", "undo"), "compensate"),
}
"""Fields of nodes."""
_CHOICE = "`next: [{if: CONDITION, to: a}, {to: b}]`"
KINDS: Mapping[str, str] = {
    **dict.fromkeys(("wait", "sleep", "delay", "pause"), "`timer: 5m`"),
    **dict.fromkeys(("foreach", "for_each", "each", "for"), "`map: {over: EXPRESSION, do: GRAPH}`"),
    **dict.fromkeys(("parallel", "fork", "branches"), "`next: [a, b]`, and let them meet in a node with `join: all`"),
    **dict.fromkeys(("human", "interrupt", "user_task", "confirm"), "`approval: TEXT`"),
    **dict.fromkeys(("prompt", "messages", "completion"), "`llm: {model: NAME, prompt: TEXT}`"),
    **dict.fromkeys(("switch", "choice", "choices", "condition", "conditions", "if", "cases"), _CHOICE),
    **dict.fromkeys(("http", "request", "script", "lambda", "python"), "`activity: MODULE:FUNCTION`, or `tool: NAME`"),
    **dict.fromkeys(("signal", "receive", "listen"), "`event: NAME`"),
    **dict.fromkeys(("while", "until", "repeat", "do_while"), "`loop: {do: GRAPH, until: CONDITION, max: 5}`"),
    **dict.fromkeys(("subgraph", "subflow", "workflow"), "`graph: NAME`"),
    **dict.fromkeys(("assign", "variables"), "`set: {FIELD: VALUE}`"),
    **dict.fromkeys(("return", "output", "result"), "`end: VALUE`"),
    **dict.fromkeys(("raise", "throw"), "`fail: MESSAGE`"),
}
"""Kinds of nodes, by the keys that they have there."""
INSIDE: Mapping[str, Mapping[str, str]] = {
    "approval": {**dict.fromkeys(("message", "text", "prompt", "question", "title"), "ask"), "options": "choices"},
    "event": {"type": "name"},
    "fail": {"error": "code", "cause": "message", "reason": "message"},
    "llm": {**dict.fromkeys(("messages", "user", "input"), "prompt"), "instructions": "system"},
    "loop": {**dict.fromkeys(("graph", "body", "steps"), "do"), "condition": "until"},
    "map": {
        **dict.fromkeys(("items", "list", "in"), "over"),
        **dict.fromkeys(("graph", "body", "steps"), "do"),
        **dict.fromkeys(("sequential", "sequentially", "ordered", "serial", "one_by_one"), "in_order: true"),
    },
    "timer": {**dict.fromkeys(("duration", "seconds", "for"), "after"), "at": "until"},
}
"""Fields of what stands behind a kind's key, by the kind."""
EDGES: Mapping[str, str] = {
    **dict.fromkeys(("then", "goto", "target", "next"), "write `to`"),
    **dict.fromkeys(("condition", "unless"), "write `if`"),
    **dict.fromkeys(("else", "default", "otherwise"), "write `{to: NODE}` as the last edge"),
}
"""Fields of edges."""


SHORT: Mapping[str, str] = {
    "approval": "ask",
    "event": "name",
    "fail": "message",
    "join": "mode",
    "llm": "model",
    "loop": "do",
    "map": "over",
    "timer": "after",
}
"""What a text that stands behind a kind's key is, by the kind: ``event: paid`` is ``event: {name: paid}``."""


_A_LIST = "write a list of edges: `next: [{if: CONDITION, to: a}, {to: b}]`"
_OF_EDGES: Mapping[str, str] = {
    "to": "write the node's name alone, `next: NODE`, or a list of edges",
    **dict.fromkeys(("if", "then", "else"), _A_LIST),
}
"""Fields of an edge that stand in `next` itself."""


Suggest = Callable[[str, set[str]], str]
_KIND_WORDS = frozenset({"type", "kind", "resource", "uses", "call", "function", "run", "action", "step", "task"})
"""What other languages have for what a node does."""

_BEFORE = frozenset({"depends_on", "depends", "dependencies", "needs", "requires", "after"})
_OF_MODELS = frozenset({"temperature", "max_tokens", "top_p", "seed", "stop", "frequency_penalty", "presence_penalty"})
"""What models take, by the names that most providers have."""
_OF_MAPS: Mapping[str, str] = {
    **{name: "write `window`" for name, meant in FIELDS.items() if meant == "window"},
    **dict.fromkeys(("as", "item", "var", "variable"), "the item is always `item`, and its place in the list `index`"),
}
_SELDOM = frozenset({"phase", "state", "carrier", "events", "inbox"})
"""Fields that graphs of Loom itself use."""


def misplaced(data: Mapping[str, Any], path: Sequence[str | int], suggest: Suggest) -> tuple[str, str] | None:
    """Say what is wrong with a field of a node that the node's kind does not have, and what to do.

    Args:
        data: The document.
        path: Where the field stands.
        suggest: Asks for a name that is meant: ``suggest(word, candidates)`` gives a sentence, or nothing.

    Returns:
        Message and advice; None where the schema's own words are the better ones.
    """
    found = _node(data, path)
    if found is None:
        return None
    node, (*inner, field) = found
    kind = kind_of(node)
    if inner:
        return _inside(list(inner), str(field))
    if field in _spec_fields(kind) and not isinstance(node[kind], dict):
        return f"`{field}` is a field of `{kind}`", f"write `{nested(kind, node[kind], str(field), node[field])}`"
    kinds = [f"`{name}`" for name, model in NODE_KINDS.items() if field in _fields(model)]
    if kinds:
        has = "a node that only chooses the way" if kind == Node.kind else f"`{kind}`"
        if field == "timeout" and kind != Node.kind:
            return f"`timeout` does not go with {has}", "write `deadline: {after: 4h, to: NODE}`"
        return f"`{field}` does not go with {has}", f"it goes with {', '.join(kinds)}"
    if field in _KIND_WORDS and kind == Node.kind:
        known = ", ".join(f"`{name}`" for name in ("tool", "agent", "llm", "approval", "map", "end", "fail"))
        advice = f"a node's kind is the key that it has: `activity: MODULE:FUNCTION`, or {known}, …"
        return f"unknown field `{field}`", advice
    known_as = "a node's name is its key in `nodes`" if field in ("id", "name", "key") else ""
    if known_as or (field in KINDS and kind == Node.kind):
        return f"unknown field `{field}`", known_as or f"write {KINDS[str(field)]}"
    fields = _fields(NODE_KINDS.get(kind, Node)) | (set(NODE_KINDS) if kind == Node.kind else set())
    return _unknown(str(field), fields, suggest)


def nested(kind: str, value: Any, *more: Any) -> str:
    """Write a kind's key with its value as a mapping: ``event: {name: paid, key: …}``."""
    fields = [f"{SHORT[kind]}: {_brief(value)}", *(f"{name}: {_brief(given)}" for name, given in [more] if more)]
    return f"{kind}: {{{', '.join(fields)}}}"


def _brief(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= 40 and "\n" not in text and not set(text) & set("{}[],\"'") else "…"


def _spec_fields(kind: str) -> set[str]:
    """The fields of what stands behind a kind's key; none where that is no mapping of fields."""
    spec = NODE_KINDS[kind].model_fields[kind].annotation if kind in SHORT else None
    found = _fields(spec) if isinstance(spec, type) and issubclass(spec, BaseModel) else set()
    return found | ({"ask"} if kind == "approval" else set())


def _inside(inner: list[Any], field: str) -> tuple[str, str] | None:
    """What is said of a field of what stands inside a node, by the path to that."""
    unknown = f"unknown field `{field}`"
    if inner == ["approval"] and field == "timeout":
        return unknown, "write `deadline: {after: 4h, to: NODE}` beside `approval`"
    if len(inner) == 1 and field in INSIDE.get(inner[0], {}):
        return unknown, f"write `{INSIDE[inner[0]][field]}`"
    if inner == ["map"] and (advice := _OF_MAPS.get(field, "")):
        return unknown, advice
    if inner == ["llm"] and field in _OF_MODELS:
        return unknown, f"write it in `parameters`: `parameters: {{{field}: …}}`"
    if inner == ["next"] and field in _OF_EDGES:
        return unknown, _OF_EDGES[field]
    if inner[0] == "next" and isinstance(inner[-1], int) and field in EDGES:
        return unknown, EDGES[field]
    if len(inner) == 1 and field in _fields(Node):
        return f"`{field}` is no field of `{inner[0]}`", f"write it beside `{inner[0]}`, not in it"
    return None


def _unknown(field: str, known: set[str], suggest: Suggest) -> tuple[str, str]:
    """What is said of a field that no node has, by those that this kind of node has."""
    if field in _BEFORE:
        return f"unknown field `{field}`", "an edge is said where it begins: give the node before this one `next: …`"
    alias = FIELDS.get(field, "")
    if alias in known:
        return f"unknown field `{field}`", f"write `{alias}`"
    hint = suggest(field, known)
    listed = ", ".join(sorted(known - _SELDOM))
    return (f"unknown field `{field}`; {hint}", "") if hint else (f"unknown field `{field}`", f"known fields: {listed}")


def _node(data: Any, path: Sequence[str | int]) -> tuple[Mapping[str, Any], Sequence[Any]] | None:
    """The node that a path leads into, and the rest of the path; None when it leads into none."""
    start = 2 if path[:1] == ("graphs",) else 0
    if path[start : start + 1] != ("nodes",) or len(path) < start + 3:
        return None
    for part in path[: start + 2]:
        data = data[part]
    return (data, path[start + 2 :]) if isinstance(data, dict) else None


def _fields(model: type[BaseModel]) -> set[str]:
    return {info.alias or name for name, info in model.model_fields.items()}
