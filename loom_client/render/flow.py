"""Text that comes in pieces, written as words."""

import re
from typing import TYPE_CHECKING

from loom_client.render.text import visible

if TYPE_CHECKING:
    from loom_client.render.paper import Paper

_WIDE = r"[\u1100-\u115f\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60]"
"""Characters between which a line may be broken."""
_PIECES = re.compile(rf"\n|[ \t]+|{_WIDE}|(?:(?!{_WIDE})\S)+|\s")


class Flow:
    """Text that comes in pieces and is written as words: wrapped at the width, with a prefix before each line.

    Args:
        paper: Where to write.
        prefix: Stands before each line, dim.
        style: Style of the text.
        hang: Columns by which the lines after the first one are moved in.
        follow: What stands before those lines in place of blanks, so that no content can make them look like others.
    """

    def __init__(self, paper: "Paper", prefix: str = "", style: str = "", hang: int = 0, follow: str = "") -> None:
        self._paper, self._prefix, self._style, self._follow = paper, prefix, style, follow or " " * hang
        self.text = ""
        """All that was added."""
        self._lines = 0
        self._word = ""
        self._gap = ""
        self._open = False
        self._width = self._fresh = 0
        self._begun_at = paper.columns()

    def add(self, text: str) -> None:
        """Write a piece; its last word may stay back until it is known where it ends."""
        self.text += text
        raw = self._word + text
        self._word = ""
        if raw.endswith("\r"):
            raw, self._word = raw[:-1], "\r"
        pieces = _PIECES.findall(visible(raw).expandtabs(4))
        if pieces and not self._word and _may_grow(pieces[-1]):
            self._word = pieces.pop()
        for piece in pieces:
            self._place(piece)
        self._paper.flush()

    def end(self) -> None:
        """Write what stayed back, and end the line."""
        word, self._word = self._word, ""
        for piece in _PIECES.findall(visible(word)):
            self._place(piece)
        if not self._open and not self._lines:
            self._begin()
        if self._open:
            self._break()
        self._paper.flush()

    def take_back(self) -> bool:
        """Remove all that was written since the flow began; False when that is not possible."""
        paper = self._paper
        if not paper.live or paper.columns() != self._begun_at or self._lines >= paper.rows() - 2:
            return False
        paper.take_back(self._lines)
        self._word = self._gap = ""
        self._open, self._lines = False, 0
        return True

    def _place(self, piece: str) -> None:
        if piece == "\n":
            if not self._open:
                self._begin()
            self._break()
        elif piece.isspace():
            self._gap = piece
        else:
            self._place_word(piece)

    def _place_word(self, word: str) -> None:
        if not self._open:
            self._begin()
        room = self._width - self._paper.column
        wide = cells(word)
        if len(self._gap) + wide > room and self._fresh > 0:
            self._break()
            self._gap = ""
            self._begin()
            room = self._width - self._paper.column
        gap, self._gap = self._gap[: max(0, room - 1)], ""
        self._write(gap)
        while cells(word) > self._width - self._paper.column:
            head = _head(word, max(2, self._width - self._paper.column))
            self._write(head)
            word = word[len(head) :]
            self._break()
            self._begin()
        self._write(word)

    def _write(self, text: str) -> None:
        if text:
            self._paper.piece(text, cells(text), self._style)
            self._fresh += 1

    def _begin(self) -> None:
        indent = self._follow if self._lines else ""
        self._width = self._paper.begin_line(self._prefix + indent)
        self._open, self._fresh = True, 0

    def _break(self) -> None:
        self._paper.break_line()
        self._open, self._gap = False, ""
        self._lines += 1


def cells(text: str) -> int:
    """Say how many columns a text takes."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def _head(word: str, room: int) -> str:
    taken = 0
    for index, character in enumerate(word):
        taken += cells(character)
        if taken > room:
            return word[: max(1, index)]
    return word


def _may_grow(piece: str) -> bool:
    """Whether the next piece of text may be part of the same word or gap."""
    return piece != "\n" and not (len(piece) == 1 and cells(piece) == 2) and len(piece) < 200
