"""What a person would see: a small terminal that obeys the control codes Loom may write, and refuses all others."""

import re

_CODES = re.compile(r"\x1b\[(\d*)([A-Za-z])|\x1b\[(?:\d+;)*\d+m|[\r\n]|[^\x1b\r\n]+|\x1b")


class Screen:
    """Rows of text, growing downwards; nothing scrolls away."""

    def __init__(self) -> None:
        self._rows: list[str] = [""]
        self._row = self._column = 0

    def feed(self, text: str) -> "Screen":
        """Show what a program wrote."""
        for found in _CODES.finditer(text):
            part, count, code = found[0], int(found[1] or 1), found[2]
            if part == "\r":
                self._column = 0
            elif part == "\n":
                self._down()
            elif part[0] != "\x1b":
                self._write(part)
            elif code:
                self._obey(code, count)
            elif not part.endswith("m"):
                raise AssertionError(f"a bare escape in the output: {text[found.start() : found.start() + 20]!r}")
        return self

    @property
    def lines(self) -> list[str]:
        """The rows, without the spaces at their ends."""
        return [row.rstrip() for row in self._rows]

    @property
    def text(self) -> str:
        """The rows as one text."""
        return "\n".join(self.lines).strip("\n")

    def _down(self) -> None:
        self._row += 1
        self._column = 0
        if self._row == len(self._rows):
            self._rows.append("")

    def _write(self, text: str) -> None:
        row = self._rows[self._row].ljust(self._column)
        self._rows[self._row] = row[: self._column] + text + row[self._column + len(text) :]
        self._column += len(text)

    def _obey(self, code: str, count: int) -> None:
        if code == "A":
            self._row = max(0, self._row - count)
        elif code == "C":
            self._column += count
        elif code == "K":
            self._rows[self._row] = self._rows[self._row][: self._column]
        elif code == "J":
            self._rows[self._row] = self._rows[self._row][: self._column]
            del self._rows[self._row + 1 :]
        elif code != "m":
            raise AssertionError(f"an unknown control code: {code}")
