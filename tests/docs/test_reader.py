"""What somebody who follows a page takes for done."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.markdown import Block
from tests.docs.reader import Reader


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    with Reader(tmp_path) as reader:
        yield reader


def commands(text: str, *words: str) -> Block:
    return Block("page.md", 1, "bash", frozenset(words), {}, text)


def test_a_list_of_commands_fails_where_any_of_them_does(reader: Reader) -> None:
    with pytest.raises(AssertionError, match="this ended with 3"):
        reader.follow(commands("FIRST=$(exit 3) && SECOND=$(echo second)\n"))


def test_a_block_that_is_tried_again_ends_when_all_of_it_succeeds(reader: Reader) -> None:
    reader.follow(commands("FIRST=$(cat first || { echo first > first; exit 1; }) && SECOND=$(echo second)\n", "retry"))
    reader.follow(commands("echo $FIRST $SECOND\n"))
    assert reader.output == "first second\n"
