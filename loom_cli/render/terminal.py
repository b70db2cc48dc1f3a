"""What a timeline is written on: wraps text, colours it where colour is wanted, and takes text back where it can."""

import os
import re
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TextIO

from loom_dsl.text.printable import visible

# Text that comes in pieces, written as words.


_WIDE = r"[\u1100-\u115f\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60]"
"""Characters between which a line may be broken."""
_PIECES = re.compile(rf"\n|[ \t]+|{_WIDE}|(?:(?!{_WIDE})\S)+|\s")


class WordWrap:
    """Text that comes in pieces and is written as words: wrapped at the width, with a prefix before each line.

    Args:
        paper: Where to write.
        prefix: Stands before each line, dim.
        style: Style of the text.
        hang: Columns by which the lines after the first one are moved in.
        follow: What stands before those lines in place of blanks, so that no content can make them look like others.
    """

    def __init__(self, paper: "Terminal", prefix: str = "", style: str = "", hang: int = 0, follow: str = "") -> None:
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


SGR = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}
_NARROWEST = 20


@dataclass
class Terminal:
    """A place to write on, by lines and by streamed pieces.

    Attributes:
        stream: Where the characters go.
        columns: Asked for the width at the start of each line, so that a resized terminal is followed.
        rows: Asked for the height.
        colour: Whether colours are written.
        live: Whether the cursor may be moved: text can be taken back, and a passing line can be shown.
        fancy: Whether the place can show more than ASCII.
    """

    stream: TextIO
    columns: Callable[[], int] = lambda: 80
    rows: Callable[[], int] = lambda: 24
    colour: bool = False
    live: bool = False
    fancy: bool = True
    _column: int = field(default=0, init=False)
    _width: int = field(default=80, init=False)
    _status: str = field(default="", init=False)
    _style: str = field(default="", init=False)

    # -- whole lines -----------------------------------------------------------------------------

    def line(self, text: str = "", style: str = "", *, prefix: str = "", hang: int = 0, follow: str = "") -> None:
        """Write a text as lines of their own, wrapped; an open line is ended first.

        Args:
            text: What to write; its control characters are made visible.
            style: Names from `SGR`, with spaces between.
            prefix: Stands before every line, dim.
            hang: Columns by which the lines after the first one are moved in.
            follow: What stands before those lines in place of blanks.
        """
        self.end_line()
        writer = WordWrap(self, prefix, style, hang, follow)
        writer.add(text)
        writer.end()

    def verbatim(self, text: str) -> None:
        """Write a text as it is, also where it is wider: a program may read it."""
        self.end_line()
        self._put(text + "\n")

    def end_line(self) -> None:
        """End the line that is open, if one is."""
        self.clear_status()
        self._dress("")
        if self._column:
            self._put("\n")
            self._column = 0

    # -- a passing line ----------------------------------------------------------------------------

    def status(self, text: str) -> None:
        """Show one line that goes away with the next thing that is written; only where the cursor may be moved."""
        if not self.live or text == self._status:
            return
        self.clear_status()
        self._dress("")
        cut = visible(text).replace("\n", " ")[: max(1, self.columns() - 1)]
        self._put(("\n" if self._column else "") + self.styled(cut, "dim"))
        self._status = text
        self.flush()

    def clear_status(self) -> None:
        """Take the passing line away and put the cursor where it was."""
        if self._status:
            self._status = ""
            self._put("\r\x1b[K")
            if self._column:  # relative moves, because the passing line may have scrolled the screen
                self._put(f"\x1b[1A\x1b[{self._column}C")

    # -- what `Flow` uses --------------------------------------------------------------------------

    def begin_line(self, prefix: str) -> int:
        """Start a line with its prefix; how many columns it may have."""
        self.clear_status()
        # The last column stays free: some terminals wrap as soon as it is written.
        self._width = max(_NARROWEST, self.columns()) - 1
        self._put(self.styled(prefix, "dim") if prefix else "")
        self._column = len(prefix)
        return self._width

    def piece(self, text: str, cells: int, style: str) -> None:
        """Write a part of a line."""
        self.clear_status()
        self._dress(style)
        self._put(text)
        self._column += cells

    def break_line(self) -> None:
        """End the line even if it is empty."""
        self.clear_status()
        self._dress("")
        self._put("\n")
        self._column = 0

    def take_back(self, lines: int) -> None:
        """Remove the open line and `lines` lines above it."""
        self.clear_status()
        self._dress("")
        self._put("\r" + (f"\x1b[{lines}A" if lines else "") + "\x1b[J")
        self._column = 0

    @property
    def column(self) -> int:
        """How many columns of the open line are written."""
        return self._column

    def styled(self, text: str, style: str) -> str:
        """Give a text in a style, if colours are written."""
        if not self.colour or not style or not text:
            return text
        return f"{_sgr(style)}{text}\x1b[0m"

    def glyph(self, fancy: str, plain: str) -> str:
        """Choose the character that the place can show."""
        return fancy if self.fancy else plain

    def flush(self) -> None:
        """Let it be seen."""
        self.stream.flush()

    def _dress(self, style: str) -> None:
        """Change the style of what is written from here on."""
        if self.colour and style != self._style:
            self._put(("\x1b[0m" if self._style else "") + (_sgr(style) if style else ""))
            self._style = style

    def _put(self, text: str) -> None:
        if text:
            self.stream.write(text)


def terminal_for(stream: TextIO | None = None, environ: Mapping[str, str] | None = None) -> Terminal:
    """Find out what a stream can show: NO_COLOR, FORCE_COLOR, TERM, COLUMNS and its encoding count."""
    out = sys.stdout if stream is None else stream
    env = os.environ if environ is None else environ
    terminal, dumb = out.isatty(), env.get("TERM", "") in ("dumb", "unknown", "")
    colour = not env.get("NO_COLOR") and ((terminal and not dumb) or bool(env.get("FORCE_COLOR")))
    utf = (getattr(out, "encoding", "") or "").lower().replace("-", "").startswith("utf")
    size = _terminal_size(out, env)
    return Terminal(
        out,
        columns=lambda: size()[0],
        rows=lambda: size()[1],
        colour=colour,
        live=terminal and not dumb,
        fancy=utf and not (terminal and dumb),
    )


def _terminal_size(stream: TextIO, env: Mapping[str, str]) -> Callable[[], tuple[int, int]]:
    wanted = env.get("COLUMNS", "")

    def measure() -> tuple[int, int]:
        try:
            columns, rows = os.get_terminal_size(stream.fileno())
        except (OSError, ValueError, AttributeError):
            columns, rows = shutil.get_terminal_size((80, 24))
        return (int(wanted) if wanted.isdecimal() and int(wanted) else columns or 80), rows or 24

    return measure


def _sgr(style: str) -> str:
    return f"\x1b[{';'.join(SGR[name] for name in style.split())}m"
