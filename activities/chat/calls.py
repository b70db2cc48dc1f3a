"""The tool calls of an answer, put together from pieces.

Which call a piece belongs to is told by its index, its id and its name, and providers leave out, repeat or muddle each
of them. What decides where they do not agree is the arguments so far: a JSON object that is closed is whole, so a piece
with a name begins another call, and one that is open is gone on with. What cannot be told apart is refused, because two
calls in one would run as something that nobody asked for.
"""

import itertools
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from activities.chat import fields

_SIGNS = re.compile(r'\\(?:.|$)|["{}\[\]]', re.DOTALL)
_EXPECTS = (":", "[", ",")
"""Ends of an open text after which JSON may begin an object."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """A tool call that the model asks for.

    Attributes:
        id: The provider's id, or ``call_INDEX`` when it gave none.
        name: The tool's name, as the model wrote it.
        arguments: The arguments' text, as the model wrote it; it need not be JSON.
        index: Its place in the message, from 0.
        extra: What else the provider said of it, verbatim, as JSON, such as ``extra_content.google.thought_signature``.
    """

    id: str
    name: str
    arguments: str
    index: int
    extra: Mapping[str, Any] = field(default_factory=dict)


class _Arguments:
    """The arguments of a call so far, and whether they are a whole JSON object."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._read = 0
        self._depth = 0
        self._in_text = self._escaped = self._begun = False

    def __bool__(self) -> bool:
        return bool(self._pieces)

    @property
    def text(self) -> str:
        if len(self._pieces) > 1:
            self._scan_all()
            self._pieces, self._read = ["".join(self._pieces)], 1
        return self._pieces[0] if self._pieces else ""

    @property
    def is_closed(self) -> bool:
        """Whether they began an object, and ended it."""
        self._scan_all()
        return self._begun and self._depth == 0

    @property
    def is_open(self) -> bool:
        return bool(self) and not self.is_closed

    @property
    def expects(self) -> bool:
        """Whether an object may come next inside them; also within a text, where anything may."""
        if self.is_closed:
            return False
        last = next((said for piece in reversed(self._pieces) if (said := piece.rstrip())), "")
        return self._in_text or last.endswith(_EXPECTS)

    def take(self, piece: str) -> None:
        begins = piece.lstrip()[:1] == "{"
        if not self or (not begins and piece.strip()):
            self._pieces.append(piece)
        elif not piece.strip():
            if not self.is_closed:
                self._pieces.append(piece)
        elif self.is_closed:
            self._take_another(piece)
        elif not self.expects and piece.startswith(self.text):
            self._replace(piece)  # it says them from the beginning each time
        else:
            self._pieces.append(piece)

    def _take_another(self, piece: str) -> None:
        if self.text.strip() == piece.strip():
            return
        if self.text.strip() != "{}":
            raise ValueError("the arguments of a tool call go on after their end, so two calls may be in one")
        self._replace(piece)  # an empty object held the place

    def _replace(self, piece: str) -> None:
        self._pieces, self._read, self._depth = [piece], 0, 0
        self._in_text = self._escaped = self._begun = False

    def _scan_all(self) -> None:
        for piece in self._pieces[self._read :]:
            self._scan(piece)
        self._read = len(self._pieces)

    def _scan(self, piece: str) -> None:
        start, self._escaped = (1 if self._escaped else 0), False
        for found in _SIGNS.finditer(piece, start):
            sign = found[0]
            if sign[0] == "\\":
                self._escaped = len(sign) == 1
            elif sign == '"':
                self._in_text = not self._in_text
            elif not self._in_text:
                self._begun = self._begun or sign == "{"
                self._depth += 1 if sign in "{[" else -1


@dataclass(slots=True)
class _Slot:
    index: object
    id: str = ""
    name: str = ""
    arguments: _Arguments = field(default_factory=_Arguments)
    extra: fields.Merged = field(default_factory=fields.of_call)


@dataclass(frozen=True, slots=True)
class _Piece:
    index: object
    id: str
    name: str
    arguments: str

    @property
    def begins(self) -> bool:
        return self.arguments.lstrip()[:1] == "{"

    def goes_on_with(self, known: "_Slot") -> bool:
        """Whether a piece that says the name again goes on with a call all the same."""
        if self.name != known.name or not self.arguments:
            return False
        # A call without arguments that another of its tool follows is rarer than a name that is said twice; and where
        # it is wrong, one call is not made, instead of one made that nobody asked for.
        return not known.arguments or (known.arguments.is_open and (not self.begins or known.arguments.expects))


