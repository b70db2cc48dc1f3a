"""The models of a worker's environment: each is asked over a connection that is kept for all jobs."""

from collections.abc import Iterable, Mapping
from typing import Any

from activities.chat.client import ChatEndpoint, OnText, chat_body, endpoint_from_environment
from activities.chat.reply import ModelReply
from activities.chat.stream import Timeouts
from loom_dsl.errors import ConfigurationError, ModelAccessRefused


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

    def body(
        self, model: str, messages_json: Iterable[str], *, tools_json: str | None = None, parameters: Mapping[str, Any]
    ) -> bytes:
        """Write a request to a model, as `chat_body` does.

        Raises:
            ModelAccessRefused: The environment does not say where the model is, or with which key.
        """
        _, name = self._of(model)
        return chat_body(messages_json, model=name, tools_json=tools_json, parameters=parameters)

    async def ask(self, model: str, body: bytes, *, job: str, on_text: OnText) -> ModelReply:
        """Ask a model for a job, as `ChatEndpoint.stream` does.

        Raises:
            ModelAccessRefused: The environment does not say where the model is, or with which key.
        """
        endpoint, _ = self._of(model)
        return await endpoint.stream(body, on_text=on_text, timeouts=self._timeouts, headers={"x-loom-run": job})

    async def close(self) -> None:
        """Close the connections."""
        made, self._made = self._made, {}
        for endpoint, _ in made.values():
            await endpoint.aclose()

    def _of(self, model: str) -> tuple[ChatEndpoint, str]:
        if model not in self._made:
            try:
                self._made[model] = endpoint_from_environment(model, self._environment)
            except ConfigurationError as error:
                raise ModelAccessRefused(error.message) from None
        return self._made[model]
