"""What an agent may do without asking, what it must ask for, and what it may not do."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from loom_dsl.permissions.command_pattern import CommandPattern
from loom_dsl.permissions.paths import ANY, PART, is_open, may_mean
from loom_dsl.permissions.policy import MODES, Decision, Mode, Permissions
from loom_dsl.permissions.programs import base_name, in_words, traits_of_command
from loom_dsl.permissions.python_code import is_harmless
from loom_dsl.permissions.remembered import OWN, UNTRUSTED, Remembered, answered, covering
from loom_dsl.permissions.rules import COMMAND_TOOLS, Call, Rule, commands_of, parse_rule, uncovered
from loom_dsl.permissions.shell_line import ShellReading
from loom_dsl.permissions.traits import ToolTraits, traits_of
from loom_dsl.text.canonical import canonical_json, digest
from loom_dsl.tools.risk import Risk

# What a rule that denies or asks cannot judge, so that a person must.


_STEERING = re.compile(
    r"agents\.md|claude\.md|gemini\.md|(?:gnu|bsd)?makefile|.*\.mk|justfile|taskfile\.ya?ml|rakefile|jenkinsfile"
    r"|(?:docker|container)file.*|.*\.dockerfile|(?:docker-)?compose.*\.ya?ml|package\.json|setup\.(?:py|cfg)|pyproject\.toml"
    r"|conftest\.py|sitecustomize\.py|usercustomize\.py|tox\.ini|noxfile\.py|build\.rs|cmakelists\.txt|crontab"
    r"|.*\.(?:code-workspace|service|timer|desktop|pth)"
)
"""Names, in lower case, of files that others run, or that tell agents what to do."""
_HEEDED_BY_GIT = re.compile(rf"(?:^|/)(?:(?:\.git(?:config)?|hooks|config)(?:/|$)|\.\w*{PART})|^~/?\.?$")
"""Places that git may take settings or hooks from: those, and what is copied into the home directory as a whole."""


def doubt_of(policy: Permissions, call: Call) -> tuple[Rule, str] | None:
    """Find the first rule that denies or asks something and cannot be judged for a call, with the reason.

    Args:
        policy: The rules. None that denies or asks surely means the call; a rule that allows a program by name says
            that it may run anything.
        call: The call.
    """
    allowed = [rule.command for rule in map(parse_rule, policy.allow) if rule.names(call) and rule.about_command(call)]
    named = [pattern for pattern in allowed if pattern is not None and pattern.program]
    for rule in map(parse_rule, [*policy.deny, *policy.ask]):
        if rule.pattern is not None and (reason := _doubt_of_rule(rule, call, named)):
            return rule, reason
    return None


def steers(path: str) -> bool:
    """Say whether a file is one that others run, or that tells later agents and tools what to do.

    Those are hidden files too (`.github/workflows/ci.yml`, `.envrc`), but for lists of what to ignore.
    """
    *above, name = path.lower().split("/")
    if any(part.startswith(".") and part not in (".", "..") for part in above):
        return True
    return (name.startswith(".") and not name.endswith("ignore")) or _STEERING.fullmatch(name) is not None


def _doubt_of_rule(rule: Rule, call: Call, named: Sequence[CommandPattern]) -> str:
    about_paths = rule.tool == "*" and rule.argument is None and rule.domain is None
    if call.names[0] == "python_repl" and "code" in call.arguments:
        judged = about_paths or rule.tool in COMMAND_TOOLS
        return "code of Python may do what it is about" if judged and not _is_harmless(call.arguments["code"]) else ""
    if call.command is None or not call.command_argument:
        return ""
    if not about_paths and not (rule.names(call) and rule.about_command(call)):
        return ""
    if call.command.unknown:
        return f"the line cannot be read: {call.command.unknown}"
    pattern = None if about_paths else rule.command
    if pattern is not None and (meant := next(filter(pattern.may_mean, commands_of(call.command)), None)):
        return f"only running it tells whether `{in_words(meant)}` is one"
    if reason := _runs_anything(call.command, named):
        return reason
    shapes = [shape for shape in call.mentions if is_open(shape) or ANY in shape] if about_paths else []
    if any(may_mean(rule.pattern or "", shape) for shape in shapes):
        return "it may touch all that is in the working directory"
    return ""


def _runs_anything(reading: ShellReading, named: Sequence[CommandPattern]) -> str:
    """Say which program of a line may run anything and is allowed by no rule that names it; empty: there is none."""
    opaque = [(words, why) for words in commands_of(reading) if (why := traits_of_command(words).anything)]
    for words, why in opaque:
        if not any(rule.program == words[0] and rule.covers(words, moved=reading.moves) for rule in named):
            return why
    commands = commands_of(reading)
    if any(base_name(words[0]) == "git" for words in commands):
        beside = (word for words in commands if base_name(words[0]) != "git" for word in words[1:])
        if heeded := next(filter(_HEEDED_BY_GIT.search, (*reading.writes, *beside)), ""):
            return f"it names {in_words([heeded])}, which git may heed"
    written = [path for path in reading.writes if steers(path) or any(path in words for words, _ in opaque)]
    return f"it writes {written[0]}, and {base_name(opaque[0][0][0])} may run that" if written and opaque else ""


def _is_harmless(code: Any) -> bool:
    return isinstance(code, str) and is_harmless(code)


# What is decided about a call, and the policies that have a say in it.


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
    asked_by: tuple[str, ...] = ()
    """All that ask about the call, the outermost first: keys of `PolicyLayer`, `agent` for the agent's own rules and
    defaults, `untrusted`. `rule` and `layer` are those of the first whose question is not answered yet."""


@dataclass(frozen=True)
class PolicyLayer:
    """A policy around the agent's own.

    Attributes:
        origin: Whose it is. Only the deployment's rules may allow anything; those of a project only narrow.
        permissions: Its rules.
    """

    origin: Origin
    permissions: Permissions

    @property
    def key(self) -> str:
        """Names it among those that ask: of several policies of jobs above, by what they say."""
        if self.origin != "parent":
            return self.origin
        return f"parent:{digest(canonical_json(self.permissions.model_dump(mode='json', exclude={'asking'})))[:16]}"


def layers_around(permissions: Permissions, layers: Sequence[PolicyLayer] = ()) -> list[PolicyLayer]:
    """Give all policies around an agent's: those of the deployment and the project, and of the jobs above."""
    return [*layers, *(PolicyLayer("parent", policy) for policy in permissions.within)]


