"""What would be decided about a call, without running anything, and where the deciding rule is written."""

import os
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from activities.tool_calls.policy_layers import ask_function
from loom_cli.project.files import read_document
from loom_dsl.agent.definition import Agent, call_name, read_agent
from loom_dsl.approvals.policy import ApprovalPolicy
from loom_dsl.documents.document import Document, load_document
from loom_dsl.documents.validation import validate_model
from loom_dsl.errors import LoomError, PermissionDenied, UserError
from loom_dsl.permissions.combine import approvals_for, unanswered
from loom_dsl.permissions.decide import Layer, PolicyLayer, Verdict, decide, layers_around
from loom_dsl.permissions.deployment import PROJECT_POLICY
from loom_dsl.permissions.function import PermissionRequest
from loom_dsl.permissions.policy import Decision, Mode, Permissions
from loom_dsl.permissions.programs import reading_in_words
from loom_dsl.permissions.rules import COMMAND_TOOLS, rule_for
from loom_dsl.permissions.traits import ADDRESS_ARGUMENTS, COMMAND_ARGUMENTS, METHOD_ARGUMENTS, ToolTraits, traits_of
from loom_dsl.text.canonical import read_json
from loom_dsl.text.wording import suggest
from loom_dsl.tools.risk import lowest, reaches
from loom_dsl.tools.tool import Tool
from loom_tools.policy_files import POLICY_VARIABLE, deployment_policy, project_policy
from loom_tools.registry import ToolRegistry
from loom_tools.workspace.protected import refuse_protected, refuse_secret
from loom_tools.workspace.workspace import Workspace

_CALL = re.compile(r"([A-Za-z0-9_-]+)(?:\((.*)\))?", re.DOTALL)
_ADDRESS = re.compile(r"(?:([A-Z]+) )?(?:domain:)?(.*)", re.DOTALL)
_NAMED = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)


@dataclass(frozen=True)
class Explained:
    """A decision and its place.

    Attributes:
        call: The call, as it was asked about.
        verdict: What would be decided.
        file: Where the deciding rule is written; empty: it is built in.
        line: Its line, from 1; 0: none.
        unanswered: Where it asks, what happens when nobody answers.
        rules: Where it asks, the rules that `remember` would keep of it.
        reading: How its command line is read, a line for each command of it; empty: it has none.
    """

    call: str
    verdict: Verdict
    file: str = ""
    line: int = 0
    unanswered: str = ""
    rules: tuple[str, ...] = ()
    reading: tuple[str, ...] = ()

    @property
    def place(self) -> str:
        """The file and the line, as editors take them."""
        return f"{self.file}:{self.line}" if self.line else self.file

    def to_json(self) -> dict[str, Any]:
        """Give everything as JSON data."""
        read = {"reading": list(self.reading)} if self.reading else {}
        asked = {"unanswered": self.unanswered, "rules": list(self.rules)} if self.verdict.decision == "ask" else {}
        return {"call": self.call, **self.verdict.model_dump(), "file": self.file, "line": self.line, **read, **asked}


