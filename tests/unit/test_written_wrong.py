"""What is written wrong is told once, where it stands, by the field's name, and with what to write."""

import pytest

from loom_dsl.graph.compiler import check_text

HEAD = "loom: 1\nkind: graph\nname: g\n"


def told(text: str) -> list[str]:
    return [str(found) for found in check_text(text, "g")]


def one(text: str, place: str, *words: str) -> None:
    """There is one finding, at this place, and it says all of these words."""
    found = told(text)
    assert len(found) == 1, found
    assert found[0].startswith(f"g:{place} "), found[0]
    for word in words:
        assert word in found[0], found[0]


def work(more: str) -> str:
    return f"{HEAD}nodes:\n  a: {{activity: 'm:f', next: e, {more}}}\n  e: {{end: null}}\n"


def node(first: str) -> str:
    return f"{HEAD}nodes:\n  a: {{{first}, next: e}}\n  e: {{end: null}}\n"


def head(line: str) -> str:
    return f"{HEAD}{line}\nnodes:\n  a: {{activity: 'm:f', next: e}}\n  e: {{end: null}}\n"


@pytest.mark.parametrize(
    ("more", "column", "words"),
    [
        ("timeout: true", 42, ("L004", "`nodes.a.timeout`: should be a number, not true")),
        ("timeout: null", 42, ("L004", "`nodes.a.timeout`: should be a number or text, not null")),
        ("timeout: [5s]", 42, ("should be a number or text, not a list",)),
        ("timeout: -5s", 42, ("'-5s' is not a duration; write a number and a unit",)),
        ("timeout: 0s", 42, ("no attempt could be done in no time",)),
        ("heartbeat: 5x", 44, ("'5x' is not a duration",)),
        ("heartbeat: 2m", 44, ("L137", "write less than the timeout of 60 s")),
        ("retry: 3", 40, ("`nodes.a.retry`: write `{attempts: 3}`",)),
        ("retry: {attempts: '3'}", 51, ("should be a whole number, not '3'",)),
        ("retry: {backoff: inf}", 50, ("should be a number, not 'inf'",)),
        ("retry: {backoff: .inf}", 50, ("JSON has no number such as .inf",)),
        ("retry: {max: 3}", 41, ("unknown field `max` (known fields: attempts, backoff",)),
        ("max_visits: true", 45, ("should be a whole number, not true",)),
        ("max_visits: '3'", 45, ("should be a whole number, not '3'",)),
        ("catch: e", 40, ("write `{any: e}`",)),
        ("mutex: ''", 40, ("`nodes.a.mutex`: should say something",)),
        ("carrier: both", 42, ("should be 'remote' or 'local', or a `${…}`, not 'both'",)),
        ("events: hold", 41, ("should be 'carry' or 'leave'",)),
        ("only_while: '${input.x}'", 45, ("write the expression without `${` and `}`",)),
        ("compensate: m:g", 45, ("write `{activity: m:g, with: {…}}`",)),
        ("nextt: e", 33, ("did you mean `next`?",)),
        ("id: a", 33, ("a node's name is its key in `nodes`",)),
        ("with: {x: '${env:HOME}'}", 43, ("L134", "give it as `input`")),
        ("with: {'${input.k}': 1}", 39, ("L130", "a field's name is not computed")),
        ("emit: {x: \"${'a\\n'}\"}", 43, ("ends at the end of its line", "write `\\\\n` for `\\n`")),
    ],
)
def test_a_wrong_field_of_a_node(more: str, column: int, words: tuple[str, ...]) -> None:
    one(work(more), f"5:{column}:", *words)


@pytest.mark.parametrize(
    ("first", "column", "words"),
    [
        ("event: paid, key: x, deadline: never", 20, ("L002", "write `event: {name: paid, key: x}`")),
        ("event: '', deadline: never", 14, ("`nodes.a.event`: should say something",)),
        ("event: 5, deadline: never", 14, ("`nodes.a.event`: should be a mapping, not 5",)),
        ("llm: m, prompt: hi", 15, ("write `llm: {model: m, prompt: hi}`",)),
        ("llm: m", 12, ("write `{model: m, prompt: TEXT}`",)),
        ("llm: {model: m, prompt: x, temperature: 1}", 34, ("write it in `parameters`",)),
        ("approval: go?, choices: [a, b], deadline: never", 22, ("write `approval: {ask: go?, choices: …}`",)),
        ("approval: {ask: x, choices: []}, deadline: never", 35, ("should have at least 1 members",)),
        ("approval: {ask: x, choices: [a, a]}, deadline: never", 35, ("`a` stands there twice",)),
        ("approval: {ask: x, policy: {expire: 5m}}, deadline: never", 34, ("there is no such field", "expires")),
        ("approval: '', deadline: never", 17, ("a human is asked something",)),
        ("timer: {after: 5m, until: '2026-01-31T12:00:00Z'}", 14, ("this one has both; remove one",)),
        ("timer: {}", 14, ("this one has neither",)),
        ("timer: soon", 14, ("`nodes.a.timer`: 'soon' is not a duration",)),
        ("join: any", 13, ("`nodes.a.join`: should be 'all' or 'taken', not 'any'",)),
        ("join: {need: 1.5}", 20, ("`nodes.a.join.need`: should be a whole number or text, not 1.5",)),
        ("map: {over: [1], do: h}", 19, ('write it as text, such as `over: "[1, 2]"`',)),
        ("graph: 5", 14, ("`nodes.a.graph`: should be text, not 5",)),
        ("fail: ''", 13, ("`nodes.a.fail`: should be text",)),
        ("fail: {code: {a: 1}}", 20, ("goes into `details`, not a mapping",)),
        ("cancel: a", 15, ("L136", "cancels itself")),
        ("activity: “m:f”", 17, ("L150", "LEFT DOUBLE QUOTATION MARK")),
        ("activity: 'm:f()'", 17, ("L150", "names no function of a module")),
        ("end: .nan", 12, ("JSON has no number such as .nan (quote it",)),
        ("switch: x", 7, ("write `next: [{if: CONDITION, to: a}, {to: b}]`",)),
    ],
)
def test_a_wrong_kind_of_a_node(first: str, column: int, words: tuple[str, ...]) -> None:
    one(node(first), f"5:{column}:", *words)


