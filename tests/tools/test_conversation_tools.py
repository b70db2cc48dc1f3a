"""Tools that work on the conversation itself: its todo list, and outputs that were cut."""

from pathlib import Path
from typing import Any

import pytest

from loom_dsl.agent.definition import takes_images
from loom_dsl.errors import ToolError, ToolUnavailable, ToolValidationError
from loom_dsl.tools.context import TodoItem, ToolContext, ToolServices, read_todo, render_todo
from loom_dsl.tools.result import LIMIT, reference_of, success
from loom_dsl.tools.tool import validate_arguments
from loom_tools.registry import ToolRegistry


def call(name: str, services: ToolServices | None = None, **arguments: Any) -> str:
    made = ToolRegistry.load().resolve(name)
    context = ToolContext(working_dir=Path(), services=services or ToolServices())
    return str(made(**made.bind(validate_arguments(made, arguments), context)))


ITEMS = (
    TodoItem(text="read the  code\nall of it", status="done"),
    TodoItem(text="[x] write", status="in_progress"),
    TodoItem(text="test"),
)


def test_a_todo_list_is_written_so_that_it_can_be_read_back() -> None:
    text = render_todo(ITEMS)
    assert text == "Todo: 1 of 3 done\n[x] read the code all of it\n[>] [x] write\n[ ] test"
    assert read_todo(text) == ITEMS
    assert read_todo(render_todo(())) == ()


def test_a_todo_list_is_given_whole_or_read() -> None:
    items = [item.model_dump() for item in ITEMS]
    assert call("todo", items=items) == render_todo(ITEMS)
    kept = ToolServices(todo=lambda: ITEMS)
    assert call("todo", kept) == render_todo(ITEMS)
    assert call("todo", kept, items=[]) == "The todo list is empty."
    for wrong in ([{"text": " "}], [{"text": "x", "status": "never"}], [{"text": "x"}] * 101, "x"):
        with pytest.raises(ToolValidationError):
            call("todo", items=wrong)


def test_a_cut_output_says_how_to_read_what_was_left_out() -> None:
    output = "".join(f"{number:07}\n" for number in range(10_000))
    reference = reference_of("ab" * 32)
    message = success(output, reference=reference)
    assert message.cut
    assert len(message.content) <= LIMIT
    assert f"read_output(ref='{reference}', start=" in message.content
    start = int(message.content.partition("start=")[2].partition(")")[0])
    assert message.content.startswith(output[: start - 1] + "\n[... ")
    kept = ToolServices(output=lambda ref: output)
    text = call("read_output", kept, ref=reference, start=start, length=100)
    assert text.split("\n", 2)[2].startswith(output[start - 1 : start + 99])
    assert text.endswith(f"read on with start={start + 100}]")
    assert "[... 70000 characters" not in success(output).content
    assert "read_output" not in success(output).content
    assert not success("short", reference=reference).cut


def test_a_text_is_found_in_an_output() -> None:
    kept = ToolServices(output=lambda ref: "a needle b\n" * 100)
    text = call("read_output", kept, ref="out-1", find="needle", start=12)
    assert text.startswith("out-1: characters at which 'needle' stands\n14: ")
    assert text.endswith("[more from character 454 on]")
    assert "is not in" in call("read_output", kept, ref="out-1", find="thread")
    for arguments in ({"start": 9999}, {"find": ""}):
        with pytest.raises(ToolError):
            call("read_output", kept, ref="out-1", **arguments)
    with pytest.raises(ToolUnavailable):
        call("read_output", ref="out-1")


@pytest.mark.parametrize(
    ("model", "sees"),
    [
        *[(name, True) for name in ("gpt-4o", "gpt-4.1-mini", "openai:gpt-5", "o3", "o4-mini", "qwen2.5-vl-72b")],
        *[(name, True) for name in ("claude-sonnet-4", "anthropic:claude-3-5-haiku", "gemini-2.5-pro", "llava:13b")],
        *[(name, False) for name in ("gpt-3.5-turbo", "o3-mini", "o1-mini", "gpt-4o-audio-preview", "scripted")],
        *[(name, False) for name in ("llama-3.1-8b", "mistral-large", "deepseek-chat", "gpt-oss-20b", "foo3")],
    ],
)
def test_whether_a_model_takes_images_is_known_by_its_name_or_not_at_all(model: str, sees: bool) -> None:
    assert takes_images(model) is sees
