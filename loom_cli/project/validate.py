"""Checking documents: everything that is wrong with all of them, before anything starts."""

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from pydantic import BaseModel

from loom_cli.project.contracts import Contracts
from loom_cli.project.files import read_document
from loom_client.start.submission import plan_of
from loom_dsl.agent.definition import Agent, call_name, read_agent
from loom_dsl.documents.document import KINDS, Document, load_document
from loom_dsl.documents.validation import validate_model
from loom_dsl.errors import ConfigurationError, Diagnostic, DocumentError, LoomError, NotFoundError
from loom_dsl.graph.compiler import check_document
from loom_dsl.observe.webhooks import KIND as WEBHOOKS
from loom_dsl.observe.webhooks import WebhookSettings
from loom_dsl.permissions.deployment import Policy
from loom_dsl.permissions.programs import traits_of_command
from loom_dsl.permissions.rules import COMMAND_TOOLS, Rule, parse_rule
from loom_dsl.simulation.check import check_scenario
from loom_dsl.simulation.scenario import LoadedScenario, read_scenario
from loom_dsl.simulation.script import Script
from loom_dsl.text.wording import suggest
from loom_dsl.tools.tool import advice_on
from loom_tools.builtin import BUILTIN_TOOLS
from loom_tools.registry import ToolRegistry

# Rules of an agent's permissions that name no tool of its: most often a slip, and then they hold for nothing.


RULE_WITHOUT_TOOL = "L152"
RULE_FOR_ANY_CODE = "L154"
_DECISIONS: tuple[Literal["allow", "ask", "deny"], ...] = ("allow", "ask", "deny")


def rule_findings(agent: Agent, document: Document) -> Iterator[Diagnostic]:
    """Find the rules that name neither a tool of the agent nor one of Loom's own.

    A rule that denies what is nearly the name of one of the agent's tools is an error: that tool is not denied.

    Args:
        agent: The agent.
        document: Where it was read from, for the places.
    """
    own = {name for reference in agent.tools for name in (reference, call_name(reference))}
    known = own | {"*"} | {made.name for made in BUILTIN_TOOLS}
    for decision in _DECISIONS:
        for index, text in enumerate(getattr(agent.permissions, decision)):
            rule = parse_rule(text)
            tool = rule.tool
            if decision == "allow" and tool in COMMAND_TOOLS and (any_code := _any_code(rule)):
                yield _placed(any_code, document, decision, index, text)
            if tool in known or tool.startswith("mcp__"):
                continue
            near = suggest(tool, own)
            message = f"the rule `{decision}: {text}` holds for nothing: agent {agent.name} has no tool `{tool}`"
            found = Diagnostic(RULE_WITHOUT_TOOL, message, fix=near, severity="warning")
            if decision == "deny" and near:
                found = replace(found, severity="error")
            yield _placed(found, document, decision, index, text)


def _any_code(rule: Rule) -> Diagnostic | None:
    """What a rule lets run beside what it names, where it allows a program by name that can run anything."""
    pattern = rule.command if rule.pattern is not None else None
    words = tuple(word for word in pattern.words if "*" not in word) if pattern is not None else ()
    if pattern is None or not pattern.program or not (why := traits_of_command(words).anything):
        return None
    message = f"the rule `allow: {rule.text}` lets any code run: {why}"
    fix = "what it may reach is for the confinement; see docs/howto/permissions.md, Commands"
    return Diagnostic(RULE_FOR_ANY_CODE, message, fix=fix, severity="note")


def _placed(found: Diagnostic, document: Document, decision: str, index: int, text: str) -> Diagnostic:
    written = document.data.get("permissions")
    flat = isinstance(written, dict) and text in written
    line, column = document.position(("permissions", text) if flat else ("permissions", decision, index), key=flat)
    return replace(found, file=document.source, line=line, column=column)


_HEAD = re.compile(rb"^(\xef\xbb\xbf)?loom:", re.MULTILINE)
UNREADABLE, UNKNOWN_TOOL, UNKNOWN_MODULE = "L010", "L150", "L151"


@dataclass(frozen=True, slots=True)
class Tools:
    """The tools that agents may name.

    Attributes:
        missing: Modules that were asked for and cannot be imported; references to them are not complained about again.
        asked: Whether modules were asked for. Without any, what graphs name in modules is not known.
    """

    registry: ToolRegistry
    missing: frozenset[str] = frozenset()
    asked: bool = False


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
    return Tools(registry, frozenset(modules) - frozenset(loaded), bool(modules)), findings


