"""What other languages of workflows call the kinds of nodes and their fields, and what is written here."""

from collections.abc import Mapping

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
    "map": {**dict.fromkeys(("items", "list", "in"), "over"), **dict.fromkeys(("graph", "body", "steps"), "do")},
    "timer": {**dict.fromkeys(("duration", "seconds", "for"), "after"), "at": "until"},
}
"""Fields of what stands behind a kind's key, by the kind."""
EDGES: Mapping[str, str] = {
    **dict.fromkeys(("then", "goto", "target", "next"), "write `to`"),
    **dict.fromkeys(("condition", "unless"), "write `if`"),
    **dict.fromkeys(("else", "default", "otherwise"), "write `{to: NODE}` as the last edge"),
}
"""Fields of edges."""
