"""How long a job waits before it looks again for a worker that can go on with it, with its store and its tools."""

AGAIN, LONGEST = 5.0, 3600.0
"""Seconds, at first and at most."""
DOUBLED = 2_500
"""Events of a run after which it waits twice as long. Each look is a dozen of them, which only the next run is rid of;
as nothing can be carried to that while something is in flight, and the server ends a run of 51,200, a job that looked
every five seconds would be lost in a night."""


def pause(events: int) -> float:
    """Give the seconds to wait, by the events of the run so far."""
    return float(min(LONGEST, AGAIN * 2 ** (events / DOUBLED)))