def check_file(path: Path, tools: Tools, env: Mapping[str, str]) -> tuple[str, list[Diagnostic]]:
    """Check one document: an agent, a graph, a scenario, a policy or its cases, or a fake model's script.

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
        none = ", and no document of Loom (`loom: 1`) is below it" if path.is_dir() else ""
        return "", [Diagnostic(UNREADABLE, error.message + none)]
    try:
        document = load_document(text, str(path), kinds=(*KINDS, "policy", "policy-test", WEBHOOKS))
    except DocumentError as error:
        return "", error.diagnostics
    kind = document.data["kind"]
    try:
        findings = _findings(document, path, tools, env)
    except DocumentError as error:
        findings = error.diagnostics
    if kind in ("agent", "graph"):
        told = {(found.line, found.column) for found in findings}
        findings += [found for found in _named_tools(document, tools) if (found.line, found.column) not in told]
    findings = [_of_the_place(found) for found in findings]
    findings.sort(key=lambda found: (found.line or 0, found.column or 0))
    return f"{kind} {document.data.get('name', '')}".strip(), findings


def _findings(document: Document, path: Path, tools: Tools, env: Mapping[str, str]) -> list[Diagnostic]:
    kind = document.data["kind"]
    if kind == "agent":
        return list(rule_findings(read_agent(document, env), document))
    if kind == "graph":
        return _graph_findings(document, path, tools, env)
    if kind == "scenario":
        return _scenario_findings(read_scenario(document), path)
    validate_model(document, _model_of(kind))
    return []


def _of_the_place(found: Diagnostic) -> Diagnostic:
    """A warning of what only is not so here: whoever runs the document may have the variable."""
    return replace(found, severity="warning") if found.unset else found


def _model_of(kind: str) -> type[BaseModel]:
    from loom_cli.project.policy import PolicyCases  # only here: it reads documents with this module

    models: dict[str, type[BaseModel]] = {"policy": Policy, "policy-test": PolicyCases, WEBHOOKS: WebhookSettings}
    return models.get(kind, Script)


def _graph_findings(document: Document, path: Path, tools: Tools, env: Mapping[str, str]) -> list[Diagnostic]:
    known = Contracts(tools.registry, tools.missing, asked=tools.asked)
    return check_document(
        document,
        read_file=lambda name: (path.parent / name).read_bytes(),
        env=env,
        resolve=known.resolve,
        contracts=known.of,
    )


def _scenario_findings(loaded: LoadedScenario, path: Path) -> list[Diagnostic]:
    """Whether a scenario fits its graph, where it names the file."""
    file = loaded.scenario.graph_file()
    if file is None:
        return []
    try:
        return check_scenario(loaded, plan_of(path.parent / file))
    except DocumentError as error:
        message = f"the graph {file} is not valid: {error.diagnostics[0].message}"
        return [loaded.document.diagnostic("L004", message, ("graph",), fix=f"mend it first: loom validate {file}")]
    except NotFoundError as error:
        return [loaded.document.diagnostic(UNREADABLE, error.message, ("graph",), fix="write its path from here")]


def documents_among(paths: Sequence[Path]) -> list[Path]:
    """Give the files that are meant: a directory stands for the documents of Loom below it, other YAML left out."""
    meant: list[Path] = []
    for path in paths:
        if not path.is_dir():
            meant.append(path)
            continue
        below = sorted(file for end in ("yaml", "yml") for file in path.rglob(f"*.{end}") if _is_ours(file, path))
        meant += below or [path]  # without any it is told as what cannot be read
    return meant


def _is_ours(file: Path, top: Path) -> bool:
    if any(part.startswith(".") for part in file.relative_to(top).parts):  # environments, caches and the like
        return False
    try:
        return _HEAD.search(file.read_bytes()) is not None
    except OSError:  # it is told when it is checked
        return True


def _named_tools(document: Document, tools: Tools) -> Iterator[Diagnostic]:
    """What is wrong with the tools of an agent's document, or of the agents of a graph's."""
    if document.data["kind"] == "agent":
        yield from _tool_findings(document, document.data.get("tools"), ("tools",), tools)
        yield from _hook_findings(document, document.data.get("hooks"), ("hooks",), tools)
        return
    yield from _hook_findings(document, document.data.get("hooks"), ("hooks",), tools)
    agents = document.data.get("agents")
    for name, agent in agents.items() if isinstance(agents, dict) else ():
        if isinstance(agent, dict):
            yield from _tool_findings(document, agent.get("tools"), ("agents", name, "tools"), tools)
            yield from _hook_findings(document, agent.get("hooks"), ("agents", name, "hooks"), tools)


def _tool_findings(
    document: Document, references: object, place: tuple[str, ...], tools: Tools
) -> Iterator[Diagnostic]:
    for index, reference in enumerate(references if isinstance(references, list) else ()):
        if not isinstance(reference, str):
            continue
        module = reference.rpartition(":")[0]
        # A graph is checked without its modules, too, as long as none is named.
        unknown = len(place) > 1 and module and not tools.asked
        if module in tools.missing or unknown:
            continue
        try:
            tools.registry.resolve(reference)
        except LoomError as error:
            yield _unknown(document, error, reference, (*place, index), tools)


def _hook_findings(document: Document, hooks: object, place: tuple[str, ...], tools: Tools) -> Iterator[Diagnostic]:
    """What is wrong with the functions that an agent's or a graph's `hooks:` names."""
    for point, reference in hooks.items() if isinstance(hooks, dict) else ():
        module = reference.rpartition(":")[0] if isinstance(reference, str) else ""
        if not module or module in tools.missing or (len(place) > 1 and not tools.asked):
            continue
        try:
            tools.registry.function(reference)
        except LoomError as error:
            yield _unknown(document, error, reference, (*place, point), tools)


def _unknown(
    document: Document, error: LoomError, reference: str, place: tuple[str | int, ...], tools: Tools
) -> Diagnostic:
    """A name that is not known: a warning where no module was looked at, since then nobody said which there are."""
    module = reference.rpartition(":")[0]
    if not module or module in tools.registry.modules:
        return document.diagnostic(UNKNOWN_TOOL, error.message, place)
    fix = advice_on(module, f"check it with --tools {module}" + (", too" if tools.asked else ""))
    if tools.asked:
        return document.diagnostic(UNKNOWN_TOOL, error.message, place, fix=fix)
    found = document.diagnostic(UNKNOWN_TOOL, f"{reference!r} was not looked at", place, fix=fix)
    return replace(found, severity="warning")
