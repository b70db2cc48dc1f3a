"""Long lists in one line: the first few, and how many more there are."""

import pytest

from loom_dsl.text.abridgement import abridge


@pytest.mark.parametrize(
    ("items", "most", "expected"),
    [
        ([], 2, ""),
        (["a"], 2, "a"),
        (["a", "b"], 2, "a, b"),
        (["a", "b", "c"], 2, "a, b and 1 more"),
        (("a", "b", "c", "d"), 1, "a and 3 more"),
        ([1, 2, 3], 2, "1, 2 and 1 more"),
    ],
)
def test_the_first_are_named_and_the_others_counted(items: list[object], most: int, expected: str) -> None:
    assert abridge(items, most) == expected


def test_clauses_have_their_own_marks_and_each_item_its_text() -> None:
    assert abridge(["a", "b"], 2, "`{}`".format) == "`a`, `b`"
    assert abridge(["a", "b", "c"], 2, str.upper, between="; ", rest="; and ") == "A; B; and 1 more"


def test_what_is_not_named_is_not_put_into_words() -> None:
    said: list[int] = []

    def say(item: int) -> str:
        said.append(item)
        return str(item)

    assert abridge(range(1_000), 2, say) == "0, 1 and 998 more"
    assert said == [0, 1]