def explain(verdict: Verdict) -> str:
    """Say in one line what was decided, by which rule, and where that rule comes from.

    Args:
        verdict: What `decide` gave.
    """
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


__all__ = [
    "Layer",
    "PolicyLayer",
    "ToolTraits",
    "Verdict",
    "decide",
    "explain",
    "layers_around",
    "strictest_mode",
    "traits_of",
]


def decide(
    permissions: Permissions,
    tool: ToolTraits,
    arguments: Mapping[str, Any],
    remembered: Sequence[Remembered] = (),
    layers: Sequence[PolicyLayer] = (),
    answer: Verdict | None = None,
    untrusted: str = "",
) -> Verdict:
    """Decide about one call.

    Args:
        permissions: The agent's policy.
        tool: The tool and what this call touches.
        arguments: The validated arguments.
        remembered: What approvers allowed to run again. It answers the questions that it was asked by, and no deny.
        layers: The policies around the agent's, the outermost first; they can narrow what it allows.
        answer: What the agent's own function says of the call.
        untrusted: Why the call must be looked at although rules allow it; empty: nothing untrusted was read.

    Returns:
        `allow`, `ask` or `deny`, with the rule that decided, where it comes from, and a sentence for people.
    """
    above = layers_around(permissions, layers)
    question = _Question(permissions, tool, tool.call(arguments), remembered, above)
    return question.decided(answer, untrusted)


