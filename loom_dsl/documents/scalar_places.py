"""Where a character of a text stands in the document: through quotes, escapes, folded lines and block scalars.

What YAML changes of a text is white space and escapes, and nothing else. So the other characters of the text are found
in the document one after the other, and white space stands where its neighbour does.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

Position = tuple[int, int]
"""Line and column, both from 1."""
_SPACE = frozenset(" \t\r\n\x85\u2028\u2029")
_LINE_END = re.compile(r"\r\n|\r|\n")
_PROPERTIES = re.compile(r"(?:[&!]\S*\s+)*")
"""An anchor and a tag, before a text that is in quotes, a block, or starts with neither sign."""
_ESCAPE = re.compile(r"\\(?:x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|([\s\S]))")
_NAMED = {"0": "\0", "a": "\a", "b": "\b", "t": "\t", "n": "\n", "v": "\v", "f": "\f", "r": "\r", "e": "\x1b",
          "N": "\x85", "_": "\xa0", "L": "\u2028", "P": "\u2029"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class WrittenScalar:
    """A text as it stands in a document.

    Attributes:
        text: The text that it gives.
        written: The document from its first character on.
        style: How it is quoted: ``'``, ``"``, ``|``, ``>``, or nothing.
        place: Line and column of its first character, from 1.
    """

    text: str
    written: str
    style: str
    place: Position

    def position(self, offset: int) -> Position | None:
        """Give line and column of one of its characters; None where it cannot be told.

        Args:
            offset: Which character of the text, from 0; its length is the place behind the last one.
        """
        if offset > len(self.text):
            return None
        before, index = -1, -1  # the last character before the wanted one that is no white space
        units = self._units()
        for number, char in enumerate(self.text[: offset + 1]):
            if char in _SPACE:
                continue
            found = next(units, None)
            if found is None or found[0] != char:
                return None
            before, index = number, found[1]
        if before < 0:
            return None
        return self._place_of(index + (offset - before))

    def _units(self) -> Iterator[tuple[str, int]]:
        """The characters that are no white space, and where each stands in what is written."""
        before = _PROPERTIES.match(self.written)
        at = (before.end() if before else 0) + (self.style in ("'", '"'))
        if self.style in ("|", ">"):
            end = _LINE_END.search(self.written, at)
            at = end.end() if end else len(self.written)
        while at < len(self.written):
            char, step = self.written[at], 1
            if char == "\\" and self.style == '"':
                char, step = self._escape(at)
            elif char == "'" == self.style:
                step = 2
            if char not in _SPACE:
                yield char, at
            at += step

    def _escape(self, at: int) -> tuple[str, int]:
        found = _ESCAPE.match(self.written, at)
        if found is None:
            return "\\", 1
        digits = found[1] or found[2] or found[3]
        return (chr(int(digits, 16)) if digits else _NAMED.get(found[4], found[4])), len(found[0])

    def _place_of(self, index: int) -> Position:
        line, column = self.place
        start = 0
        for end in _LINE_END.finditer(self.written, 0, max(index, 0)):
            line, column, start = line + 1, 1, end.end()
        return line, column + index - start
