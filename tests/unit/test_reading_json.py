"""JSON that others wrote: however deep it is nested, who reads or shows it says so, and fails in no other way."""

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from activities.observe.events import is_signal
from activities.tool_calls.node import value_of
from loom_cli.commands.approve.approve import arguments_of as edited_arguments
from loom_cli.project.policy import arguments_of as called_with
from loom_cli.render.timeline import short_arguments
from loom_dsl.errors import ToolValidationError, UserError
from loom_dsl.text.canonical import MAX_NESTING, canonical_json, read_json, read_json_or_text
from loom_dsl.tools.tool import tool, validate_arguments
from tests.unit.test_command_work import steps_of

DEEP = ["[" * 5_000, '{"a":' * 5_000, "[" * 900 + "]" * 900, '{"a":' * 900 + "1" + "}" * 900, "[" * 102 + "]" * 102]


@tool
def order(item: dict[str, Any], notes: list[Any] | None = None) -> str:
    """Order something."""
    return f"{item}{notes}"


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


def test_what_is_nested_as_deep_as_may_be_is_read_and_no_deeper() -> None:
    assert read_json(canonical_json(nested(MAX_NESTING))) == nested(MAX_NESTING)
    with pytest.raises(ValueError, match="nested over 100 levels"):
        read_json(canonical_json(nested(MAX_NESTING + 2)))


@pytest.mark.parametrize("text", DEEP, ids=lambda text: f"{text[:5]} {len(text)}")
def test_deep_arguments_are_refused_with_what_is_wrong(text: str) -> None:
    for arguments in (text, f'{{"item": {{"x": {text}}}}}', f'{{"notes": {text}}}', json.dumps(text)):
        with pytest.raises(ToolValidationError):
            validate_arguments(order, arguments)


@pytest.mark.parametrize(
    "read",
    [short_arguments, read_json_or_text, lambda text: value_of(text, None)],
    ids=["short_arguments", "turn_text and graph input", "output"],
)
@pytest.mark.parametrize("text", DEEP, ids=lambda text: f"{text[:5]} {len(text)}")
def test_deep_text_is_shown_and_told_as_text(read: Callable[[str], object], text: str) -> None:
    shown = read(text)
    assert isinstance(shown, str)
    assert shown[:20] == text[:20]
    assert read(f'{{"item": "a", "notes": {text}}}')


@pytest.mark.parametrize("text", DEEP, ids=lambda text: f"{text[:5]} {len(text)}")
def test_deep_arguments_at_the_command_line_are_told_as_what_they_are(text: str, tmp_path: Path) -> None:
    (file := tmp_path / "edited.json").write_text(text)
    with pytest.raises(UserError, match=r"nested over 100 levels|must be a JSON object"):
        edited_arguments(file)
    with pytest.raises(UserError, match="write its arguments as JSON"):
        called_with(order, f'{{"item": {text}}}')


def test_a_strangers_deep_signal_is_not_the_one_that_is_looked_for() -> None:
    for text in DEEP:
        assert not is_signal([SimpleNamespace(data=text.encode())], "0" * 64)


def test_a_name_that_is_given_twice_among_many_is_found_in_linear_time() -> None:
    names = [f'"n{number}":0' for number in range(30_000)]

    def refused() -> None:
        with pytest.raises(ToolValidationError, match="'n29999' is given twice"):
            validate_arguments(order, f"{{{','.join([*names, names[-1]])}}}")

    assert steps_of(refused) < 500_000
