"""Reading files."""

import os
from typing import Annotated

from pydantic import Field

from loom_dsl.errors import ToolError
from loom_dsl.permissions.paths import normal_path
from loom_dsl.tools.context import MAX_IMAGE, Image, ToolContext, ToolOutput, image_type
from loom_dsl.tools.tool import Arguments, tool
from loom_tools.builtin.text_file import MAX_READ, PAGE, TextFile, describe_size, read_text, readable
from loom_tools.workspace.workspace import Workspace

Line = Annotated[int, Field(ge=1)]


def file_key(arguments: Arguments) -> str | None:
    """Name the file that a call touches; None when its path is absolute, so that the call waits for every other."""
    path = normal_path(str(arguments.get("path", "")))
    return None if path is None else f"file:{path}"


@tool(
    read_only=True,
    quick=True,
    path_arguments=("path",),
    concurrency_key=file_key,
    timeout=30,
    summarise=lambda arguments: f"read {arguments.get('path')}",
)
def read_file(
    context: ToolContext, path: str, start_line: Line = 1, limit: Line | None = None, line_numbers: bool = False
) -> str | ToolOutput:
    """Read a text file, or look at an image. A long file comes in pages; the end of a page says how to read on.

    Args:
        path: Path relative to the working directory.
        start_line: First line to read, counted from 1.
        limit: Most lines to read.
        line_numbers: Put its number before each line.
    """
    with Workspace(context.working_dir) as space, space.open_read(path) as file:
        size = os.fstat(file.fileno()).st_size
        kind = image_type(file.read(16))
        file.seek(0)
        if kind:
            return _image(path, kind, size, file.read(MAX_IMAGE + 1), context)
        found = read_text(path, file)
    if not found.text:
        return f"{path}: the file is empty (0 bytes)"
    lines = found.text.split("\n")
    if lines[-1] == "":
        lines.pop()
    whole = size <= MAX_READ
    if start_line > len(lines):
        raise ToolError(_past_the_end(path, start_line, len(lines), whole))
    wanted = lines[start_line - 1 : None if limit is None else start_line - 1 + limit]
    shown, cut = _page(wanted, start_line, line_numbers)
    last = start_line + len(shown) - 1
    total = str(len(lines)) if whole else f"more than {len(lines)}"
    header = f"{path}: lines {start_line}-{last} of {total}, {describe_size(size)}{_remarks(found)}"
    return "\n".join([header, "", *shown, *_how_to_go_on(last, len(lines), whole, cut)])


def _image(path: str, kind: str, size: int, data: bytes, context: ToolContext) -> ToolOutput:
    what = f"{path!r} is an image ({kind}, {describe_size(size)})"
    if not context.services.images:
        raise ToolError(f"{what}, and your model is not known to take images; there is no text in it to read")
    if len(data) > MAX_IMAGE:
        raise ToolError(f"{what}; images of at most {describe_size(MAX_IMAGE)} can be looked at")
    text = f"{path}: an image, {kind}, {describe_size(size)}; it follows"
    return ToolOutput(text=text, images=(Image(data=data, media_type=kind),))


def _past_the_end(path: str, start_line: int, count: int, whole: bool) -> str:
    if whole:
        return f"{path!r} has {count} lines; start_line {start_line} is after its end"
    return (
        f"line {start_line} of {path!r} is beyond the first {describe_size(MAX_READ)} ({count} lines), "
        "which is all that read_file looks at; use grep to find what you need"
    )


def _page(lines: list[str], start: int, numbers: bool) -> tuple[list[str], int]:
    """Take lines until the page is full; a first line that fills it alone is cut, and its length returned."""
    shown: list[str] = []
    room = PAGE
    for number, raw in enumerate(lines, start):
        line = (f"{number:>6}  " if numbers else "") + readable(raw.removesuffix("\r"))
        if len(line) + 1 > room:
            if shown:
                break
            return [line[:PAGE]], len(line)
        shown.append(line)
        room -= len(line) + 1
    return shown, 0


def _remarks(found: TextFile) -> str:
    remarks = []
    if found.crlf:
        remarks.append("lines end in CR LF")
    if strange := found.strange_bytes:
        remarks.append(f"not UTF-8: {strange} bytes are shown as \ufffd")
    if found.encoding not in ("utf-8", "utf-8-sig"):
        remarks.append(found.encoding)
    return "".join(f", {remark}" for remark in remarks)


def _how_to_go_on(last: int, count: int, whole: bool, cut: int) -> list[str]:
    said = []
    if cut:
        said.append(
            f"[line {last} has {cut} characters, of which the first {PAGE} are shown; use grep to find a place in it]"
        )
    if last < count:
        said.append(f"[{count - last} more lines; read on with start_line={last + 1}]")
    elif not whole:
        said.append(f"[the file goes on after its first {describe_size(MAX_READ)}; use grep to find what you need]")
    return ["", *said] if said else []
