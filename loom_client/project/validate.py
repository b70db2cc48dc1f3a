"""Checking documents: everything that is wrong with all of them, before anything starts."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from activities.registry import ToolRegistry
from loom_dsl.agent import load_agent
from loom_dsl.compile import compile_graph
from loom_dsl.document import Document, load_document, validate_model
from loom_dsl.errors import ConfigurationError, Diagnostic, DocumentError, LoomError, NotFoundError
from loom_dsl.script import Script

UNREADABLE, UNKNOWN_TOOL, UNKNOWN_MODULE = "L010", "L150", "L151"


@dataclass(frozen=True, slots=True)
class Tools:
    """The tools that agents may name.

    Attributes:
        missing: Modules that were asked for and cannot be imported; references to them are not complained about again.
    """

    registry: ToolRegistry
    missing: frozenset[str] = frozenset()


def load_tools(modules: Sequence[str]) -> tuple[Tools, list[Diagnostic]]:
    """Import tool modules as a worker does, from the current directory first; a finding for each that fails."""
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    loaded, findings = [], []
    for module in modules:
        try:
            ToolRegistry.load(builtins=False, modules=[module])
            loaded.append(module)
        except ConfigurationError as error:
            findings.append(Diagnostic(UNKNOWN_MODULE, error.message))
    registry = ToolRegistry.load(modules=loaded)
    return Tools(registry, frozenset(modules) - frozenset(loaded)), findings


def check_file(path: Path, tools: Tools, env: Mapping[str, str]) -> tuple[str, list[Diagnostic]]:
    """Check one document: an agent, a graph or a fake model's script.

    Args:
        path: The document.
        tools: What an agent may name.
        env: The environment's variables, for ``${env:NAME}``.

    Returns:
        The document's kind and name, such as ``agent researcher``, empty when it has none; and all that is wrong.
    """
    try:
        text = read_document(path)
    except NotFoundError as error:
        return "", [Diagnostic(UNREADABLE, error.message)]
    source = str(path)
    try:
        document = load_document(text, source)
    except DocumentError as error:
        return "", error.diagnostics
    kind = document.data["kind"]
    findings: list[Diagnostic] = []
    try:
        if kind == "agent":
            load_agent(text, source, env)
        elif kind == "graph":
            compile_graph(text, source)
        else:
            validate_model(document, Script)
    except DocumentError as error:
        findings = error.diagnostics
    if kind == "agent":
        told = {(found.line, found.column) for found in findings}
        findings += [found for found in _tool_findings(document, tools) if (found.line, found.column) not in told]
    findings.sort(key=lambda found: (found.line or 0, found.column or 0))
    return f"{kind} {document.data.get('name', '')}".strip(), findings


def read_document(path: Path) -> bytes:
    """Read a document's bytes.

    Raises:
        NotFoundError: It cannot be read.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        raise NotFoundError(f"{path} cannot be read: {error.strerror or error}") from None


def _tool_findings(document: Document, tools: Tools) -> Iterator[Diagnostic]:
    references = document.data.get("tools")
    if not isinstance(references, list):
        return
    for index, reference in enumerate(references):
        if not isinstance(reference, str) or reference.rpartition(":")[0] in tools.missing:
            continue
        try:
            tools.registry.resolve(reference)
        except LoomError as error:
            module = reference.rpartition(":")[0]
            fix = f"check it with --tools {module}, too" if module and module not in tools.registry.modules else ""
            yield document.diagnostic(UNKNOWN_TOOL, error.message, ("tools", index), fix=fix)
