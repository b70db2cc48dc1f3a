"""Beginning a document: a commented starting point per kind of job, with the functions that it names."""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from loom_dsl.authoring.schema import schema_of
from loom_dsl.errors import ConflictError, NotFoundError, UserError
from loom_dsl.text.wording import suggest

STARTS = {
    "agent": "a model with tools, a policy and limits",
    "graph": "a pipeline: functions one after the other, a choice, retries, and a way to go when one fails",
    "approval": "ask a human, and another one when nobody answers in time",
    "fan-out": "do the same for every item of a list, many at once, and go on with all the results",
    "loop": "change something and test it until the test passes, at most so many times",
    "agents": "several agents review the same at once, and one more decides",
    "extend": "an agent whose turns have a guardrail before the tools (extends: loom.tt)",
}
"""The kinds of starting points, and what each is for."""
SCHEMA = "loom.schema.json"
MODELINE = f"# yaml-language-server: $schema={SCHEMA}\n"
"""What tells an editor which schema a document has."""
_NAME = re.compile(r"[a-z][a-z0-9_-]{0,40}")


@dataclass(frozen=True, slots=True)
class Begun:
    """What was written.

    Attributes:
        files: The files, the document first.
        kept: A schema that was there already, and is not as this release would write it; or None.
    """

    files: tuple[Path, ...]
    kept: Path | None = None


def start(kind: str, name: str | None, directory: Path, *, schema: bool = False) -> Begun:
    """Write a starting point.

    Args:
        kind: One of `STARTS`.
        name: Name of the document and, with endings, of its files; the kind when absent.
        directory: Where; it is made when it is not there.
        schema: Write the JSON Schema beside it, and name it in the documents.

    Raises:
        NotFoundError: There is no such kind.
        UserError: The name is none, or the directory cannot be written.
        ConflictError: One of the files is there already; nothing is written.
    """
    if kind not in STARTS:
        hint = suggest(kind, STARTS) or f"the kinds are {', '.join(STARTS)}"
        raise NotFoundError(f"there is no starting point {kind!r}; {hint}")
    named = kind if name is None else name
    if not _NAME.fullmatch(named):
        raise UserError(
            f"{named!r} is not a name; use lower-case letters, digits, - and _, starting with a letter, at most 41"
        )
    texts = {directory / _named(file.name, kind, named): _text(file, kind, named, schema) for file in _sources(kind)}
    _refuse_taken(directory, texts, f"name, loom new {kind} NAME, or another directory, --dir DIR")
    place, kept = directory / SCHEMA, None
    if schema:
        text = schema_text()
        if not place.exists():
            texts[place] = text
        elif place.read_text(encoding="utf-8", errors="replace") != text:
            kept = place
    _write(directory, texts)
    return Begun(tuple(texts), kept)


def _refuse_taken(directory: Path, places: Iterable[Path], advice: str) -> None:
    taken = [place.name for place in places if place.exists() or place.is_symlink()]
    if taken:
        raise ConflictError(
            f"{directory} already holds {', '.join(taken)}; nothing was written. Choose another {advice}"
        )


def _sources(kind: str) -> list[Traversable]:
    folder = files("loom_cli").joinpath("project", "starts", kind)
    found = [file for file in folder.iterdir() if file.name.endswith((".yaml", ".py"))]
    return sorted(found, key=lambda file: (file.name != f"{kind}.yaml", file.name))


def _text(file: Traversable, kind: str, name: str, schema: bool) -> str:
    text = _named(file.read_text(encoding="utf-8"), kind, name)
    return MODELINE + text if schema and file.name.endswith(".yaml") else text


def _named(text: str, kind: str, name: str) -> str:
    """Put a name in place of the kind's, where it stands for a file, a module or the document itself."""
    text = re.sub(rf"\b{_module(kind)}(?=_(?:steps|tools)\b)", _module(name), text)
    text = re.sub(rf"(?<![\w-]){kind}(?=\.(?:\w+\.)?yaml\b)", name, text)
    return re.sub(rf"(?m)^name: {kind}\b", f"name: {name}", text)


def _module(name: str) -> str:
    return name.replace("-", "_")


def _write(directory: Path, texts: dict[Path, str]) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for path, content in texts.items():
            with path.open("x", encoding="utf-8") as file:
                file.write(content)
    except OSError as error:
        raise UserError(f"{error.filename or directory} cannot be written: {error.strerror or error}") from None


def schema_text(kind: str | None = None) -> str:
    """Give the JSON Schema of a kind of document, or of all, as text.

    Raises:
        NotFoundError: There is no such kind.
    """
    try:
        schema = schema_of(kind)
    except KeyError:
        from loom_dsl.authoring.schema import KINDS

        hint = suggest(str(kind), KINDS) or f"the kinds are {', '.join(KINDS)}"
        raise NotFoundError(f"there is no kind of document {kind!r}; {hint}") from None
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


# Beginning a project: an agent, a tool, a script for the fake model, and how to run them.


FILES = ("README.md", "agent.yaml", "tools.py", "script.yaml", "notes.txt")


def begin(directory: Path) -> list[Path]:
    """Write the files of a new project.

    Args:
        directory: Where; it is made when it is not there. Other files in it stay.

    Returns:
        The files written.

    Raises:
        ConflictError: One of the files is there already; nothing is written.
        UserError: The directory cannot be written.
    """
    template = files("loom_cli").joinpath("project", "template")
    texts = {directory / name: template.joinpath(name).read_text(encoding="utf-8") for name in FILES}
    _refuse_taken(directory, texts, "directory: loom init DIR")
    _write(directory, texts)
    return [*texts]
