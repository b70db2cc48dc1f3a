"""Tools from functions, and what a model is told when its arguments do not fit."""

import contextlib
import dataclasses
import datetime as dt
import enum
import json
import re
from collections.abc import Callable
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from loom_dsl.errors import ToolDeclarationError, ToolValidationError
from loom_dsl.fields import Retry
from loom_dsl.tools.context import ToolContext
from loom_dsl.tools.risk import Risk
from loom_dsl.tools.tool import Tool, tool, validate_arguments


class Point(BaseModel):
    x: int
    y: int = 0


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


def look_up(
    context: ToolContext,
    path: str,
    limit: Annotated[int, Field(ge=1, le=9)] = 3,
    ratio: float = 0.5,
    mode: Literal["fast", "slow"] = "fast",
    tags: list[str] | None = None,
    at: Point | None = None,
) -> str:
    """Look something up.

    It may take a while.

    Args:
        path: Where to look,
            relative to the root.
        limit (int): How many.
        mode: fast: less exact.

    Returns:
        What was found.
    """
    return f"{context.job} {path} {limit} {ratio} {mode} {tags} {at}"


LOOK_UP = tool(look_up)


def test_a_function_becomes_a_tool_with_a_plain_schema() -> None:
    assert LOOK_UP.name == "look_up"
    assert LOOK_UP.description == "Look something up.\n\nIt may take a while."
    properties = LOOK_UP.parameters["properties"]
    assert list(properties) == ["path", "limit", "ratio", "mode", "tags", "at"]
    assert properties["path"] == {"type": "string", "description": "Where to look, relative to the root."}
    assert properties["limit"] == {
        "type": "integer",
        "minimum": 1,
        "maximum": 9,
        "default": 3,
        "description": "How many.",
    }
    assert properties["mode"]["enum"] == ["fast", "slow"]
    assert properties["mode"]["description"] == "fast: less exact."
    assert LOOK_UP.parameters["required"] == ["path"]
    assert LOOK_UP.parameters["additionalProperties"] is False
    assert "title" not in json.dumps(LOOK_UP.parameters)
    assert "context" not in json.dumps(LOOK_UP.parameters)


def test_promises_follow_from_read_only_unless_given() -> None:
    reader = tool(look_up, read_only=True)
    assert (reader.concurrency_safe, reader.idempotent, reader.risk) == (True, True, Risk.LOW)
    assert (LOOK_UP.concurrency_safe, LOOK_UP.idempotent, LOOK_UP.risk) == (False, False, Risk.MEDIUM)
    other = tool(look_up, read_only=True, concurrency_safe=False, risk=Risk.HIGH)
    assert (other.concurrency_safe, other.risk) == (False, Risk.HIGH)


def test_the_decorator_takes_options_or_none_and_leaves_the_function_callable() -> None:
    @tool
    def double(n: int) -> int:
        return 2 * n

    @tool(name="triple-it", timeout=5, description="Three times.")
    async def triple(n: int) -> int:
        return 3 * n

    assert double(4) == 8
    assert (double.is_async, triple.is_async) == (False, True)
    assert (triple.name, triple.timeout, triple.description) == ("triple-it", 5, "Three times.")
    assert tool(double) is double
    with pytest.raises(ToolDeclarationError, match="already"):
        tool(double, read_only=True)


def test_binding_gives_the_function_its_own_types_and_the_context(tmp_path: Any) -> None:
    context = ToolContext(working_dir=tmp_path, job="j1")
    arguments = validate_arguments(LOOK_UP, '{"path": "a", "at": {"x": 1}, "ratio": 2}')
    assert arguments == {
        "path": "a",
        "limit": 3,
        "ratio": 2.0,
        "mode": "fast",
        "tags": None,
        "at": {"x": 1, "y": 0},
    }
    keywords = LOOK_UP.bind(arguments, context)
    assert keywords["at"] == Point(x=1, y=0)
    assert LOOK_UP(**keywords).startswith("j1 a 3 2.0 fast None x=1")


def test_canonical_arguments_stay_as_they_are_when_validated_again() -> None:
    @tool
    def many(day: dt.date, colour: Colour, pair: tuple[int, str], raw: dict[str, list[int]]) -> str:
        return f"{day!r} {colour} {pair} {raw}"

    text = '{"day": "2026-01-31", "colour": "blue", "pair": [1, "a"], "raw": {"k": [1]}}'
    once = validate_arguments(many, text)
    assert validate_arguments(many, once) == once == json.loads(text)
    assert many.bind(once, ToolContext(working_dir=None)) == {  # type: ignore[arg-type]
        "day": dt.date(2026, 1, 31),
        "colour": Colour.BLUE,
        "pair": (1, "a"),
        "raw": {"k": [1]},
    }


def test_parameters_may_have_names_that_pydantic_uses_itself() -> None:
    @tool
    def odd(schema: str, json: int, model_config: bool, _hidden: str = "x", copy: str | None = None) -> str:
        return schema

    assert list(odd.parameters["properties"]) == ["schema", "json", "model_config", "_hidden", "copy"]
    arguments = validate_arguments(odd, {"schema": "s", "json": 1, "model_config": True, "_hidden": "h"})
    assert odd(**odd.bind(arguments, ToolContext(working_dir=None))) == "s"  # type: ignore[arg-type]