class PolicyView:
    """The policies of an agent's or a graph's file, with those around it.

    Args:
        file: The agent's file, or a graph's.
        policy: The deployment's policy; None: that of the environment's LOOM_POLICY, if any.
        workdir: Where the job would work; its project's policy counts.
        mode: In place of the file's mode.
        tools: Modules of the user's to load, for their tools and the function that decides.

    Raises:
        UserError: One of the files is wrong; says where.
    """

    def __init__(
        self,
        file: Path,
        *,
        policy: Path | None = None,
        workdir: Path | None = None,
        mode: Mode | None = None,
        tools: Sequence[str] = (),
    ) -> None:
        self._document = load_document(read_document(file), str(file), kinds=("agent", "graph"))
        self.name, written, self._approvals, self._tools = _subject(self._document)
        self._permissions = written if mode is None else written.model_copy(update={"mode": mode})
        if tools and os.getcwd() not in sys.path:
            sys.path.insert(0, os.getcwd())
        self._registry = ToolRegistry.load(modules=list(tools))
        self._workdir = (workdir or Path.cwd()).resolve()
        self._layers: list[PolicyLayer] = []
        self._documents = {"agent": self._document}
        if policy is None:
            self._add_layers(os.environ, POLICY_VARIABLE)
        else:
            self._add_layers({POLICY_VARIABLE: str(policy)}, "--policy")

    def _add_layers(self, environment: Any, named: str) -> None:
        deployment, project = deployment_policy(environment, named), project_policy(self._workdir)
        self._has_roles = bool(deployment and deployment.roles)
        self._signed = lowest(policy.signed for policy in (deployment, project) if policy)
        if deployment is not None:
            self._layers.append(deployment.layer(deployment=True))
            place = Path(environment[POLICY_VARIABLE]).expanduser()
            self._documents["deployment"] = load_document(place.read_bytes(), str(place), kinds=("policy",))
        if project is not None:
            self._layers.append(project.layer(deployment=False))
            text = (self._workdir / PROJECT_POLICY).read_bytes()
            self._documents["project"] = load_document(text, str(self._workdir / PROJECT_POLICY), kinds=("policy",))

    async def explain(self, call: str) -> Explained:
        """Decide about a call such as ``execute_bash(git push)``, ``write_file(a.md)``, ``order({"item": "loom"})``.

        Raises:
            UserError: The call cannot be read, or a module is missing that the function is in.
        """
        name, specifier = parse_call(call)
        reference = next((known for known in self._tools if call_name(known) == name), None)
        if reference is None and self._tools is not None and not name.startswith("mcp__"):
            hint = suggest(name, map(call_name, self._tools))
            reason = f"{self.name} has no tool {name!r}{f'; {hint}' if hint else ''}"
            verdict = Verdict(decision="deny", rule="tools", layer="built-in", reason=reason)
            return self._placed(call, verdict)
        tool = self._tool(name, reference or name)
        arguments = arguments_of(tool, specifier)
        try:
            traits = self._traits(tool, reference or name, arguments)
        except PermissionDenied as error:
            return self._placed(call, _refusal("inside the working directory", error.message))
        answer = None
        if self._permissions.function is not None:
            request = PermissionRequest.of(traits, arguments, agent=self.name, job="")
            answer = await ask_function(self._registry, self._permissions.function, request)
        verdict = decide(self._permissions, traits, arguments, layers=self._layers, answer=answer)
        if verdict.decision != "deny":
            verdict = self._refused(tool, reference or name, traits) or verdict
        reading = tuple(reading_in_words(traits.command)) if traits.command is not None else ()
        found = replace(self._placed(call, verdict), reading=reading)
        if verdict.decision != "ask":
            return found
        named = self._has_roles or reaches(tool.risk, self._signed)
        around = layers_around(self._permissions, self._layers)
        policy = approvals_for(verdict, self._approvals, around, named=named)
        said = unanswered(policy, self._approvals, verdict) or "it waits until somebody answers"
        return replace(found, unanswered=said, rules=tuple(rule_for(traits.call(arguments))))

    def _tool(self, name: str, reference: str) -> Tool:
        try:
            return self._registry.resolve(reference)
        except LoomError:
            if ":" in reference and reference.partition(":")[0] in self._registry.modules:
                raise
        return Tool(name=name, description="", parameters=_any_parameters(name), function=_nothing)

    def _traits(self, tool: Tool, reference: str, arguments: dict[str, Any]) -> ToolTraits:
        with Workspace(self._workdir) as workspace:
            return traits_of(
                tool,
                arguments,
                builtin=self._registry.is_builtin(reference) or reference in COMMAND_TOOLS | ADDRESS_ARGUMENTS.keys(),
                working_dir=str(self._workdir),
                real_path=workspace.real_path,
                reference=reference if ":" in reference else "",
            )

    def _refused(self, tool: Tool, reference: str, traits: ToolTraits) -> Verdict | None:
        """Say what one of Loom's file tools refuses when it runs, whatever the rules say."""
        if not self._registry.is_builtin(reference) or tool.recursive or not traits.paths:
            return None
        try:
            for path in traits.paths:
                (refuse_secret if tool.read_only else refuse_protected)(path, path)
        except PermissionDenied as error:
            return _refusal("protected place", error.message)
        if not tool.read_only:
            with Workspace(self._workdir) as workspace:
                links = [path for path in traits.paths if workspace.real_path(path) != path]
            if links:
                return _refusal(
                    "no symbolic links", f"{links[0]!r} goes through a symbolic link, which is not written through"
                )
        return None

    def _placed(self, call: str, verdict: Verdict) -> Explained:
        found = Explained(call, verdict)
        layer = {"mode": "agent", "function": "agent", "switched off": "agent", "default": "agent"}.get(
            verdict.layer, verdict.layer
        )
        document = self._documents.get(layer)
        path = rule_path(document, verdict) if document is not None else None
        if document is None or path is None:
            return replace(found, file=document.source if document is not None else "")
        line, _ = document.position(path, key=not isinstance(path[-1], int))
        return replace(found, file=document.source, line=line)


