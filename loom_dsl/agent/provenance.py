"""What a user's own words name: targets, addresses, numbers. What they do not name, something else may have chosen."""

import json
import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any
from urllib.parse import unquote, urlsplit

from loom_dsl.agent.messages import INJECTED, UNTRUSTED_TASK
from loom_dsl.permissions.domains import host_of
from loom_dsl.permissions.roles import Roles, may
from loom_dsl.permissions.traits import ToolTraits

MAX_TARGET = 300
"""Characters of an argument that may be a name, an address or a recipient; longer prose is content."""
MAX_SHOWN = 120
"""Characters that are told of what was not named."""

_READS = frozenset({"GET", "HEAD", "OPTIONS"})
_CARRY = ("body", "headers")
"""The arguments of Loom's own requests that carry something to the host."""
_TARGETS = re.compile(
    r"to|b?cc|recipients?|receivers?|address(?:es)?|e?mails?|ur[li]|link|href|host|domain|server|endpoint|webhook|paths?|"
    r"file(?:name)?|folder|dir(?:ectory)?|destination|target|command|cmd|code|script|sql|query|account|iban|"
    r"user(?:name)?|channel|ids?|key"
)
"""Words in the name of an argument that holds who or what is meant, or what is run, and no prose."""
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_MAIL = re.compile(r"[^\s\"'<>()\[\],;:|@]{1,64}@[^\s\"'<>()\[\],;:|@]{1,253}")
_URL = re.compile(r"(?i:[a-z][a-z0-9+.-]{1,20}://|www\.)[^\s\"'<>()\[\]{}|]+")
_ENDS = ".,;:!?"
_NUMBER = re.compile(r"(?<![\w.,])[-\u2212]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?![\w]|[.,]\d)")


def unmentioned_target(traits: ToolTraits, arguments: Mapping[str, Any], words: str) -> str:
    """Find what a call writes, asks or runs that the user's own words do not name.

    Returns:
        The first such thing, shortened; empty: the user named all of it.
    """
    said = _Words(words)
    found = next((missing for missing in _missing(traits, arguments, said) if missing), "")
    return found if len(found) <= MAX_SHOWN else f"{found[: MAX_SHOWN - 1]}…"


def texts_in(value: Any) -> Iterator[str]:
    """Give all texts of a JSON value; keys are none."""
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from texts_in(item)
    elif isinstance(value, str):
        yield value


@dataclass(frozen=True)
class _Words:
    """What people wrote."""

    text: str

    @cached_property
    def plain(self) -> str:
        return " ".join(self.text.split())

    @cached_property
    def numbers(self) -> frozenset[Decimal]:
        found = (match[0].replace(",", "").replace("\u2212", "-") for match in _NUMBER.finditer(self.text))
        return frozenset(map(Decimal, found))

    def name(self, target: str) -> bool:
        """Whether they hold it as a whole: `a.md` is not named by `data.md`."""
        return re.search(rf"(?<![\w./@-]){re.escape(target)}(?![\w/@-]|\.\w)", self.plain) is not None

    def say(self, field: str) -> bool:
        """Whether they hold an argument's name, as words."""
        told = r"[\s_-]+".join(map(re.escape, re.split(r"[_\s-]+", field)))
        return re.search(rf"(?i)(?<!\w){told}(?!\w)", self.text) is not None

    def places(self, host: str, port: int | None) -> Iterator[tuple[str, str]]:
        """Give path and query of each mention of a host; both are empty where it stands alone."""
        path, query = r"(?P<path>/[^\s\"'<>()\[\]{}|?#]*)?", r"(?:\?(?P<query>[^\s\"'<>()\[\]{}|#]*))?"
        for found in re.finditer(rf"{_host(host)}\]?(?::(?P<port>\d{{1,5}}))?{path}{query}", self.text):
            named = int(found["port"]) if found["port"] else None
            if port == named or {port, named} <= {None, 80, 443}:
                asked = (found["query"] or "").rstrip(_ENDS)
                yield (found["path"] or "") if asked else (found["path"] or "").rstrip(_ENDS), asked

    def cover(self, address: str, *, reads: bool) -> bool:
        """Whether they name the host of an address and the beginning of its path, or for what only reads the host."""
        host = host_of(address)
        if host is None:
            return False
        parts = urlsplit(address)
        try:
            places = list(self.places(host, parts.port))
        except ValueError:
            return False
        if reads and not parts.query:
            return bool(places)
        return any(_below(parts.path, path) and (not query or parts.query in ("", query)) for path, query in places)


def _host(host: str) -> str:
    return rf"(?i:(?<![\w.@-]){re.escape(host)}(?![\w-]|\.\w))"