def test_none_as_a_default_makes_a_parameter_optional() -> None:
    @tool
    def find(name: str = None) -> str:  # type: ignore[assignment]  # noqa: RUF013
        return str(name)

    assert validate_arguments(find, "") == {"name": None}
    assert validate_arguments(find, '{"name": "x"}') == {"name": "x"}


def no_annotation(path, limit: int = 1):  # type: ignore[no-untyped-def]
    return path


def star(*paths: str) -> str:
    return ""


def double_star(**paths: str) -> str:
    return ""


def positional(path: str, /) -> str:
    return path


def unsupported(callback: Callable[[int], int]) -> str:
    return ""


def unknown_class(thing: re.Match[str]) -> str:
    return ""


def missing_name(path: "NotThere") -> str:  # type: ignore[name-defined]  # noqa: F821
    return ""


def wrong_default(limit: int = "three") -> str:  # type: ignore[assignment]
    return ""


def yields(n: int) -> Any:
    yield n


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (no_annotation, ["no_annotation", "'path'", "no annotation", "path: str"]),
        (star, ["'paths'", r"\*paths"]),
        (double_star, ["'paths'", r"\*\*paths"]),
        (positional, ["'path'", "positional-only"]),
        (unsupported, ["'callback'", "JSON cannot carry"]),
        (unknown_class, ["'thing'", "JSON cannot carry"]),
        (missing_name, ["'NotThere'", "not defined"]),
        (wrong_default, ["'limit'", "'three'", "does not fit"]),
        (yields, ["yields", "progress"]),
    ],
)
def test_a_function_that_cannot_be_a_tool_is_named_with_its_place(function: Any, words: list[str]) -> None:
    with pytest.raises(ToolDeclarationError, match=r"test_tools\.py:\d+") as caught:
        tool(function)
    for word in words:
        assert re.search(word, caught.value.message), caught.value.message


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"name": "a b"}, "not a name"),
        ({"timeout": 0}, "timeout"),
        ({"retry": 3}, "not idempotent"),
        ({"retry": 3, "read_only": True, "quick": True}, "quick"),
        ({"retry": 0, "idempotent": True}, "attempts from 1 to 1000"),
        ({"retry": True, "idempotent": True}, "attempts from 1 to 1000"),
        ({"retry": {"tries": 3}, "idempotent": True}, "attempts from 1 to 1000"),
        ({"quick": True}, "read_only"),
        ({"path_arguments": ("file",)}, "'file'"),
    ],
)
def test_a_contradiction_in_the_options_is_refused(options: dict[str, Any], word: str) -> None:
    with pytest.raises(ToolDeclarationError, match=word):
        tool(look_up, **options)


@pytest.mark.parametrize("given", [4, Retry(attempts=4), {"attempts": 4, "initial": "1s"}])
def test_how_often_a_function_is_called_is_a_number_or_more_exact(given: Any) -> None:
    assert tool(look_up, idempotent=True, retry=given).retry == Retry(attempts=4, initial=1, backoff=2, longest=60)


def test_a_lambda_needs_a_name() -> None:
    with pytest.raises(ToolDeclarationError, match="not a name"):
        tool(lambda: "x")


@pytest.mark.parametrize(
    "raw",
    [
        '{"path": "a"}',
        ' \n{"path": "a"}\n',
        '```json\n{"path": "a"}\n```',
        '```\n{"path": "a"}```',
        '"{\\"path\\": \\"a\\"}"',
        '{"path": "a",}',
        '{"path": "a" ,\n}',
        {"path": "a"},
    ],
)
def test_arguments_with_one_possible_reading_are_read(raw: Any) -> None:
    assert validate_arguments(LOOK_UP, raw)["path"] == "a"


def test_a_comma_behind_the_last_item_counts_for_nothing_and_in_a_text_for_itself() -> None:
    @tool
    def put(rows: list[list[int]], text: str) -> str:
        """Put something."""
        return text

    found = validate_arguments(put, '{"rows": [[1, 2,], [],], "text": "a,} \\",]",}')
    assert found == {"rows": [[1, 2], []], "text": 'a,} ",]'}


@pytest.mark.parametrize("raw", ['{"path": "a",,}', "{,}", '{"path": [,]}', '{"path": "a,}', '{"path": ,}'])
def test_other_commas_are_told(raw: str) -> None:
    with pytest.raises(ToolValidationError, match="not valid JSON"):
        validate_arguments(LOOK_UP, raw)


