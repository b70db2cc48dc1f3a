"""Whether a decision that comes again is the one that counted."""

from typing import Any

import pytest

from loom_client.edited_arguments import is_repeated
from loom_dsl.text.canonical import digest

ASKED = "a" * 64
ROW = {
    "choice": "approve", "by": "ann, bob", "message": "fine; good", "arguments_digest": ASKED, "details": {},
}  # fmt: skip
SAID = {"choice": "approve", "message": "fine", "remember": "no", "digest": ASKED}


@pytest.mark.parametrize(
    ("row", "by", "said", "same"),
    [
        ({}, "ann", {}, True),
        ({}, "ANN", {}, True),
        ({"by": "ann, bob"}, "bob", {"message": "good", "digest": ""}, True),
        ({}, "eve", {}, False),
        ({}, "", {}, False),
        ({}, "ann", {"choice": "reject"}, False),
        ({}, "ann", {"message": "else"}, False),
        ({}, "ann", {"remember": "job"}, False),
        ({"remember": "job"}, "ann", {"remember": "job"}, True),
        ({}, "ann", {"digest": "b" * 64}, False),
        ({"choice": None, "by": None, "message": None}, "ann", {}, False),
        ({"keys": ["key_1"]}, "ann", {}, False),
        ({}, "ann", {"signature": {"key": "key_1"}}, False),
        ({"edited": digest('{"a":1}')}, "ann", {"edited_arguments": {"a": 1}}, True),
        ({"edited": digest('{"a":1}')}, "ann", {"edited_arguments": {"a": 2}}, False),
        ({}, "ann", {"edited_arguments": {"a": 1}}, False),
    ],
)
def test_it_is_the_same_if_it_says_the_same_and_one_of_those_says_it_who_decided(
    row: dict[str, Any], by: str, said: dict[str, Any], same: bool
) -> None:
    assert is_repeated({**ROW, **row}, by, {**SAID, **said}) is same