@pytest.mark.parametrize(
    ("line", "column", "words"),
    [
        ("defaults: {timeot: 5m}", 12, ("L002", "did you mean `timeout`?")),
        ("defaults: {timeout: {a: 1}}", 21, ("`defaults.timeout`: should be a number, not a mapping",)),
        ("defaults: {timeout: 0s}", 21, ("no attempt could be done in no time",)),
        ("defaults: [1]", 11, ("`defaults`: should be a mapping, not a list",)),
        ("defaults: {retry: 3}", 19, ("write `{attempts: 3}`",)),
        ("start: null", 8, ("`start`: should be text, not null",)),
        ("start: x", 8, ("L101",)),
        ("version: 'v${input.x}'", 10, ("L134", "write it out")),
        ("input: {a: {type: str, default: '${input.b}'}}", 33, ("L134", "the default of `a`")),
        ("input: {a: string}", 12, ("write `str`",)),
        ("\u00a0env: {}", 1, ("NO-BREAK SPACE",)),
    ],
)
def test_a_wrong_head(line: str, column: int, words: tuple[str, ...]) -> None:
    one(head(line), f"4:{column}:", *words)


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("nods:\n  a: {end: 1}\n", "4:1:", ("did you mean `nodes`?",)),
        ("nodes: {}\n", "4:8:", ("should have at least 1 members",)),
        ("", "1:1:", ("missing field `nodes`",)),
        ("nodes:\n  a: {activity: 'm:f', next: b}\n  b: {end: a, foo: 1}\n", "6:15:", ("unknown field `foo`",)),
        ("nodes:\n  a: {activity: 'm:f', next: done}\n  don: {end: 1}\n", "5:30:", ("did you mean `don`?",)),
        ("nodes:\n  a: {end: 1}\n  b: {next: c}\n  c: {next: a}\n", "6:3:", ("nothing leads to `b`",)),
        ("nodes:\n  a: {end: 1, next: e}\n  e: {end: 1}\n", "5:21:", ("its `next` is never taken",)),
        ("nodes:\n  a: {activity: 'm:f', next: {to: e}}\n  e: {end: 1}\n", "5:31:", ("write the node's name alone",)),
        (
            "nodes:\n  a: {activity: 'm:f', next: {if: x, to: e}}\n  e: {end: 1}\n",
            "5:31:",
            ("write a list of edges",),
        ),
        (
            "nodes:\n  a: {activity: 'm:f', next: [{if: result.x == 1, to: e}, {else: e}]}\n  e: {end: 1}\n",
            "5:60:",
            ("write `{to: NODE}` as the last edge",),
        ),
        (
            "nodes:\n  a: {activity: 'm:f', next: {times: 2, to: [e]}}\n  e: {end: 1}\n",
            "5:30:",
            ("all tokens go to one node",),
        ),
        (
            "nodes:\n  a: {activity: 'm:f', next: {times: 5000, to: e}}\n  e: {end: 1}\n",
            "5:38:",
            ("L142", "at most 1,000 tokens"),
        ),
        (
            "nodes:\n  s: {next: [a, b]}\n  a: {next: j}\n  b: {next: j}\n"
            "  j: {join: {need: '${5}'}, next: e}\n  e: {end: 1}\n",
            "8:20:",
            ("L111", "needs 5 tokens, and 2 edges"),
        ),
        ("nodes:\n  a:{end: 1}\n", "5:3:", ("a colon needs a space after it",)),
        ("nodes:\n  a: {end: 'x}\n", "5:12:", ("unexpected end of stream",)),
        ("nodes:\n  a: {end: {{ x }}}\n", "5:13:", ('write an expression as a text: "${input.x}"',)),
        ("nodes:\n\ta: {end: 1}\n", "5:1:", ("indent with spaces",)),
        ("nodes:\n  a: {<<: {end: 1}}\n", "5:7:", ("merge keys",)),
        ("nodes:\n  a: {end: 1}\n---\nloom: 1\n", "6:1:", ("a second document starts here",)),
    ],
)
def test_a_wrong_document(text: str, place: str, words: tuple[str, ...]) -> None:
    one(HEAD + text, place, *words)


def test_the_name_of_a_shipped_graph_is_refused() -> None:
    one(node("activity: 'm:f'").replace("name: g", "name: loom.tool_node"), "3:7:", "L103", "another name")
