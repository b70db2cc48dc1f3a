"""The schema of fake-model scripts, and which step answers which request."""

from typing import Any

import pytest
from pydantic import ValidationError

from loom_dsl.simulation.script import LAST_LIMIT, Script, fill

HEAD = {"loom": 1, "kind": "fake-model", "name": "demo"}


def script(**fields: Any) -> Script:
    return Script.model_validate({**HEAD, **fields})


@pytest.mark.parametrize(
    ("number", "expected"),
    [(0, "first"), (1, "many"), (1000, "many"), (1001, "last"), (1002, "(end of script)"), (10**9, "(end of script)")],
)
def test_a_repeated_step_stands_for_many_and_otherwise_comes_after_the_last(number: int, expected: str) -> None:
    told = script(steps=[{"say": "first"}, {"say": "many", "repeat": 1000}, {"say": "last"}])
    assert told.step(number).say == expected


@pytest.mark.parametrize(
    ("model", "opening", "expected"),
    [
        ("m", "You write.", "write"),
        ("m", "You review.", "review"),
        ("other", "You review.", "by model"),
        ("m", "Nothing known.", "plain"),
    ],
)
def test_the_first_case_that_fits_answers(model: str, opening: str, expected: str) -> None:
    told = script(
        steps=[{"say": "plain"}],
        cases=[
            {"when": {"model": "other"}, "steps": [{"say": "by model"}]},
            {"when": {"contains": "You write"}, "steps": [{"say": "write"}]},
            {"when": {"contains": "You review", "model": "m"}, "steps": [{"say": "review"}]},
        ],
    )
    assert told.step(0, model=model, opening=opening).say == expected


def test_a_case_that_has_run_out_does_not_fall_back_to_the_plain_steps() -> None:
    told = script(
        steps=[{"say": "plain"}, {"say": "plain"}], cases=[{"when": {"model": "m"}, "steps": [{"say": "case"}]}]
    )
    assert told.step(1, model="m").say == "(end of script)"


def test_placeholders_are_filled_in_nested_arguments_and_other_braces_stay() -> None:
    value = {"path": "f{n}.txt", "deep": [{"text": "{last}|{name}|{}"}], "count": 3, "none": None}
    assert fill(value, number=4, last="{n}") == {
        "path": "f5.txt",
        "deep": [{"text": "{n}|{name}|{}"}],
        "count": 3,
        "none": None,
    }


def test_a_long_last_result_is_cut() -> None:
    assert fill("{last}", number=0, last="x" * 1000) == "x" * (LAST_LIMIT - 1) + "…"


def test_durations_are_read_as_seconds() -> None:
    step = script(steps=[{"say": "a", "before": "200ms", "delay": "1m"}, {"hang": "2s"}, {"hang": True}]).steps
    assert (step[0].before, step[0].delay, step[1].hang, step[2].hang) == (0.2, 60.0, 2.0, True)


@pytest.mark.parametrize(
    ("step", "message"),
    [
        ({}, "a step needs one of"),
        ({"repeat": 3}, "a step needs one of"),
        ({"say": "a", "big": 3}, "not both"),
        ({"empty": True, "say": "a"}, "an `empty` step"),
        ({"say": "a", "times": 2}, "goes with hang"),
        ({"fail": {"status": 500}, "times": 2}, "fail: {times: n}"),
        ({"fail": {"status": 200}}, "greater than or equal to 400"),
        ({"say": "a", "delay": "20"}, "is not a duration"),
        ({"say": "a", "delay": -1}, "greater than or equal to 0"),
        ({"say": "a", "chunk": 0}, "greater than or equal to 1"),
        ({"says": "a"}, "Extra inputs"),
        ({"calls": [{"tool": "t", "args": {"a": 1}, "raw": "{"}]}, "`args` or `raw`"),
        ({"calls": [{"args": {}}]}, "Field required"),
    ],
)
def test_a_step_that_means_nothing_or_two_things_is_refused(step: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        script(steps=[step])


@pytest.mark.parametrize("fields", [{}, {"steps": []}, {"cases": [{"when": {}, "steps": []}]}])
def test_a_script_that_says_nothing_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        script(**fields)


def test_a_script_may_be_one_answer_for_ever() -> None:
    assert script(otherwise={"say": "again"}).step(77).say == "again"
