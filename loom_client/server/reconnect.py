"""Calls that outlast the server: what only asks or waits goes on when the server is back."""

import asyncio
import contextlib
import functools
import logging
import threading
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from temporalio.client import Client
from temporalio.service import RPCError
from tenacity import (
    AsyncRetrying,
    RetryCallState,
    retry_if_exception,
    stop_after_delay,
    stop_never,
    wait_random_exponential,
)

from loom_client.server.errors import is_away, is_missing
from loom_client.server.namespace import look_up_namespace

MAX_PAUSE = 5.0
"""Seconds between two looks for a server that is away."""
PROBE_SECONDS = 3.0
SENT_SECONDS = 10.0
"""How long it is tried to send something: about as long as the SDK tries by itself."""
WAITED_SECONDS = 10.0
"""A call that lasted so long had reached the server, so its failure is a new one."""
MAX_BROKEN = 10
"""So often in a row a call may break off while the server answers other calls; then it is not the server's absence."""
MAX_MISSING = 5
"""So often a server that was just started is asked again for a job that it does not know."""
MISSING_SECONDS = 1.0
Result = TypeVar("Result")

_log = logging.getLogger("loom")


class Outages:
    """Tells of each outage of one server once, however many calls wait for it.

    Args:
        address: The server's.
    """

    def __init__(self, address: str) -> None:
        self._address, self._away, self._lock = address, False, threading.Lock()

    def begins(self) -> None:
        """Take note that the server does not answer."""
        self._turn(True, f"the Temporal server at {self._address} does not answer; waiting for it")

    def ends(self) -> None:
        """Take note that it does."""
        self._turn(False, f"the Temporal server at {self._address} answers again")

    def _turn(self, away: bool, told: str) -> None:
        with self._lock:
            changed, self._away = self._away is not away, away
        if changed:
            _teller[0](told)


_teller: list[Callable[[str], object]] = [_log.warning]


def tell_outages(tell: Callable[[str], object]) -> None:
    """Choose who is told when a server goes away and comes back; by default the log named `loom`."""
    _teller[0] = tell


@functools.cache
def outages_of(address: str) -> Outages:
    """Give what this process knows of a server's absence."""
    return Outages(address)


async def lasting(client: Client, call: Callable[[], Awaitable[Result]], within: float | None = None) -> Result:
    """Make a call, and make it again when the server was away and is back.

    Args:
        client: Of the server.
        call: What may be done twice: it only asks or waits, or sends what counts once.
        within: Seconds after which a failure is raised; None: it goes on without an end.

    Raises:
        RPCError: What the server said to it, and the last failure when the time is over.
    """
    patience = _Patience(client, within)
    async for attempt in AsyncRetrying(
        retry=retry_if_exception(patience.goes_on),
        stop=patience.stop,
        wait=wait_random_exponential(multiplier=0.1, max=1),
        before_sleep=patience.until_back,
        reraise=True,
    ):
        with attempt:
            patience.begins()
            return await call()
    raise AssertionError("unreachable")


async def tell_of_server(client: Client) -> None:
    """Tell of each outage of the server, until this is cancelled: for a worker, whose own calls the SDK makes."""
    while True:
        with contextlib.suppress(RPCError):
            await lasting(client, lambda: look_up_namespace(client, PROBE_SECONDS))
        await asyncio.sleep(MAX_PAUSE)


class _Patience:
    """Judges the failures of one call that lasts."""

    def __init__(self, client: Client, within: float | None) -> None:
        self._client = client
        self._outages = outages_of(client.service_client.config.target_host)
        self._end = None if within is None else time.monotonic() + within
        self._begun, self._broken, self._missing, self._asked = 0.0, 0, 0, False
        self.stop = stop_never if within is None else stop_after_delay(within)

    def begins(self) -> None:
        self._begun = time.monotonic()

    def goes_on(self, error: BaseException) -> bool:
        if time.monotonic() - self._begun > WAITED_SECONDS:
            self._broken = self._missing = 0
            self._asked = True
        if is_away(error):
            self._broken, self._asked = self._broken + 1, True
            return self._broken <= MAX_BROKEN
        # Who was answered, or lost the connection, asks a server that has just begun, and may not know the job yet.
        self._missing += 1
        return self._asked and isinstance(error, RPCError) and is_missing(error) and self._missing <= MAX_MISSING

    async def until_back(self, state: RetryCallState) -> None:
        """Wait until the server answers anything at all."""
        error = state.outcome.exception() if state.outcome else None
        if error is None or not is_away(error):
            await asyncio.sleep(MISSING_SECONDS)
            return
        stop = stop_never if self._end is None else stop_after_delay(max(0.0, self._end - time.monotonic()))
        async for attempt in AsyncRetrying(
            retry=retry_if_exception(self._still_away),
            stop=stop,
            wait=wait_random_exponential(multiplier=0.2, max=MAX_PAUSE),
            reraise=True,
        ):
            with attempt:
                await self._probe()
        self._outages.ends()

    def _still_away(self, error: BaseException) -> bool:
        if not is_away(error):
            return False
        self._broken = 0
        self._outages.begins()
        return True

    async def _probe(self) -> None:
        try:
            await look_up_namespace(self._client, PROBE_SECONDS)
        except RPCError as error:
            if is_away(error):
                raise
