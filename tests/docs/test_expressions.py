"""Every example of the reference of expressions gives what stands beside it."""

import json
import re
from typing import Any

import pytest

from loom_dsl.errors import ExpressionError
from loom_dsl.expr.compiler import MAX_DEPTH
from loom_dsl.expr.expression import MAX_SOURCE, ROOTS, compile_expression
from loom_dsl.expr.functions import FUNCTIONS
from loom_dsl.expr.template import compile_template
from loom_dsl.expr.values import FUEL, MAX_AT_ONCE, MAX_INTEGER, MAX_STEPS, MAX_TEXT, MAX_VOLUME, MORE_VOLUME, VOLUME
from tests.docs.markdown import ROOT, blocks

PAGE = ROOT / "docs/reference/expressions.md"
NAMES: dict[str, Any] = next(json.loads(block.text) for block in blocks(PAGE) if block.language == "json")


def rows(*head: str) -> list[list[str]]:
    """The rows of every table that has these last columns; code without its backticks."""
    found, wanted = [], False
    for line in PAGE.read_text(encoding="utf-8").split("\n"):
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if not line.startswith("|"):
            wanted = False
        elif tuple(cells[-len(head) :]) == head:
            wanted = True
        elif wanted and not line.startswith("|-"):
            found.append([re.sub(r"^`(.*)`$", r"\1", cell) for cell in cells])
    return found


EXAMPLES = [row[-2:] for row in rows("example", "gives")]


@pytest.mark.parametrize(("source", "value"), EXAMPLES, ids=[source for source, _ in EXAMPLES])
def test_an_example_gives_what_the_page_says(source: str, value: str) -> None:
    found = compile_expression(source).evaluate(NAMES)
    assert found == json.loads(value)
    assert type(found) is type(json.loads(value))


@pytest.mark.parametrize(("text", "value"), rows("text", "gives"), ids=lambda cell: cell)
def test_a_text_is_filled_as_the_page_says(text: str, value: str) -> None:
    assert compile_template(text).evaluate(NAMES) == json.loads(value)


@pytest.mark.parametrize(("source", "said"), rows("written", "said"), ids=lambda cell: cell)
def test_a_mistake_is_answered_as_the_page_says(source: str, said: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        compile_expression(source).evaluate(NAMES)
    assert said in caught.value.message
    assert caught.value.column is not None


def test_every_function_is_on_the_page_with_an_example() -> None:
    named = [row[0].partition("(")[0] for row in rows("what it gives", "example", "gives") if row[0]]
    assert sorted(named) == sorted(FUNCTIONS)


def test_every_name_is_on_the_page() -> None:
    assert sorted(row[0] for row in rows("name", "what it is") if "." not in row[0]) == sorted(ROOTS)


def test_the_limits_are_those_of_the_language() -> None:
    limits = [row[-1] for row in rows("what", "most")]
    grown = [f"{FUEL:,}, and {FUEL:,} more for each of those; {MAX_STEPS:,}"]
    grown += [f"{VOLUME:,}, and {MORE_VOLUME:,} more for each of those; {MAX_VOLUME:,}"]
    assert limits[:-1] == [f"{MAX_SOURCE:,}", f"{MAX_DEPTH}", *grown, f"{MAX_TEXT:,}", f"{MAX_AT_ONCE:,}"]
    assert MAX_INTEGER == 2**63
