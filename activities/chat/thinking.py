"""Reasoning that a model writes into its text, between ``<think>`` and ``</think>``, taken apart while it streams.

Many servers of open models do not take it out. It is neither part of the answer nor of the result.
"""

import re
from collections.abc import Awaitable, Mapping
from dataclasses import replace

from activities.chat.client import OnText
from activities.chat.provider import Named
from activities.chat.reply import ModelReply
from activities.chat.send_back import switch, variable

OPEN, CLOSE = "<think>", "</think>"
_THINKERS = re.compile(
    r"deepseek[-_/]?r1|deepseek-reasoner|(?:^|[^a-z0-9])r1(?:$|[^a-z0-9])|qwq|qwen[-_ ]?3|magistral"
    r"|glm[-_]?(?:4[.][5-9]|5|z1)|minimax[-_]?m\d|kimi[-_]k\d.*think|exaone[-_]deep|phi[-_]?4.*reasoning|nemotron|smollm3|cogito|hunyuan"
    r"|openthinker|marco-o1|skywork-o1|reka-flash-3|seed-oss|thinking|reasoner",
    re.IGNORECASE,
)


def writes_thoughts(place: Named, env: Mapping[str, str]) -> bool:
    """Whether a model is known to begin its text with its reasoning; ``NAME_THINK_TAGS`` is ``on`` or ``off``.

    Args:
        place: Where the model is.
        env: The environment variables.

    Raises:
        ConfigurationError: The variable is something else.
    """
    told = switch(env, variable(place, "THINK_TAGS"))
    return bool(_THINKERS.search(place.model)) if told is None else told


class ThoughtReader:
    """Divides a text that comes in pieces into reasoning and answer.

    Only reasoning at the text's beginning is taken for it: what an answer says of the tags later is its own.
    """

    def __init__(self) -> None:
        self.thoughts: list[str] = []
        """The reasoning so far, in pieces."""
        self._held = ""
        self._state = "begin"

    def feed(self, text: str) -> str:
        """Take a piece of text, and return what of it belongs to the answer."""
        if self._state == "answer":
            return text
        self._held += text
        if self._state == "begin":
            self._begin()
        if self._state == "thinking":
            self._think()
        if self._state == "after":
            self._after()
        if self._state != "answer":
            return ""
        held, self._held = self._held, ""
        return held

    def rest(self) -> str:
        """Return what was held back, at the text's end: a beginning that was no tag. Open reasoning stays reasoning."""
        held, self._held = self._held, ""
        if self._state == "thinking":
            self.thoughts.append(held)
        said = held if self._state == "begin" else ""
        self._state = "answer"
        return said

    def _begin(self) -> None:
        start = self._held.lstrip()
        if start.startswith(OPEN):
            self._held, self._state = start[len(OPEN) :], "thinking"
        elif not OPEN.startswith(start):
            self._state = "answer"

    def _think(self) -> None:
        thought, closed, rest = self._held.partition(CLOSE)
        if closed:
            self.thoughts.append(thought)
            self._held, self._state = rest, "after"
            return
        keep = next((n for n in range(len(CLOSE) - 1, 0, -1) if thought.endswith(CLOSE[:n])), 0)
        self.thoughts.append(thought[: len(thought) - keep])
        self._held = thought[len(thought) - keep :]

    def _after(self) -> None:
        self._held = self._held.lstrip()
        if self._held:
            self._state = "answer"


def divided(text: str) -> tuple[str, str]:
    """Divide a whole text into its reasoning and its answer.

    Where the opening tag stood in the request's template, the text has the closing one only.
    """
    reader = ThoughtReader()
    said = reader.feed(text) + reader.rest()
    if reader.thoughts:
        return "".join(reader.thoughts).strip(), said
    thought, closed, rest = said.partition(CLOSE)
    if not closed or OPEN in thought:
        return "", said
    return thought.strip(), rest.lstrip()


class WithoutThoughts:
    """Takes the text of a model's answer as it comes, passes on what is answer, and divides the whole at its end.

    Args:
        on_text: Called with each piece of the answer. What it raises ends the call.
    """

    def __init__(self, on_text: OnText) -> None:
        self._on_text, self._reader = on_text, ThoughtReader()

    def add(self, text: str) -> Awaitable[None] | None:
        """Take a piece of text."""
        said = self._reader.feed(text)
        return self._on_text(said) if said else None

    async def reply(self, reply: ModelReply) -> ModelReply:
        """Pass on what was held back, and give the whole answer without its reasoning."""
        if (said := self._reader.rest()) and (pending := self._on_text(said)) is not None:
            await pending
        thought, text = divided(reply.text)
        if not thought:
            return replace(reply, text=text)
        return replace(reply, text=text, reasoning="\n\n".join(filter(None, (reply.reasoning, thought))))
