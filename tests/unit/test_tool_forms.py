"""The ways to declare a tool: a function, a function with a pydantic model or a JSON schema, a class."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, Field

from loom_dsl.agent.definition import tool_reference
from loom_dsl.errors import ToolDeclarationError, ToolValidationError
from loom_dsl.tools.context import ToolContext
from loom_dsl.tools.risk import Risk
from loom_dsl.tools.tool import Tool, tool, validate_arguments
from loom_tools.registry import ToolRegistry

CONTEXT = ToolContext(working_dir=Path(), job="j1")


class Query(BaseModel):
    """What to look for."""

    city: str = Field(min_length=2)
    """Name of the city."""
    days: int = 1


SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string", "minLength": 2}, "days": {"type": "integer", "default": 1}},
    "required": ["city"],
    "additionalProperties": False,
}


@tool(read_only=True)
def by_signature(city: str, context: ToolContext, days: int = 1) -> str:
    """Tell the weather."""
    return f"{city} {days} {context.job}"


@tool(arguments=Query, read_only=True)
def by_model(context: ToolContext, city: str, days: int) -> str:
    """Tell the weather."""
    return f"{city} {days} {context.job}"


@tool(parameters=SCHEMA, read_only=True)
def by_schema(context: ToolContext, city: str, days: int = 1) -> str:
    """Tell the weather."""
    return f"{city} {days} {context.job}"


@tool
class HTTPWeather:
    """Tell the weather."""

    read_only = True
    timeout = 7
    risk = Risk.HIGH

    def __init__(self) -> None:
        self.asked = 0

    def is_available(self) -> bool:
        """Until it was asked."""
        return self.asked == 0

    def summarise(self, arguments: dict[str, Any]) -> str:
        """Name the city."""
        return f"weather of {arguments['city']}"

    def run(self, city: str, context: ToolContext, days: int = 1) -> str:
        """Look it up.

        Args:
            city: Name of the city.
        """
        self.asked += 1
        return f"{city} {days} {context.job}"


@tool(name="forecast")
class Slow:
    """Tell it later."""

    arguments = Query
    read_only = True

    async def run(self, context: ToolContext, city: str, days: int) -> str:
        """Wait."""
        await asyncio.sleep(0)
        return f"{city} {days} {context.job}"


FORMS: list[Any] = [by_signature, by_model, by_schema, HTTPWeather, Slow]


@pytest.mark.parametrize("made", FORMS, ids=lambda made: made.name)
def test_each_form_validates_and_runs_alike(made: Tool) -> None:
    assert isinstance(made, Tool)
    assert made.read_only
    assert list(made.parameters["properties"]) == ["city", "days"]
    for wrong in ({}, {"city": 1}, {"city": "Rome", "day": 2}, {"city": "Rome", "days": "2"}):
        with pytest.raises(ToolValidationError):
            validate_arguments(made, wrong)
    arguments = validate_arguments(made, {"city": "Rome", "days": 2})
    result = made(**made.bind(arguments, CONTEXT))
    assert (asyncio.run(result) if made.is_async else result) == "Rome 2 j1"


def test_a_class_says_its_promises_as_attributes() -> None:
    made: Any = HTTPWeather
    assert (made.name, made.timeout, made.risk, made.description) == (
        "http_weather",
        7,
        Risk.HIGH,
        "Tell the weather.",
    )
    assert made.parameters["properties"]["city"]["description"] == "Name of the city."
    assert made.summarise({"city": "Rome"}) == "weather of Rome"
    fresh: Any = tool(type("Fresh", (), {"run": lambda self: "x", "is_available": lambda self: False}))
    assert (fresh.name, fresh.is_available()) == ("fresh", False)
    assert Slow.name == "forecast"  # type: ignore[attr-defined]
    assert Slow.is_async  # type: ignore[attr-defined]


def test_a_worker_finds_each_form_by_its_reference() -> None:
    registry = ToolRegistry.load(modules=[__name__])
    for name in ("by_signature", "by_model", "by_schema", "HTTPWeather", "Slow"):
        made = registry.resolve(f"{__name__}:{name}")
        assert made.name == name
        assert tool_reference(made) == f"{__name__}:{name}"


class NoRun:
    """It does nothing."""


class NeedsMore:
    """It cannot be made."""

    def __init__(self, url: str) -> None:
        self.url = url

    def run(self) -> str:
        """Say where."""
        return self.url


@pytest.mark.parametrize(
    ("given", "options", "words"),
    [
        (NoRun, {}, "no method `run`"),
        (NeedsMore, {}, "cannot be made without arguments"),
        (by_signature.function, {"parameters": {"type": "array"}}, "JSON schema of an object"),
        (by_signature.function, {"parameters": SCHEMA, "arguments": Query}, "takes the place"),
    ],
)
def test_a_form_that_cannot_be_a_tool_is_refused(given: Any, options: Any, words: str) -> None:
    with pytest.raises(ToolDeclarationError, match=words):
        tool(given, **options)
