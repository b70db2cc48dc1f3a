"""A command line comes from a model: whatever it is, judging it takes bounded work, and what is not read is refused."""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_dsl.permissions.programs import traits_of_command
from loom_dsl.permissions.rules import commands_of
from loom_dsl.permissions.shell_line import MAX_CHARACTERS, MAX_COMMANDS, MAX_DEPTH, read_line
from tests.unit.test_command_rules import verdict

POLICY = {
    "allow": ["execute_bash", "execute_bash(a * b * c *)", "execute_bash(*a*a*a*b)"],
    "deny": [
        "execute_bash(* --force)",
        "execute_bash(* push --force --x -rf)",
        "execute_bash(*a*a*a*b * -x)",
        "*(**/secrets/**/*.key)",
        "*(domain:*.corp.example)",
    ],
}
MAX_STEPS = 2_500_000
"""Calls of functions for one line and the rules above: some tenths of a second. An ordinary line takes thousands."""


def steps_of(run: Callable[[], object]) -> int:
    """Count the calls of functions, Python's own included. It is the same number on every machine."""
    count = 0

    def seen(_frame: FrameType, _event: str, _argument: Any) -> None:
        nonlocal count
        count += 1

    before = sys.getprofile()
    sys.setprofile(seen)
    try:
        run()
    finally:
        sys.setprofile(before)
    return count


def judge(line: str) -> int:
    """Judge a line anew and give the steps."""
    read_line.cache_clear()
    traits_of_command.cache_clear()
    return steps_of(lambda: verdict(POLICY, line))


def filled(piece: str, room: int = MAX_CHARACTERS) -> str:
    """A line of one piece, again and again."""
    return (piece * (room // len(piece) + 1))[:room]


WORDS = [
    "env ",
    "a ",
    "sh ",
    "--x ",
    "sudo ",
    "xargs -I{} ",
    "curl -a ",
    "git -c ",
    "find -exec ",
    "bash -c '",
    "eval ",
]
SIGNS = [
    "$(",
    "`",
    "\\`",
    "'",
    '"',
    ";",
    "&",
    "&&",
    "|",
    "(",
    ")",
    "((",
    "{ ",
    "} ",
    ">a ",
    "~",
    "=!",
    "-S'",
    "${a:-",
    "a/",
]
FORMS = [
    "b\\;",
    "x() { ",
    "<<E\n",
    "\n",
    "a=b!c ",
    "[[ -v ",
    "x\\\n",
    "case a in ",
    "PAGER=",
    "A=$(",
    "=exec=",
    "python <<<",
]
PIECES = WORDS + SIGNS + FORMS


@pytest.mark.parametrize("piece", [*PIECES, "env a", "sh a/", "bash -c ''", "a |", "{ } >a; ", "git -c sh ", "sh -c "])
def test_a_line_of_one_piece_takes_bounded_work(piece: str) -> None:
    assert judge(filled(piece)) < MAX_STEPS


@pytest.mark.parametrize(
    "piece", ["cd {};", "cd {} ", "pushd ../{} ", "git -C {} x;", "xargs -I{} ", "find {} -exec cat "]
)
def test_a_line_of_many_places_and_marks_takes_bounded_work(piece: str) -> None:
    assert judge(filled("".join(piece.replace("{}", f"a{number}") for number in range(2_000)))) < MAX_STEPS
    assert judge(piece + filled("../a ")) < MAX_STEPS


@pytest.mark.parametrize(
    ("before", "pieces"),
    [
        ("env ", ["sh ", "sh "]),
        ("", ['"', "python <<<", "eval ", "python <<<", "} "]),
        ("env ", ["--x ", "bash -c '", '"', '"']),
        ("env ", ["-S'", "'", "eval "]),
        ("bash -c '", ["'", "--x "]),
        ("bash -c '", [")", ";", "'", "find -exec ", "-S'", "&&"]),
    ],
)
def test_words_that_stand_often_in_a_line_are_looked_at_once_for_each_rule(before: str, pieces: list[str]) -> None:
    """Looked at wherever they stand, they took up to two million steps."""
    assert judge(before + filled("".join(pieces), MAX_CHARACTERS - len(before))) < 1_000_000


@given(st.sampled_from(["", "env ", "bash -c '"]), st.lists(st.sampled_from(PIECES), min_size=2, max_size=6))
def test_a_line_of_any_pieces_takes_bounded_work(before: str, pieces: list[str]) -> None:
    assert judge(before + filled("".join(pieces), MAX_CHARACTERS - len(before))) < MAX_STEPS


@pytest.mark.parametrize(
    "line", ["env " * 2_400 + "git push --force", "a; " * 3_000 + "git push --force", "a " * 6_000]
)
def test_of_more_than_is_looked_at_nothing_is_known(line: str) -> None:
    reading = read_line(line)
    assert reading.unknown or len(commands_of(reading)) == MAX_DEPTH + 2
    assert len(reading.commands) <= MAX_COMMANDS
    found = verdict({"allow": ["execute_bash"], "deny": ["execute_bash(* --force)"]}, line)
    assert (found.decision != "allow", found.rule) == (True, "execute_bash(* --force)")
    asked = verdict({"allow": ["execute_bash"], "ask": ["execute_bash(rm *)"]}, line)
    assert asked.decision == "ask"


def test_a_long_command_is_still_read_to_its_end() -> None:
    tests = " ".join(f"tests/unit/test_number_{number}.py" for number in range(250))
    rules = {"allow": ["execute_bash", "execute_bash(pytest *)"], "deny": ["execute_bash(rm *)"]}
    assert verdict(rules, f"timeout 60 pytest {tests}").decision == "allow"
    assert verdict(rules, f"timeout 60 pytest {tests}; rm x").decision == "deny"


def test_a_pattern_of_many_stars_takes_linear_time() -> None:
    line = "echo " + "a" * (MAX_CHARACTERS - 20)
    found = verdict({"allow": ["execute_bash"], "deny": ["execute_bash(echo *a*a*a*a*a*a*b)"]}, line)
    assert found.decision == "allow"
    assert (
        verdict({"allow": ["execute_bash"], "deny": ["execute_bash(echo *a*b*a*c)"]}, "echo xabyac").decision == "deny"
    )