@dataclass(frozen=True)
class _Question:
    """One call and everything that has a say in it."""

    permissions: Permissions
    tool: ToolTraits
    call: Call
    remembered: Sequence[Remembered]
    layers: Sequence[PolicyLayer]

    def decided(self, answer: Verdict | None, untrusted: str) -> Verdict:
        mode = strictest_mode([self.permissions.mode, *(layer.permissions.mode for layer in self.layers)])
        verdict = self._refused(mode) or (answer if answer and answer.decision == "deny" else None)
        verdict = verdict or self._not_refused(answer, mode, untrusted)
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
        return next(filter(None, (self._by_default_of(layer, decision) for layer in self.layers)), None)

    def _by_default_of(self, layer: PolicyLayer, decision: Decision) -> Verdict | None:
        rules = layer.permissions
        named = covering(rules.allow, self.call) or _first(rules.ask, self.call, Rule.may_fit)
        if rules.default != decision or named:
            return None
        words = {"deny": "is not allowed", "ask": "must be approved"}[decision]
        reason = f"{self.tool.name} {words}: no rule of the {layer.origin}'s policy covers it"
        return Verdict(decision=decision, rule=f"default: {decision}", layer=layer.origin, reason=reason)

    def _not_refused(self, answer: Verdict | None, mode: Mode, untrusted: str) -> Verdict:
        own = self._own(answer, mode)
        asks = dict(self._asked(answer, own))
        if untrusted and (asks or own.decision == "allow"):  # also where the agent's own policy is switched off
            asks[UNTRUSTED] = Verdict(
                decision="ask", rule="after untrusted content", layer="untrusted", reason=untrusted
            )
        if not asks:
            return own
        rules = {asker: answered(asker, self.call, self.remembered) for asker in asks}
        left = [asks[asker] for asker, rule in rules.items() if not rule]
        if not left:
            named = " + ".join(dict.fromkeys(rules.values()))
            return _by_rule("allow", named, "remembered", self.call)
        reasons = [left[0].reason, *(verdict.reason for verdict in left[1:] if verdict.layer == UNTRUSTED)]
        return left[0].model_copy(update={"asked_by": tuple(asks), "reason": "; ".join(reasons)})

    def _asked(self, answer: Verdict | None, own: Verdict) -> Iterator[tuple[str, Verdict]]:
        """All that ask, the outermost first: what one of them may leave unanswered is another's question still."""
        for layer in self.layers:
            if asked := self._asked_by(layer):
                yield layer.key, asked
        if answer and answer.decision == "ask":
            # Of several functions it is not told which asks, so all of them do.
            yield from ((layer.key, answer) for layer in self.layers if layer.permissions.function)
            if self.permissions.function or not any(layer.permissions.function for layer in self.layers):
                yield OWN, answer
        elif own.decision == "ask":
            yield OWN, own

    def _asked_by(self, layer: PolicyLayer) -> Verdict | None:
        if asked := _first(layer.permissions.ask, self.call, Rule.may_fit):
            return _by_rule("ask", asked.text, layer.origin, self.call)
        return self._by_doubt(layer.permissions, layer.origin) or self._by_default_of(layer, "ask")

    def _by_doubt(self, rules: Permissions, layer: Origin) -> Verdict | None:
        """Ask where a rule that denies or asks cannot be judged: whether it means the call, a person sees."""
        if not (found := doubt_of(rules, self.call)):
            return None
        rule, why = found
        reason = f"{self.tool.name} must be approved: the rule {rule.text!r} cannot be judged, for {why}"
        return Verdict(decision="ask", rule=rule.text, layer=layer, reason=reason)

    def _own(self, answer: Verdict | None, mode: Mode) -> Verdict:
        """What the agent's own function, rules and defaults say."""
        if answer:
            return answer
        if not self.permissions.enabled:
            reason = f"{self.tool.name} may run: permissions are switched off for this agent (enabled: false)"
            return Verdict(decision="allow", rule="enabled: false", layer="switched off", reason=reason)
        return self._by_rules() or self._by_mode(mode) or _without_rule(self.permissions, self.tool, self.call)

    def _by_rules(self) -> Verdict | None:
        call, agent = self.call, self.permissions
        if asked := _first(agent.ask, call, Rule.may_fit):
            return _by_rule("ask", asked.text, "agent", call)
        if doubted := self._by_doubt(agent, "agent"):
            return doubted
        if allowed := covering(agent.allow, call):
            return _by_rule("allow", allowed, "agent", call)
        for layer in self.layers if agent.default != "deny" else ():
            if layer.origin == "deployment" and (allowed := covering(layer.permissions.allow, call)):
                return _by_rule("allow", allowed, "deployment", call)
        return None

    def _by_mode(self, mode: Mode) -> Verdict | None:
        if mode != "accept_edits" or self.permissions.default == "deny" or not self._is_edit():
            return None
        reason = f"{self.tool.name} may run: the mode accept_edits lets edits inside the working directory run"
        return Verdict(decision="allow", rule="mode: accept_edits", layer="mode", reason=reason)

    def _is_edit(self) -> bool:
        tool = self.tool
        edits = tool.builtin and bool(tool.paths) and not tool.recursive
        edits = edits and not any(steers(path) for path in tool.paths or ())
        return edits and not tool.read_only and not tool.command_argument and tool.risk != Risk.HIGH


def strictest_mode(modes: Sequence[Mode]) -> Mode:
    """Give the mode of several policies at once. `default` says nothing, so that another may accept edits."""
    return min((mode for mode in modes if mode != "default"), key=MODES.index, default="default")


def _first(rules: Sequence[str], call: Call, fits: Callable[[Rule, Call], bool]) -> Rule | None:
    return next((rule for rule in map(parse_rule, rules) if fits(rule, call)), None)


def _by_rule(decision: Decision, rule: str, layer: Layer, call: Call) -> Verdict:
    words = {"allow": "may run", "ask": "must be approved", "deny": "is not allowed"}[decision]
    where = f" on {', '.join(map(repr, call.paths))}" if "(" in rule and call.paths else ""
    whose = f" of the {layer}'s policy" if layer in ("deployment", "project", "parent") else ""
    source = "an earlier approval covers it" if layer == "remembered" else f"the rule {rule!r}{whose} covers it"
    reason = f"{call.names[0]}{where} {words}: {source}"
    return Verdict(decision=decision, rule=rule, layer=layer, reason=reason)


def _without_rule(policy: Permissions, tool: ToolTraits, call: Call) -> Verdict:
    """Decide where no rule fits. A written `default: deny` means what it says, also for Loom's own tools."""
    name = tool.name
    wanting = uncovered([parse_rule(rule) for rule in policy.allow], call)
    why = f"; {wanting}" if wanting else ""
    if policy.default == "deny":
        reason = f"{name} is not allowed: no rule covers it, and the default is deny{why}"
        return Verdict(decision="deny", rule="default: deny", layer="default", reason=reason)
    if tool.builtin and tool.read_only:
        reason = f"{name} only reads inside the working directory"
        return Verdict(decision="allow", rule="built-in tools that read", layer="built-in", reason=reason)
    what = "one of Loom's tools that change something" if tool.builtin else "a tool of your own"
    rule = "built-in tools that write" if tool.builtin else "tools of your own"
    reason = f"{name} must be approved: it is {what} (risk {tool.risk}) and no rule allows it{why}"
    return Verdict(decision="ask", rule=rule, layer="built-in", reason=reason)
