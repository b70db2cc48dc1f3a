"""Text made fit for a terminal, and numbers for people."""

import pytest

from loom_cli.render.text import duration, plural, size
from loom_cli.render.timeline import short_arguments
from loom_dsl.text.printable import clock, one_line, visible


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a\tb\n", "a\tb\n"),
        ("\x1b[31mred", "\\x1b[31mred"),
        ("\x9b2J\x7f\x00", "\\x9b2J\\x7f\\x00"),
        ("over\rwritten\r\n", "over\\rwritten\n"),
        ("\u202egnp.exe", "\\u202egnp.exe"),
        ("\ud800", "\\ud800"),
        ("日本 é 👩‍🚀", "日本 é 👩‍🚀"),
    ],
)
def test_control_characters_are_visible(text: str, expected: str) -> None:
    assert visible(text) == expected
    assert visible(expected) == expected


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("", ""),
        ("{}", ""),
        ('{"path": "a.txt"}', "a.txt"),
        ('{"pattern": "x y", "path": "src", "limit": 3}', "x y path=src limit=3"),
        ('{"path": "a.md", "content": "one\\ntwo\\n"}', "a.md content=(8)"),
        ('{"path": "\\u001b[2J"}', "\\x1b[2J"),
        ("not json \x07", "not json \\x07"),
        ("[1, 2]", "[1, 2]"),
        ('{"path": "' + "x" * 100 + '"}', "x" * 59 + "…"),
    ],
)
def test_arguments_are_short(arguments: str, expected: str) -> None:
    assert short_arguments(arguments) == expected


def test_numbers_are_for_people() -> None:
    assert [size(count) for count in (7, 4100, 2_000_000)] == ["7", "4.1 K", "2.0 M"]
    spans = [0.0123, 3.42, 42, 125, 3600, 10_920, 90_000]
    assert [duration(span) for span in spans] == ["12 ms", "3.4 s", "42 s", "2 min 5 s", "1 h", "3 h 2 min", "1 d 1 h"]
    counts = [plural(1, "turn"), plural(1200, "turn"), plural(2, "entry", "entries")]
    assert counts == ["1 turn", "1,200 turns", "2 entries"]
    assert len(clock("2026-01-02T03:04:05Z", 0)) == len("2026-01-02 03:04")
    assert [len(clock(3600 * hours, 0)) for hours in (-11, 11, 24)] == [8, 8, 16], "a day later is not now"
    assert one_line("a\n b\t c", 4) == "a b…"
