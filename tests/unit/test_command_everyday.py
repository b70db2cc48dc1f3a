"""An ordinary day's lines run without a question where a careful team has said what may run."""

import pytest

from tests.support import lines_of_others
from tests.support.everyday_lines import EVERYDAY, NEEDLESS, POLICY, READING_ALL
from tests.unit.test_command_rules import verdict

ASKED = {*READING_ALL, *(line for lines in NEEDLESS.values() for line in lines)}


@pytest.mark.parametrize("line", EVERYDAY)
def test_an_everyday_line_asks_only_where_the_table_says_why(line: str) -> None:
    found = verdict(POLICY, line)
    assert found.decision == ("ask" if line in ASKED else "allow"), found.reason


def test_few_of_them_ask_needlessly() -> None:
    assert len(set(EVERYDAY)) > 300
    assert set(EVERYDAY) >= ASKED
    assert len(ASKED) - len(READING_ALL) < len(EVERYDAY) * 0.05


def test_few_lines_of_others_ask_and_none_is_refused() -> None:
    decided = [verdict(lines_of_others.POLICY, line).decision for line in lines_of_others.LINES]
    assert len(decided) == 500
    assert decided.count("deny") == 0
    assert decided.count("ask") <= 41