class CallAssembler:
    """Collects the pieces of an answer's tool calls.

    Args:
        tools: Gives the names of the tools that the model may call. Asked only where names alone decide.
    """

    def __init__(self, tools: Callable[[], set[str]]) -> None:
        self._tools = tools
        self._slots: list[_Slot] = []

    def __bool__(self) -> bool:
        return bool(self._slots)

    def add(self, calls: object, *, whole: bool = False) -> int:
        """Take the calls of one delta, or of a whole message, and return how many characters came with them.

        Args:
            calls: The list, as it came.
            whole: Whether it says all calls, each in one piece; they then stand for what came before.

        Raises:
            ValueError: It is no list of calls, or it cannot be told which call a piece belongs to.
        """
        if isinstance(calls, dict):
            calls = [calls]
        if not isinstance(calls, list):
            raise ValueError("`tool_calls` is not a list")
        before = self._slots
        if whole and any(calls):
            self._slots = []
        touched: list[_Slot] = []
        size = sum(self._take(call, touched, whole=whole) for call in calls if call is not None)
        if whole and before:
            _keep_what_was_said(before, self._slots)
        return size

    def calls(self) -> tuple[ToolCall, ...]:
        """Return the calls, without empty ones.

        Raises:
            ValueError: One has arguments and no name, or two are pieces of one.
        """
        slots = self._named()
        if any(_are_pieces(first, second) for first, second in itertools.pairwise(slots)):
            raise ValueError("the pieces of a tool call cannot be told from calls of their own")
        return tuple(
            ToolCall(
                id=slot.id or f"call_{index}",
                name=slot.name,
                arguments=fields.whole(slot.arguments.text),
                index=index,
                extra=slot.extra.fields(),
            )
            for index, slot in enumerate(slots)
        )

    def _named(self) -> list[_Slot]:
        """The calls that have a name. Where none has, it is the model's mistake, and the model is told."""
        named = [slot for slot in self._slots if slot.name.strip()]
        if not named:
            return [slot for slot in self._slots if slot.arguments]
        if any(slot.arguments.text.strip() not in ("", "{}") for slot in self._slots if not slot.name.strip()):
            raise ValueError("a tool call has arguments and no name")
        return named

    def _take(self, call: object, touched: list[_Slot], *, whole: bool) -> int:
        if not isinstance(call, dict) or not isinstance(call.get("function"), dict | None):
            raise ValueError("a tool call is not an object")
        # Some leave out the object `function`, and write its fields beside the id.
        piece = _piece(call, call.get("function") or call)
        named_again = bool(piece.name) and any(slot.index == piece.index or piece.index is None for slot in touched)
        slot = None if whole or named_again else self._known(piece)
        if slot is None:
            slot = _Slot(piece.index)
            self._slots.append(slot)
        touched.append(slot)
        slot.id = slot.id or piece.id
        self._name(slot, piece.name)
        if piece.arguments:
            slot.arguments.take(piece.arguments)
        return len(piece.arguments) + slot.extra.add({k: v for k, v in call.items() if k not in ("name", "arguments")})

    def _name(self, slot: _Slot, name: str) -> None:
        # Most providers send the name once, some with every piece, some in pieces, and some from its beginning.
        if name and name != slot.name and not slot.arguments:
            slot.name = name if slot.name and name.startswith(slot.name) else slot.name + name

    def _known(self, piece: _Piece) -> _Slot | None:
        """Find the call that a piece goes on with; None where it begins one."""
        same_id = next((slot for slot in reversed(self._slots) if piece.id and slot.id == piece.id), None)
        if piece.index is None:
            found = same_id or (self._slots[-1] if self._slots else None)
        else:
            found = next((slot for slot in reversed(self._slots) if slot.index == piece.index), None)
            if found is None:
                return self._drifted(piece, same_id)
        if found is None or self._begins_another(found, piece):
            return None
        return found

    def _drifted(self, piece: _Piece, same_id: _Slot | None) -> _Slot | None:
        """Find the call of a piece whose index is new, though it begins no call: providers count pieces, too."""
        last = self._slots[-1] if self._slots else None
        known = same_id or (None if piece.id else last)
        if known is None:
            return None
        if not piece.name:
            goes_on = same_id or not piece.arguments.strip() or not known.arguments.is_closed
            return known if goes_on else None
        return known if piece.goes_on_with(known) else None

    def _begins_another(self, known: _Slot, piece: _Piece) -> bool:
        if not piece.name:
            return bool(piece.id and known.id and piece.id != known.id and known.arguments.is_closed)
        same_name = piece.name == known.name
        if piece.id and known.id and piece.id != known.id:
            return not piece.goes_on_with(known)
        if not known.arguments:
            return not same_name and bool(known.name) and self._are_two(known.name, piece.name)
        if piece.id and piece.id == known.id:
            return not same_name
        if not same_name:
            return True
        if known.arguments.is_closed:
            return piece.begins and piece.arguments.strip() != known.arguments.text.strip()
        return piece.begins and not known.arguments.expects and not piece.arguments.startswith(known.arguments.text)

    def _are_two(self, first: str, second: str) -> bool:
        """Whether two names are two tools, and not one in pieces."""
        tools = self._tools()
        return first in tools and second in tools and first + second not in tools


def _are_pieces(first: _Slot, second: _Slot) -> bool:
    text = second.arguments.text.lstrip()
    return first.name == second.name and first.arguments.is_open and bool(text) and text[0] != "{"


def _piece(call: Mapping[str, Any], function: Mapping[str, Any]) -> _Piece:
    arguments = function.get("arguments")
    if isinstance(arguments, dict | list):
        arguments = json.dumps(arguments, ensure_ascii=False)
    index = call.get("index")
    if isinstance(index, str):
        index = int(index) if index.isdecimal() else None
    return _Piece(
        index,
        fields.whole(str(call.get("id") or "")),
        fields.whole(str(function.get("name") or "")),
        "" if arguments is None else str(arguments),
    )


def _keep_what_was_said(before: list[_Slot], after: list[_Slot]) -> None:
    """Keep of calls that are said again what the second time leaves out.

    Raises:
        ValueError: The second time says fewer calls.
    """
    if len([slot for slot in before if slot.name]) > len(after):
        raise ValueError("the message at the end has fewer tool calls than came before")
    for old, new in zip(before, after, strict=False):
        new.id, new.name = new.id or old.id, new.name or old.name
        if not new.arguments and old.arguments:
            new.arguments = old.arguments
        for name, value in old.extra.fields().items():
            new.extra.add({name: value}, snapshot=True)