@pytest.mark.parametrize("raw", ["", "  ", "null", "{}", "```json\n```"])
def test_nothing_means_no_arguments(raw: str) -> None:
    @tool
    def now() -> str:
        """Tell the time."""
        return "now"

    assert now.parameters == {"additionalProperties": False, "properties": {}, "type": "object"}
    assert validate_arguments(now, raw) == {}


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        ('{"path": "a"', ["not valid JSON", "line 1, column 13"]),
        ('{"path": "a', ["Unterminated string starting at line 1, column 10"]),
        ('{"path": "a"}{"path": "b"}', ["not valid JSON", "column 14"]),
        ("{'path': 'a'}", ["not valid JSON", "column 2"]),
        ('{"path": "a", "path": "b"}', ["'path'", "twice"]),
        ('{"path": NaN}', ["NaN"]),
        ('{"path": "a", "ratio": 1e999}', ["too large"]),
        ('["a"]', ["one JSON object", "array with 1 items"]),
        ("5", ["one JSON object", "integer 5"]),
        ("[" * 100_000, ["nested too deeply|not valid JSON"]),
        ("{}", ["'path' is missing", "string"]),
        ('{"path": 5}', ["'path'", "expected string", "integer 5"]),
        ('{"path": "a", "limit": "5"}', ["'limit'", "expected integer", 'string "5"']),
        ('{"path": "a", "limit": true}', ["'limit'", "boolean true"]),
        ('{"path": "a", "limit": 5.0}', ["'limit'", "expected integer"]),
        ('{"path": "a", "limit": 10}', ["'limit'", "at most 9"]),
        ('{"path": "a", "limit": 0}', ["'limit'", "at least 1"]),
        ('{"path": "a", "mode": "quick"}', ["'mode'", 'one of "fast", "slow"', '"quick"']),
        ('{"path": "a", "tags": ["x", 1]}', ["'tags.1'", "expected string"]),
        ('{"path": "a", "tags": "x"}', ["'tags'", "array of string or null"]),
        ('{"path": "a", "at": {"y": 1}}', ["'at.x' is missing"]),
        ('{"pth": "a"}', ["'pth'", "did you mean 'path'", "'path' is missing"]),
        ('{"path": "a", "context": 1}', ["'context' is not an argument", "it takes: path, limit"]),
        ('{"path": "\\ud800"}', ["look_up"]),
        ('{"path": ' + '"' + "x" * 500 + '", "limit": "' + "y" * 500 + '"}', ["500|502", "characters"]),
    ],
)
def test_a_model_is_told_what_is_wrong(raw: str, words: list[str]) -> None:
    with pytest.raises(ToolValidationError) as caught:
        validate_arguments(LOOK_UP, raw)
    message = caught.value.message
    assert message.startswith("look_up: ")
    assert "Check types and format, then call again." in message
    assert len(message) < 700
    for word in words:
        assert re.search(word, message), message


def test_a_tool_without_a_model_is_checked_by_its_schema() -> None:
    node = {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}, "n": {"type": "integer"}}}
    schema = {
        "type": "object",
        "properties": {"q": {"type": "string", "minLength": 2}, "tree": {"$ref": "#/$defs/node"}},
        "required": ["q"],
        "additionalProperties": False,
        "$defs": {"node": node},
    }
    foreign = Tool(name="foreign", description="", parameters=schema, function=lambda **_: "")
    given = {"q": "ab", "tree": {"next": {"n": 1}}}
    assert validate_arguments(foreign, given) == given
    with pytest.raises(ToolValidationError, match=r"'tree\.next\.n': expected integer, got string"):
        validate_arguments(foreign, {"q": "ab", "tree": {"next": {"n": "1"}}})
    with pytest.raises(ToolValidationError, match="at least 2 characters, got 1"):
        validate_arguments(foreign, {"q": "a"})


def test_a_pydantic_model_of_ones_own_validates() -> None:
    class Query(BaseModel):
        text: str = Field(description="What to ask.", pattern="^[a-z]+$")

    @tool(arguments=Query)
    def ask(**arguments: str) -> str:
        return arguments["text"]

    assert ask.bind(validate_arguments(ask, '{"text": "abc"}'), ToolContext(working_dir=None)) == {"text": "abc"}  # type: ignore[arg-type]
    with pytest.raises(ToolValidationError, match=r"'text': expected string, got string \"A\""):
        validate_arguments(ask, '{"text": "A"}')


def test_dataclasses_are_arguments_too() -> None:
    @dataclasses.dataclass
    class Range:
        low: int
        high: int

    def pick(within: Range) -> int:
        return within.high - within.low

    pick.__annotations__["within"] = Range
    made = tool(pick)
    assert made(**made.bind({"within": {"low": 1, "high": 4}}, ToolContext(working_dir=None))) == 3  # type: ignore[arg-type]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@given(JSON | st.fixed_dictionaries({"path": st.text()}, optional={"limit": JSON, "ratio": JSON, "tags": JSON}))
def test_whatever_a_model_sends_is_accepted_in_full_or_refused_with_a_message(value: Any) -> None:
    try:
        once = validate_arguments(LOOK_UP, json.dumps(value))
    except ToolValidationError:
        return
    assert validate_arguments(LOOK_UP, once) == once


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(ToolValidationError):
        assert "path" in validate_arguments(LOOK_UP, text)
