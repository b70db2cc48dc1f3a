"""What an agent may do without asking, what it must ask for, and what it may not do."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from loom_dsl.permission_lists import MODES, Decision, Mode, Permissions
from loom_dsl.permission_rules import Call, Rule, parse_rule
from loom_dsl.permission_traits import ToolTraits, traits_of
from loom_dsl.tools import Risk

__all__ = ["Layer", "PolicyLayer", "ToolTraits", "Verdict", "decide", "explain", "strictest_mode", "traits_of"]

Layer = Literal[
    "deployment",
    "project",
    "parent",
    "agent",
    "built-in",
    "default",
    "remembered",
    "switched off",
    "mode",
    "function",
    "untrusted",
]
Origin = Literal["deployment", "project", "parent", "agent"]


class Verdict(BaseModel):
    """What was decided about a call, and why."""

    model_config = ConfigDict(frozen=True)

    decision: Decision
    rule: str
    """The rule that decided, as it was written."""
    layer: Layer
    """Where the rule comes from."""
    reason: str
    """One sentence for people and for the model."""


@dataclass(frozen=True)
class PolicyLayer:
    """A policy around the agent's own.

    Attributes:
        origin: Whose it is. Only the deployment's rules may allow anything; those of a project only narrow.
        permissions: Its rules.
    """

    origin: Origin
    permissions: Permissions


def decide(
    permissions: Permissions,
    tool: ToolTraits,
    arguments: Mapping[str, Any],
    remembered: Sequence[str] = (),
    require_approval_by_default: bool = False,
    layers: Sequence[PolicyLayer] = (),
    answer: Verdict | None = None,
    untrusted: str = "",
) -> Verdict:
    """Decide about one call.

    Args:
        permissions: The agent's policy.
        tool: The tool and what this call touches.
        arguments: The validated arguments.
        remembered: Rules that approvers allowed for the rest of the job; a deny rule still wins.
        require_approval_by_default: Ask where nothing decides, instead of denying.
        layers: The policies around the agent's, the outermost first; they can narrow what it allows.
        answer: What the agent's own function says of the call.
        untrusted: Why the call must be looked at although rules allow it; empty: nothing untrusted was read.
    """
    above = [*layers, *(PolicyLayer("parent", policy) for policy in permissions.within)]
    question = _Question(permissions, tool, tool.call(arguments), remembered, require_approval_by_default, above)
    return question.decided(answer, untrusted)


@dataclass(frozen=True)
class _Question:
    """One call and everything that has a say in it."""

    permissions: Permissions
    tool: ToolTraits
    call: Call
    remembered: Sequence[str]
    require_approval: bool
    layers: Sequence[PolicyLayer]

    def decided(self, answer: Verdict | None, untrusted: str) -> Verdict:
        mode = strictest_mode([self.permissions.mode, *(layer.permissions.mode for layer in self.layers)])
        verdict = self._refused(mode) or (answer if answer and answer.decision == "deny" else None)
        verdict = verdict or self._not_refused(answer, mode)
        if untrusted and verdict.decision == "allow" and verdict.layer not in ("remembered", "switched off"):
            verdict = Verdict(decision="ask", rule="after untrusted content", layer="untrusted", reason=untrusted)
        if verdict.decision == "ask" and mode == "dont_ask":
            reason = f"{verdict.reason}; nobody is asked in the mode dont_ask"
            return verdict.model_copy(update={"decision": "deny", "reason": reason})
        return verdict

    def _all(self) -> Iterator[PolicyLayer]:
        """The layers whose rules count, the outermost first."""
        yield from self.layers
        if self.permissions.enabled:
            yield PolicyLayer("agent", self.permissions)

    def _refused(self, mode: Mode) -> Verdict | None:
        tool, call = self.tool, self.call
        outside = [path for path, normal in zip(tool.paths or (), call.normal_paths, strict=True) if normal is None]
        if outside and tool.builtin and self.permissions.enabled:
            reason = f"{outside[0]!r} is outside the working directory; give a path inside it"
            rule = f"{tool.name}: inside the working directory"
            return Verdict(decision="deny", rule=rule, layer="built-in", reason=reason)
        for layer in self._all():
            if denied := _first(layer.permissions.deny, call, Rule.may_fit):
                return _by_rule("deny", denied.text, layer.origin, call)
        if mode == "plan" and not tool.read_only:
            reason = f"{tool.name} is not allowed: it changes something, and the mode plan is for reading only"
            return Verdict(decision="deny", rule="mode: plan", layer="mode", reason=reason)
        return self._by_default_of_layers("deny")

    def _by_default_of_layers(self, decision: Decision) -> Verdict | None:
        for layer in self.layers:
            rules = layer.permissions
            named = _covering(rules.allow, self.call) or _first(rules.ask, self.call, Rule.may_fit)
            if rules.default == decision and not named:
                words = {"deny": "is not allowed", "ask": "must be approved"}[decision]
                reason = f"{self.tool.name} {words}: no rule of the {layer.origin}'s policy covers it"
                return Verdict(decision=decision, rule=f"default: {decision}", layer=layer.origin, reason=reason)
        return None

    def _not_refused(self, answer: Verdict | None, mode: Mode) -> Verdict:
        if kept := _covering(self.remembered, self.call):
            return _by_rule("allow", kept, "remembered", self.call)
        if verdict := self._asked_by_layers() or answer:
            return verdict
        if not self.permissions.enabled:
            reason = f"{self.tool.name} may run: permissions are switched off for this agent (enabled: false)"
            return Verdict(decision="allow", rule="enabled: false", layer="switched off", reason=reason)
        return (
            self._by_rules()
            or self._by_mode(mode)
            or _without_rule(self.permissions.default, self.tool, self.call, self.require_approval)
        )

    def _asked_by_layers(self) -> Verdict | None:
        for layer in self.layers:
            if asked := _first(layer.permissions.ask, self.call, Rule.may_fit):
                return _by_rule("ask", asked.text, layer.origin, self.call)
        return self._by_default_of_layers("ask")

    def _by_rules(self) -> Verdict | None:
        call, agent = self.call, self.permissions
        if asked := _first(agent.ask, call, Rule.may_fit):
            return _by_rule("ask", asked.text, "agent", call)
        if allowed := _covering(agent.allow, call):
            return _by_rule("allow", allowed, "agent", call)
        for layer in self.layers if agent.default != "deny" else ():
            if layer.origin == "deployment" and (allowed := _covering(layer.permissions.allow, call)):
                return _by_rule("allow", allowed, "deployment", call)
        return None

    def _by_mode(self, mode: Mode) -> Verdict | None:
        if mode != "accept_edits" or self.permissions.default == "deny" or not self._is_edit():
            return None
        reason = f"{self.tool.name} may run: the mode accept_edits lets edits inside the working directory run"
        return Verdict(decision="allow", rule="mode: accept_edits", layer="mode", reason=reason)

    def _is_edit(self) -> bool:
        tool = self.tool
        edits = tool.builtin and tool.listed and bool(tool.paths) and not tool.recursive
        return edits and not tool.read_only and not tool.command_argument and tool.risk != Risk.HIGH


def strictest_mode(modes: Sequence[Mode]) -> Mode:
    """Give the mode of several policies at once. `default` says nothing, so that another may accept edits."""
    return min((mode for mode in modes if mode != "default"), key=MODES.index, default="default")


def explain(verdict: Verdict) -> str:
    """Say in one line what was decided, by which rule, and where that rule comes from."""
    origins = {
        "deployment": "in the deployment's policy",
        "project": "in the project's policy",
        "parent": "in the permissions of a job above this one",
        "agent": "in the agent's permissions",
        "built-in": "built in",
        "default": "the default",
        "remembered": "remembered from an approval of this job",
        "switched off": "permissions are switched off",
        "mode": "the mode",
        "function": "the agent's own function",
        "untrusted": "built in",
    }
    return f"{verdict.decision}: {verdict.reason} [rule {verdict.rule!r}, {origins[verdict.layer]}]"


def _first(rules: Sequence[str], call: Call, fits: Callable[[Rule, Call], bool]) -> Rule | None:
    return next((rule for rule in map(parse_rule, rules) if fits(rule, call)), None)


def _covering(rules: Sequence[str], call: Call) -> str:
    """Name the rule that covers a call, or the rules that cover each of its commands; empty: it is not covered."""
    if whole := _first(rules, call, Rule.surely_fits):
        return whole.text
    if call.command is None or not call.command.plain:
        return ""
    named = [rule for rule in map(parse_rule, rules) if rule.names(call) and rule.about_command(call)]
    found = [next((rule.text for rule in named if rule.covers_part(part)), "") for part in call.command.plain]
    return " + ".join(dict.fromkeys(found)) if all(found) else ""


def _by_rule(decision: Decision, rule: str, layer: Layer, call: Call) -> Verdict:
    words = {"allow": "may run", "ask": "must be approved", "deny": "is not allowed"}[decision]
    where = f" on {', '.join(map(repr, call.paths))}" if "(" in rule and call.paths else ""
    whose = f" of the {layer}'s policy" if layer in ("deployment", "project", "parent") else ""
    source = "an earlier approval covers it" if layer == "remembered" else f"the rule {rule!r}{whose} covers it"
    reason = f"{call.names[0]}{where} {words}: {source}"
    return Verdict(decision=decision, rule=rule, layer=layer, reason=reason)


def _doubt(call: Call) -> str:
    """Say why no rule about commands could cover the line."""
    return f"; {call.command.doubt}" if call.command is not None and call.command.doubt else ""


def _without_rule(default: Decision | None, tool: ToolTraits, call: Call, require_approval: bool) -> Verdict:
    """Decide where no rule fits. A written `default: deny` means what it says, also for Loom's own tools."""
    name = tool.name
    if default != "deny" and tool.listed:
        if tool.builtin and tool.read_only:
            reason = f"{name} only reads inside the working directory"
            return Verdict(decision="allow", rule="built-in tools that read", layer="built-in", reason=reason)
        what = "one of Loom's tools that change something" if tool.builtin else "a tool of your own"
        rule = "built-in tools that write" if tool.builtin else "tools of your own"
        reason = f"{name} must be approved: it is {what} (risk {tool.risk}) and no rule allows it"
        reason += _doubt(call)
        return Verdict(decision="ask", rule=rule, layer="built-in", reason=reason)
    if default is None and require_approval:
        reason = f"{name} must be approved: no rule covers it, and approval is required by default"
        return Verdict(decision="ask", rule="require_approval_by_default", layer="default", reason=reason)
    if default == "allow" and require_approval:
        default = "ask"
    words = {"allow": "may run", "ask": "must be approved", "deny": "is not allowed", None: "is not allowed"}[default]
    written = f"default: {default}" if default else "default: deny (none is written)"
    reason = f"{name} {words}: no rule covers it, and the default is {default or 'deny'}"
    return Verdict(decision=default or "deny", rule=written, layer="default", reason=reason)