def _below(path: str, named: str) -> bool:
    """Whether a path is one that was named, or below it; one that programs may read differently is not."""
    of, inside = _segments(named), _segments(path)
    if of == ():
        return True
    return inside is not None and of is not None and inside[: len(of)] == of


def _segments(path: str) -> tuple[str, ...] | None:
    plain = unquote(path)
    parts = tuple(part for part in plain.split("/") if part)
    if {".", ".."} & set(parts) or "\\" in plain or "%" in plain:
        return None
    return parts


def _missing(traits: ToolTraits, arguments: Mapping[str, Any], said: _Words) -> Iterator[str]:
    """Give each thing that a call touches: empty where it is named."""
    declared = bool(traits.command_argument) or traits.paths is not None or traits.hosts is not None
    for host in traits.hosts or ():
        yield _unnamed_address(host, traits, arguments, said)
    if traits.command_argument:
        line = str(arguments.get(traits.command_argument, "")).strip()
        yield "" if not line or (line in said.text and said.name(" ".join(line.split()))) else line
    for path in traits.paths or ():
        yield "" if not path.strip() or said.name(" ".join(path.split())) else path
    if declared and traits.builtin:
        return  # what else Loom's own tools take is content
    others = {name: value for name, value in arguments.items() if name not in traits.declared}
    told = list(_values(others, "", _Schema.of(traits.parameters), said))
    yield from told or ([] if declared else [f"a call of {traits.name}"])


def _unnamed_address(host: str | None, traits: ToolTraits, arguments: Mapping[str, Any], said: _Words) -> str:
    if host is None:
        return "the address"
    if not list(said.places(host, None)) and not re.search(
        rf"(?i)(?<![\w.@-]){re.escape(host)}(?![\w-]|\.\w)", said.text
    ):
        return host
    reads = traits.method in _READS or (not traits.method and traits.read_only)
    carries = any(arguments.get(name) for name in _CARRY)
    address = traits.address or f"https://{host}/"
    return "" if said.cover(address, reads=reads and not carries) else address


@dataclass(frozen=True)
class _Schema:
    """What a tool's author wrote of its arguments: their names, and the values that stand where nothing is given."""

    defaults: Mapping[str, list[Any]]

    @classmethod
    def of(cls, schema: Mapping[str, Any]) -> "_Schema":
        defaults: dict[str, list[Any]] = {}
        waiting: list[Any] = [schema]
        while waiting:
            part = waiting.pop()
            if isinstance(part, Mapping):
                properties = part.get("properties")
                for name, said in properties.items() if isinstance(properties, Mapping) else ():
                    known = defaults.setdefault(name, [])
                    known += [said[key] for key in ("default", "const") if isinstance(said, Mapping) and key in said]
            waiting += part.values() if isinstance(part, Mapping) else part if isinstance(part, list) else ()
        return cls(defaults)

    def is_default(self, name: str, value: Any) -> bool:
        return any(type(value) is type(known) and value == known for known in self.defaults.get(name, ()))


def _values(value: Any, name: str, schema: _Schema, said: _Words) -> Iterator[str]:
    """Look at each value of the arguments: empty where it is named. Defaults and what is empty are the author's."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            if name and key not in schema.defaults:  # no name of a parameter, so chosen like a value
                yield from _text(key, "key", said)
            if not schema.is_default(key, item):
                yield from _values(item, key, schema, said)
    elif isinstance(value, list):
        for item in value:
            yield from _values(item, name, schema, said)
    elif isinstance(value, str):
        yield from _text(value, name, said)
    elif isinstance(value, bool):
        yield "" if said.say(name) else f"{name}={str(value).lower()}"
    elif isinstance(value, int | float):
        yield "" if Decimal(str(value)) in said.numbers else f"{name}={value}"


def _text(text: str, name: str, said: _Words) -> Iterator[str]:
    plain = " ".join(text.split())
    prose = " " in plain or not plain.isascii()  # not every script writes spaces
    if len(plain) <= MAX_TARGET or not prose or _is_target(name):
        if plain:
            yield "" if said.name(plain) else plain
        return
    yield from ("" if said.name(mail) else mail for mail in _found(_MAIL, plain))
    yield from ("" if said.name(url) or said.cover(url, reads=False) else url for url in _found(_URL, plain))


def _found(pattern: re.Pattern[str], text: str) -> Iterable[str]:
    return dict.fromkeys(match[0].rstrip(_ENDS) for match in pattern.finditer(text))


def _is_target(name: str) -> bool:
    return any(_TARGETS.fullmatch(word.lower()) for word in _WORD.findall(name))


# Untrusted content: what came from outside must not choose what is written, asked, sent or run.


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