def _refusal(rule: str, reason: str) -> Verdict:
    return Verdict(decision="deny", rule=rule, layer="built-in", reason=f"{reason}; no rule can allow it")


def parse_call(call: str) -> tuple[str, str | None]:
    """Split ``Tool(specifier)``.

    Raises:
        UserError: It is written in another way.
    """
    found = _CALL.fullmatch(call.strip())
    if not found:
        raise UserError(f"{call!r} is not a call; write TOOL or TOOL(…), such as 'execute_bash(git push --force)'")
    return found[1], found[2]


def arguments_of(tool: Tool, specifier: str | None) -> dict[str, Any]:
    """Make the arguments of a call of what stands in its parentheses.

    Args:
        tool: The tool.
        specifier: A JSON object; ``name=value``; or the value of the argument that rules are about: a command, an
            address or a path.

    Raises:
        UserError: It is no object, or the tool has no argument that rules are about.
    """
    if specifier is None:
        return {}
    schema: dict[str, Any] = tool.parameters
    known = schema.get("properties", {})
    if specifier.lstrip().startswith("{"):
        try:
            value = read_json(specifier)
        except ValueError:
            value = None
        if isinstance(value, dict):
            return value
    if command := tool.command_argument or COMMAND_ARGUMENTS.get(tool.name):
        return {command: specifier}
    if address := tool.address_argument or ADDRESS_ARGUMENTS.get(tool.name):
        found = _ADDRESS.fullmatch(specifier)
        method, host = found.groups() if found else (None, specifier)
        how = {METHOD_ARGUMENTS[tool.name]: method} if method and tool.name in METHOD_ARGUMENTS else {}
        return {address: host if "://" in host else f"https://{host}/", **how}
    if (named := _NAMED.fullmatch(specifier)) and (named[1] in known or not tool.path_arguments):
        return {named[1]: named[2]}
    if tool.path_arguments:
        first = tool.path_arguments[0]
        many = known.get(first, {}).get("type") == "array"
        return {first: [specifier] if many else specifier}
    raise UserError(f'{tool.name}({specifier}): write its arguments as JSON, such as {tool.name}({{"name": "value"}})')


def rule_path(document: Document, verdict: Verdict) -> tuple[str | int, ...] | None:
    """Find where a document writes the rule that decided."""
    written = document.data.get("permissions") if isinstance(document.data, dict) else None
    if not isinstance(written, dict):
        return None
    rule = verdict.rule.split(" + ")[0]
    lists: list[tuple[str | int, ...]] = [
        ("permissions", key, index)
        for key in (verdict.decision, "deny", "ask", "allow")
        for index, text in enumerate(written[key] if isinstance(written.get(key), list) else [])
        if text == rule
    ]
    field = "function" if verdict.layer == "function" else rule.partition(":")[0]
    fields: list[tuple[str | int, ...]] = [("permissions", key) for key in (rule, field) if key in written]
    return next(iter([*lists, *fields]), None)


