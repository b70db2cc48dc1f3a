"""A job that waits for a worker looks for one soon at first, and never so often that the server ends it."""

import pytest

from workflows.waiting import AGAIN, LONGEST, pause

HOUR, DAY, MOST_EVENTS = 3600.0, 86_400.0, 51_200


def test_it_looks_soon_at_first_and_at_last_every_hour() -> None:
    assert pause(0) == AGAIN
    assert pause(500) < 1.2 * AGAIN
    assert pause(MOST_EVENTS) == LONGEST == HOUR


@pytest.mark.parametrize(("waiting", "days"), [(1, 60), (10, 14), (100, 2)])
def test_it_lives_for_long_however_much_of_it_waits(waiting: int, days: int) -> None:
    """Each look of one execution is six events, and what all of them share is another six."""
    events, seconds = 100, 0.0
    while events < MOST_EVENTS:
        seconds += pause(events)
        events += 6 * waiting + 6
    assert seconds > days * DAY
