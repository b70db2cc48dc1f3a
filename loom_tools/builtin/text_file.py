"""Bytes of unknown files as text that a model can read, and pages of it that fit into a tool result."""

import codecs
from dataclasses import dataclass
from typing import BinaryIO

from loom_dsl.errors import ToolError

PAGE = 9_000
"""Characters of content in one result: below the 10,000 at which a result would be cut in its middle."""
MAX_READ = 8 * 1024 * 1024
"""Bytes of a file that are looked at."""
HEAD = 8192
"""Bytes by which a binary file is known."""
_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


@dataclass(frozen=True)
class TextFile:
    """A file's text, without its byte order mark.

    Attributes:
        text: Bytes that are not UTF-8 stand in it as lone surrogates, so that `encode` gives them back.
        encoding: The codec's name.
        crlf: Every line ends in CR LF.
    """

    text: str
    encoding: str
    crlf: bool

    @property
    def strange_bytes(self) -> int:
        """How many bytes could not be read as text."""
        return sum("\udc80" <= char <= "\udcff" for char in self.text) if not self.text.isascii() else 0

    def encode(self, text: str) -> bytes:
        """Write a changed text back as this file was written.

        Raises:
            ToolError: The text holds what the file's encoding cannot hold.
        """
        try:
            return text.encode(self.encoding, "surrogateescape" if self.encoding.startswith("utf-8") else "strict")
        except UnicodeEncodeError as error:
            raise ToolError(f"the text cannot be written as {self.encoding}: {error.reason}") from error


def read_text(path: str, file: BinaryIO) -> TextFile:
    """Read at most `MAX_READ` bytes of a file as text.

    Raises:
        ToolError: It is a binary file.
    """
    return decode(path, file.read(MAX_READ))


def decode(path: str, data: bytes) -> TextFile:
    """Give a file's bytes as text.

    Raises:
        ToolError: They are not text.
    """
    encoding = next((name for mark, name in _MARKS if data.startswith(mark)), "utf-8")
    if encoding.startswith("utf-8"):
        if is_binary(data):
            raise ToolError(f"{path!r} is a binary file, not text; there is nothing in it to read")
        text = data.decode(encoding, "surrogateescape")
    else:
        text = data.decode(encoding, "replace")
    return TextFile(text, encoding, "\r\n" in text and text.count("\n") == text.count("\r\n"))


def is_binary(data: bytes) -> bool:
    """Say whether bytes are not text: there is a NUL at their beginning, and no mark of a wide encoding."""
    return b"\0" in data[:HEAD] and not any(data.startswith(mark) for mark, _ in _MARKS)


def readable(text: str) -> str:
    """Show bytes that could not be read as the replacement character."""
    return text if text.isascii() else "".join("\ufffd" if "\ud800" <= c <= "\udfff" else c for c in text)


def describe_size(size: int) -> str:
    """Write a number of bytes for people."""
    for unit, factor in (("GB", 10**9), ("MB", 10**6), ("KB", 10**3)):
        if size >= 10 * factor:
            return f"{size / factor:.1f} {unit}"
    return f"{size} byte{'' if size == 1 else 's'}"
