"""Untrusted content: what came from outside must not choose what is written, asked, sent or run."""

import json
import re
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from loom_dsl.messages import INJECTED, UNTRUSTED_TASK
from loom_dsl.named import texts_in
from loom_dsl.roles import Roles, may

UNTRUSTED_TOOLS = ("network_request", "mcp__*")
"""Tools whose results come from outside whatever they declare; a deployment's policy may trust some of them."""

_SHOWN = re.compile(r"What \S+ gave to look at \(call .*\):", re.DOTALL)
"""What Loom writes above a tool's images, which are a message of the user's as models take them."""


def is_untrusted(tool: str, declared: Container[str] = ()) -> bool:
    """Whether a tool's results come from outside: by its name, or since it is among those that say so."""
    return tool in declared or _is_one(tool, UNTRUSTED_TOOLS)


def first_untrusted(sources: Iterable[str], trusted: Sequence[str]) -> str:
    """Name the first of some tools with results from outside that nobody vouches for; empty: there is none."""
    return next((name for name in sources if not _is_one(name, trusted)), "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """What a conversation says about where its content comes from.

    Attributes:
        source: The first tool whose results nobody vouches for, and which was read here or by who wrote a task.
        sources: All tools with results from outside, also those that somebody vouches for.
        words: What people wrote. A task that another job wrote is nobody's words, but for those it passes on; a
            message that was injected is, unless its sender may not send one.
    """

    source: str = ""
    sources: tuple[str, ...] = ()
    words: str = ""


Speaks = Callable[[str, bool], bool]
"""Whether an injected message is a user's own words: by its sender's name, and whether they started the job."""


def speaks(roles: Roles) -> Speaks:
    """Say who speaks for the user: who started the job, and who may inject. Without a name it is nobody.

    Args:
        roles: The deployment's; where there are none, anybody may inject who says who they are.
    """
    return lambda by, own: own or bool(by.strip() and (not roles or may(roles, by, "inject")))


def only_starter(by: str, own: bool) -> bool:
    """Let only who started a job speak for its user: where nobody can be asked about roles."""
    return own


def hear(
    entries: Iterable[tuple[str, str]],
    trusted: Sequence[str],
    counts: Speaks = only_starter,
    declared: Container[str] = (),
) -> Heard:
    """Read a conversation.

    Args:
        entries: Messages as JSON, each after an empty name, and notes, each after its name; oldest first.
        trusted: Names of tools that the deployment trusts.
        counts: Who speaks for the user in messages that were injected.
        declared: Names of the tools that say of themselves that their results come from outside.
    """
    messages: list[dict[str, Any]] = []
    words: list[str] = []
    sources: list[str] = []
    foreign = False
    for note, text in entries:
        if note == UNTRUSTED_TASK:
            told = json.loads(text)
            sources += told["sources"]
            if first_untrusted(told["sources"], trusted):
                foreign = True
                words.append(told["words"])
        elif note == INJECTED:
            sent = json.loads(text)
            foreign = not counts(sent["by"], sent["own"])
        elif not note:
            message = json.loads(text)
            messages.append(message)
            if message.get("role") == "user":
                words += [] if foreign else [words_of_user([message])]
                foreign = False
    sources += sources_of(messages, declared)
    found = first_untrusted(sources, trusted)
    return Heard(source=found, sources=tuple(dict.fromkeys(sources)), words="\n".join(filter(None, words)))


def injected_note(message: Mapping[str, Any]) -> str:
    """Write the note that stands before a message of the inbox: who sent it."""
    own = message.get("own") is True
    return json.dumps({"by": str(message.get("by", "")), "own": own}, ensure_ascii=False)


def task_note(sources: Iterable[str], words: str) -> str:
    """Write the note that stands before a task which was written after content from outside was read.

    Args:
        sources: The tools that gave it.
        words: What people said to whoever wrote the task.
    """
    return json.dumps({"sources": list(sources), "words": words}, ensure_ascii=False)


def sources_of(messages: Iterable[Mapping[str, Any]], declared: Container[str] = ()) -> list[str]:
    """Name the tools in a conversation that gave results from outside, each once, in order."""
    known = list(messages)
    names = {call["id"]: call["function"]["name"] for message in known for call in message.get("tool_calls") or ()}
    told = (names.get(message.get("tool_call_id", ""), "") for message in known if message.get("role") == "tool")
    return list(dict.fromkeys(name for name in told if is_untrusted(name, declared)))


def words_of_user(messages: Iterable[Mapping[str, Any]]) -> str:
    """Give everything that the user wrote; images, and what Loom writes above those of tools, are no words."""
    told = (_written(message.get("content")) for message in messages if message.get("role") == "user")
    return "\n".join(text for text in told if text)


def _written(content: Any) -> str:
    if isinstance(content, str):
        return "" if _SHOWN.fullmatch(content) else content
    parts = [part.get("text") for part in content or () if isinstance(part, dict) and part.get("type") == "text"]
    texts = [text for text in parts if isinstance(text, str)]
    return "" if len(texts) == 1 and _SHOWN.fullmatch(texts[0]) else "\n".join(texts)


def words_in(value: Any) -> str:
    """Give all texts of a JSON value, each on a line: what people said who gave it as a graph's input."""
    return "\n".join(texts_in(value))


def _is_one(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
