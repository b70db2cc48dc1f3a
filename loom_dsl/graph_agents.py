"""The agents of a graph's document: written there, or in files of their own."""

import posixpath
from collections.abc import Callable, Mapping
from typing import Any

from loom_dsl.agent import Agent, load_agent, read_agent
from loom_dsl.diagnostic import Diagnostic
from loom_dsl.document import Document
from loom_dsl.errors import DocumentError, LoomError

ReadFile = Callable[[str], str | bytes]
"""Gives the content of a file that a document names; raises OSError or a LoomError."""
_UNREADABLE = "L010"


def agents_of(
    document: Document, read_file: ReadFile | None, env: Mapping[str, str]
) -> tuple[dict[str, dict[str, Any]], list[Diagnostic]]:
    """Read the agents of a graph's document: their normal forms by name, and all that is wrong with them."""
    found: dict[str, dict[str, Any]] = {}
    findings: list[Diagnostic] = []
    entries = document.data.get("agents")
    for name, entry in entries.items() if isinstance(entries, dict) else ():
        if not isinstance(entry, dict):
            continue  # the schema has told it
        try:
            found[name] = _agent(document, name, entry, read_file, env).to_plan_data()
        except DocumentError as error:
            findings += error.diagnostics
    return found, findings


def _agent(
    document: Document, name: str, entry: Mapping[str, Any], read_file: ReadFile | None, env: Mapping[str, str]
) -> Agent:
    if "file" not in entry:
        named = {} if "name" in entry else {"name": name}
        return read_agent(document.part(("agents", name)), env, named)
    text = read_named(document, "agents", name, entry, read_file, "write the agent's fields into the graph")
    file = entry["file"]
    return load_agent(text, posixpath.join(posixpath.dirname(document.source), file), env)


def read_named(
    document: Document, section: str, name: str, entry: Mapping[str, Any], read_file: ReadFile | None, instead: str
) -> str | bytes:
    """Read the file that an entry ``{file: …}`` of a document's `agents` or `graphs` names.

    Args:
        document: Where the entry stands.
        section: `agents` or `graphs`.
        name: The entry's name there.
        entry: The entry.
        read_file: Gives the content; None where files cannot be read.
        instead: What to do then.

    Raises:
        DocumentError: It names no file, has more beside it, or the file cannot be read.
    """
    what, place, file = section.removesuffix("s"), (section, name, "file"), entry["file"]
    others = [key for key in entry if key != "file"]
    if others:
        message = f"the {what} `{name}` is in a file, so `{others[0]}` does not go here"
        raise _refused(document, "L002", message, (section, name, others[0]), "write it in the file")
    if not isinstance(file, str) or not file:
        raise _refused(document, "L004", f"`file` of the {what} `{name}` should be a file's name", place)
    if read_file is None:
        message = f"the {what} `{name}` is in the file {file}, and files cannot be read here"
        raise _refused(document, _UNREADABLE, message, place, instead)
    try:
        return read_file(file)
    except (OSError, LoomError) as error:
        reason = error.message if isinstance(error, LoomError) else error.strerror or type(error).__name__
        message = f"the file {file} of the {what} `{name}` cannot be read: {reason}"
        raise _refused(document, _UNREADABLE, message, place, "write its path from the graph's directory") from None


def _refused(document: Document, code: str, message: str, place: tuple[str, ...], fix: str = "") -> DocumentError:
    return DocumentError([document.diagnostic(code, message, place, fix=fix)])