def _subject(document: Document) -> tuple[str, Permissions, ApprovalPolicy, tuple[str, ...]]:
    """Give the name, the permissions, the approvals and the tools of an agent's or a graph's file."""
    if document.data["kind"] == "agent":
        agent: Agent = read_agent(document, os.environ)
        return f"agent {agent.name}", agent.permissions, agent.approvals, agent.tools
    part = document.part(("permissions",)) if "permissions" in document.data else None
    asking = document.part(("approvals",)) if "approvals" in document.data else None
    nodes = document.data.get("nodes")
    tools = [node["tool"] for node in nodes.values() if "tool" in node] if isinstance(nodes, dict) else []
    return (
        f"graph {document.data.get('name')}",
        validate_model(part, Permissions) if part else Permissions(),
        validate_model(asking, ApprovalPolicy) if asking else ApprovalPolicy(),
        tuple(tools),
    )


def _nothing(**_: object) -> None:
    """Stand in for a tool that is not here: it is looked at and never called."""


def _any_parameters(name: str) -> dict[str, Any]:
    argument = COMMAND_ARGUMENTS.get(name) or ADDRESS_ARGUMENTS.get(name)
    return {"type": "object", "properties": {argument: {"type": "string"}} if argument else {}}


# Tables of cases for a policy: calls, and what is to be decided about them.


class ExpectedDecision(BaseModel):
    """What is to be decided about one call."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    decision: Decision
    """What is decided."""
    rule: str | None = None
    """The rule that decides."""
    layer: Layer | None = None
    """Where that rule comes from."""

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, data: Any) -> Any:
        return {"decision": data} if isinstance(data, str) else data

    def wrong(self, found: Explained) -> list[str]:
        """Name what is decided in another way."""
        pairs = (("decision", self.decision), ("rule", self.rule), ("layer", self.layer))
        told = [(name, wanted, getattr(found.verdict, name)) for name, wanted in pairs if wanted is not None]
        return [f"{name} is {given!r}, not {wanted!r}" for name, wanted, given in told if given != wanted]


class PolicyCases(BaseModel):
    """A file of cases: ``loom: 1``, ``kind: policy-test``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    agent: str
    """The agent's file or a graph's, by its path from this one."""
    policy: str | None = None
    """The deployment's policy, by its path from this file."""
    workdir: str = "."
    """Where the job would work, by its path from this file."""
    mode: Mode | None = None
    """In place of the file's mode."""
    tools: list[str] = Field(default_factory=list)
    """Your modules that hold tools or the function that decides."""
    cases: dict[str, ExpectedDecision] = Field(min_length=1)
    """By call: the decision, or `{decision, rule, layer}`."""


@dataclass(frozen=True)
class Judged:
    """A case and what became of it.

    Attributes:
        found: What is decided.
        wrong: What of it is not as expected; empty: all is.
        line: The case's line in its file.
    """

    found: Explained
    wrong: list[str]
    line: int

    def to_json(self) -> dict[str, Any]:
        """Give everything as JSON data."""
        return {**self.found.to_json(), "ok": not self.wrong, "wrong": self.wrong, "case_line": self.line}


async def judge(file: Path) -> list[Judged]:
    """Decide every case of a file.

    Raises:
        UserError: The file, or one that it names, is wrong; says where.
    """
    document = load_document(read_document(file), str(file), kinds=("policy-test",))
    table = validate_model(document, PolicyCases)
    view = PolicyView(
        file.parent / table.agent,
        policy=file.parent / table.policy if table.policy is not None else None,
        workdir=file.parent / table.workdir,
        mode=table.mode,
        tools=table.tools,
    )
    return [await _judged(document, view, call, expected) for call, expected in table.cases.items()]


async def _judged(document: Document, view: PolicyView, call: str, expected: ExpectedDecision) -> Judged:
    found = await view.explain(call)
    line, _ = document.position(("cases", call), key=True)
    return Judged(found, expected.wrong(found), line)
