"""Untrusted content: what came from outside must not choose what is written, asked, sent or run."""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from loom_dsl.messages import INJECTED, UNTRUSTED_TASK
from loom_dsl.permission_traits import ToolTraits
from loom_dsl.roles import Roles, may

UNTRUSTED_TOOLS = ("network_request", "mcp__*")
"""Tools whose results come from outside; a deployment's policy may trust some of them."""
LONGEST_TARGET = 300
"""Characters of an argument that may be a name, an address or a recipient; a longer one is content."""


_SHOWN = re.compile(r"What \S+ gave to look at \(call .*\):", re.DOTALL)
"""What Loom writes above a tool's images, which are a message of the user's as models take them."""


def is_untrusted(tool: str) -> bool:
    """Whether a tool's results come from outside, by its name."""
    return _is_one(tool, UNTRUSTED_TOOLS)


def first_untrusted(sources: Iterable[str], trusted: Sequence[str]) -> str:
    """Name the first of some tools that nobody vouches for; empty: there is none."""
    return next((name for name in sources if is_untrusted(name) and not _is_one(name, trusted)), "")


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


def hear(entries: Iterable[tuple[str, str]], trusted: Sequence[str], counts: Speaks = only_starter) -> Heard:
    """Read a conversation.

    Args:
        entries: Messages as JSON, each after an empty name, and notes, each after its name; oldest first.
        trusted: Names of tools that the deployment trusts.
        counts: Who speaks for the user in messages that were injected.
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
    sources += sources_of(messages)
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


def sources_of(messages: Iterable[Mapping[str, Any]]) -> list[str]:
    """Name the tools in a conversation that gave results from outside, each once, in order."""
    known = list(messages)
    names = {call["id"]: call["function"]["name"] for message in known for call in message.get("tool_calls") or ()}
    told = (names.get(message.get("tool_call_id", ""), "") for message in known if message.get("role") == "tool")
    return list(dict.fromkeys(name for name in told if is_untrusted(name)))


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


def unnamed(traits: ToolTraits, arguments: Mapping[str, Any], words: str) -> str:
    """Find what a call writes, asks or runs that the user's own words do not name.

    Returns:
        The first such thing; empty: the user named all of it.
    """
    for host in traits.hosts or ():
        if host is None or not re.search(rf"(?<![\w.@-]){re.escape(host)}(?![\w-]|\.\w)", words):
            return host or "the address"
    return next((target for target in _targets(traits, arguments) if not _is_named(target, words)), "")


def _targets(traits: ToolTraits, arguments: Mapping[str, Any]) -> Iterator[str]:
    found = False
    if traits.command_argument:
        found = True
        yield str(arguments.get(traits.command_argument, ""))
    if traits.paths is not None:
        found = True
        yield from traits.paths
    if not found and traits.hosts is None:
        texts = [text for text in _texts(list(arguments.values())) if len(text) <= LONGEST_TARGET]
        yield from texts or [f"a call of {traits.name}"]


def words_in(value: Any) -> str:
    """Give all texts of a JSON value, each on a line: what people said who gave it as a graph's input."""
    return "\n".join(_texts(value))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from _texts(item)
    elif isinstance(value, str):
        yield value


def _is_named(target: str, words: str) -> bool:
    """Whether the words hold it as a whole: `a.md` is not named by `data.md`."""
    if not target.strip():
        return True
    return re.search(rf"(?<![\w./@-]){re.escape(target.strip())}(?![\w/@-]|\.\w)", words) is not None


def _is_one(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
