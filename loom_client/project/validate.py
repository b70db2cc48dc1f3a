"""Checking documents: everything that is wrong with all of them, before anything starts."""

import difflib
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import BaseModel

from activities.registry import ToolRegistry
from loom_client.graph_plan import plan_of
from loom_client.project.contracts import Contracts
from loom_client.rules import rule_findings
from loom_dsl.agent import NOT_SET, load_agent
from loom_dsl.compile import check_text
from loom_dsl.diagnostic import Diagnostic
from loom_dsl.document import KINDS, Document, load_document, validate_model
from loom_dsl.errors import ConfigurationError, DocumentError, LoomError, NotFoundError
from loom_dsl.policy import Policy
from loom_dsl.scenario import LoadedScenario, Scenario
from loom_dsl.scenario_check import check_scenario
from loom_dsl.script import Script
from loom_dsl.tool_modules import advice_on
from loom_dsl.webhooks import KIND as WEBHOOKS
from loom_dsl.webhooks import WebhookSettings

_HEAD = re.compile(rb"^(\xef\xbb\xbf)?loom:", re.MULTILINE)
UNSET, UNREADABLE, UNKNOWN_TOOL, UNKNOWN_MODULE = "L008", "L010", "L150", "L151"


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
    source = str(path)
    try:
        document = load_document(text, source, kinds=(*KINDS, "policy", "policy-test", WEBHOOKS))
    except DocumentError as error:
        return "", error.diagnostics
    kind = document.data["kind"]
    try:
        findings = _findings(document, text, path, tools, env)
    except DocumentError as error:
        findings = error.diagnostics
    if kind in ("agent", "graph"):
        told = {(found.line, found.column) for found in findings}
        findings += [found for found in _named_tools(document, tools) if (found.line, found.column) not in told]
    findings = [_of_the_place(found) for found in findings]
    findings.sort(key=lambda found: (found.line or 0, found.column or 0))
    return f"{kind} {document.data.get('name', '')}".strip(), findings


def _findings(document: Document, text: bytes, path: Path, tools: Tools, env: Mapping[str, str]) -> list[Diagnostic]:
    kind, source = document.data["kind"], str(path)
    if kind == "agent":
        return list(rule_findings(load_agent(text, source, env), document))
    if kind == "graph":
        return _graph_findings(text, path, tools, env)
    if kind == "scenario":
        return _scenario_findings(LoadedScenario(validate_model(document, Scenario), document), path)
    validate_model(document, _model_of(kind))
    return []


def _of_the_place(found: Diagnostic) -> Diagnostic:
    """A warning of what only is not so here: whoever runs the document may have the variable."""
    unset = found.code == UNSET and found.message.endswith(NOT_SET)
    return replace(found, severity="warning") if unset else found


def _model_of(kind: str) -> type[BaseModel]:
    from loom_client.policy_cases import PolicyCases  # only here: it reads documents with this module

    models: dict[str, type[BaseModel]] = {"policy": Policy, "policy-test": PolicyCases, WEBHOOKS: WebhookSettings}
    return models.get(kind, Script)


def _graph_findings(text: bytes, path: Path, tools: Tools, env: Mapping[str, str]) -> list[Diagnostic]:
    known = Contracts(tools.registry, tools.missing, asked=tools.asked)
    return check_text(
        text,
        str(path),
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


def near_file(path: Path) -> str:
    """Say ``did you mean `x`?`` when a document beside a file that is missing has a name like it, else nothing."""
    # By the stems: an ending that they share makes no names alike.
    names = {file.stem: file.name for file in path.parent.glob("*.y*ml")}
    near = difflib.get_close_matches(path.stem, sorted(names), n=1)
    return f"did you mean `{path.with_name(names[near[0]])}`?" if near else ""


def read_document(path: Path) -> bytes:
    """Read a document's bytes.

    Raises:
        NotFoundError: It cannot be read.
    """
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        hint = near_file(path)
        raise NotFoundError(f"{path} cannot be read: {error.strerror}" + (f"; {hint}" if hint else "")) from None
    except OSError as error:
        raise NotFoundError(f"{path} cannot be read: {error.strerror or error}") from None


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
