"""How long a model call may wait, and for what."""

import asyncio
import dataclasses
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from loom_dsl.duration import parse_duration
from loom_dsl.errors import ConfigurationError, ModelUnavailable

T = TypeVar("T")
_TAIL = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """How long a call may wait, in seconds.

    Attributes:
        connect: For a connection.
        first_byte: For the first byte of the answer's body, connecting included.
        idle: Between two reads after that; keep-alive comments count as reads.
        total: For the whole call. Time spent in the caller's callback counts, but is not interrupted.
    """

    connect: float = 10.0
    first_byte: float = 300.0
    idle: float = 120.0
    total: float = 1500.0

    @classmethod
    def from_environment(cls, env: Mapping[str, str]) -> "Timeouts":
        """Read them from LOOM_MODEL_CONNECT, _FIRST_BYTE, _IDLE and _TOTAL, such as ``90s`` or ``5m``.

        The defaults are made for models that think for minutes before they say a word.

        Raises:
            ConfigurationError: One of them is not a time.
        """
        given: dict[str, float] = {}
        for field in dataclasses.fields(cls):
            name = f"LOOM_MODEL_{field.name.upper()}"
            if text := env.get(name, "").strip():
                try:
                    given[field.name] = parse_duration(text)
                except ValueError as error:
                    raise ConfigurationError(f"{name}: {error}") from None
                if given[field.name] <= 0:
                    raise ConfigurationError(f"{name}: {text} is no time at all; write it as 90s or 5m")
        return cls(**given)


class Clock:
    """Bounds each wait of one call. The library's own read timeout knows no first byte and no total."""

    def __init__(self, host: str, timeouts: Timeouts) -> None:
        self._loop = asyncio.get_running_loop()
        self._host = host
        self._timeouts = timeouts
        self._idle = timeouts.idle
        self._start = self._loop.time()
        self.answering = False
        """Whether a byte of the answer was read."""

    async def wait(self, pending: Awaitable[T]) -> T:
        """Wait for the provider.

        Raises:
            ModelUnavailable: It takes too long.
        """
        first = self._start + self._timeouts.first_byte
        phase = self._loop.time() + self._idle if self.answering else first
        end = self._start + self._timeouts.total
        try:
            async with asyncio.timeout_at(min(phase, end)):
                return await pending
        except TimeoutError:
            raise ModelUnavailable(self._told(out_of_time=end <= phase)) from None

    def hurry(self) -> None:
        """Wait only shortly from now on: the message is whole, and only its usage may still come."""
        self._idle = min(self._idle, _TAIL)

    def _told(self, *, out_of_time: bool) -> str:
        limits = self._timeouts
        if out_of_time:
            return f"{self._host} did not finish its answer within {limits.total:g} s. LOOM_MODEL_TOTAL allows more."
        if self.answering:
            silent = f"{self._host} fell silent for {limits.idle:g} s in the middle of its answer"
            return f"{silent}. LOOM_MODEL_IDLE allows more."
        late = f"{self._host} did not begin to answer within {limits.first_byte:g} s"
        return f"{late}. Is the model loaded? LOOM_MODEL_FIRST_BYTE allows more."
