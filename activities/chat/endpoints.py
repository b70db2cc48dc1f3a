"""The models of a worker's environment: each is asked over a connection that is kept for all jobs."""

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from activities.chat.client import ChatEndpoint, OnText, chat_body, endpoint_from_environment
from activities.chat.provider import NamedModel, named
from activities.chat.reply import ModelReply
from activities.chat.send_back import (
    STREAM_OPTIONS,
    asks_for_usage,
    refused_fields,
    send_back,
    variable,
    without_fields,
    writes_thoughts,
)
from activities.chat.stream import Timeouts
from loom_dsl.agent.provider_fields import SendBack
from loom_dsl.errors import ConfigurationError, ModelAccessRefused, ModelRequestRefused

Told = TypeVar("Told")
_LOG = logging.getLogger(__name__)


class Endpoints:
    """Asks models by the names that users give them.

    Args:
        environment: Says where models are, with which keys, and how long a call may wait.

    Raises:
        ConfigurationError: A time to wait is none.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment, self._timeouts = environment, Timeouts.from_environment(environment)
        self._made: dict[str, tuple[ChatEndpoint, str]] = {}
        self._send_back: dict[str, SendBack | None] = {}
        self._refused: defaultdict[str, frozenset[str]] = defaultdict(frozenset)
        """By model: fields that its provider has refused, and is not sent again while this worker lives."""

    def send_back(self, model: str) -> SendBack | None:
        """Say what a model's provider is sent of what it gave; None where the environment does not say who that is."""
        if model not in self._send_back:
            self._send_back[model] = self._found(model)
        return self._send_back[model]

    def body(
        self, model: str, messages_json: Iterable[str], *, tools_json: str | None = None, parameters: Mapping[str, Any]
    ) -> bytes:
        """Write a request to a model, as `chat_body` does.

        Raises:
            ModelAccessRefused: The environment does not say where the model is, or with which key.
        """
        _, name = self._of(model)
        usage = STREAM_OPTIONS not in self._refused[model] and self._read(asks_for_usage, model)
        return chat_body(messages_json, model=name, tools_json=tools_json, parameters=parameters, stream_options=usage)

    async def ask(self, model: str, body: bytes, *, job: str, on_text: OnText) -> ModelReply:
        """Ask a model for a job, as `ChatEndpoint.stream` does.

        A provider that refuses a field which the request can do without is asked again at once without it. What a model
        is known to think in its text is told as its reasoning.

        Raises:
            ModelAccessRefused: The environment does not say where the model is, or with which key.
        """
        endpoint, _ = self._of(model)
        headers = {"x-loom-run": job}
        thinks = self._read(writes_thoughts, model)
        while True:
            try:
                return await endpoint.stream(
                    body, on_text=on_text, timeouts=self._timeouts, headers=headers, thinks=thinks
                )
            except ModelRequestRefused as error:
                refused = refused_fields(body, error.message)
                if not refused:
                    raise
                self._learn(model, refused)
                body = without_fields(body, refused)

    async def close(self) -> None:
        """Close the connections."""
        made, self._made = self._made, {}
        for endpoint, _ in made.values():
            await endpoint.aclose()

    def _read(self, switch: Callable[[NamedModel, Mapping[str, str]], Told], model: str) -> Told:
        try:
            return switch(named(model, self._environment), self._environment)
        except ConfigurationError as error:
            raise ModelAccessRefused(error.message) from None

    def _learn(self, model: str, refused: frozenset[str]) -> None:
        new = refused - self._refused[model]
        self._refused[model] |= refused
        self._send_back.pop(model, None)
        place = named(model, self._environment)
        for name in sorted(new):
            what = "STREAM_OPTIONS=off" if name == STREAM_OPTIONS else "SEND_BACK=none"
            fix = f"{variable(place, what)} keeps it from being tried"
            _LOG.warning(
                "%s refuses the field `%s` for %s; it is left out from now on. %s", place.host, name, model, fix
            )

    def _found(self, model: str) -> SendBack | None:
        try:
            return send_back(named(model, self._environment), self._environment, self._refused[model])
        except ConfigurationError:
            return None

    def _of(self, model: str) -> tuple[ChatEndpoint, str]:
        if model not in self._made:
            try:
                self._made[model] = endpoint_from_environment(model, self._environment)
            except ConfigurationError as error:
                raise ModelAccessRefused(error.message) from None
        return self._made[model]
