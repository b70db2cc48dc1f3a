"""What an agent may do without asking, what it must ask for, and what it may not do."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from loom_dsl.paths import normal_path
from loom_dsl.permission_rules import Call, Rule, parse_rule
from loom_dsl.tools import Risk, Tool

Decision = Literal["allow", "ask", "deny"]
Layer = Literal["agent", "built-in", "default", "remembered", "switched off"]
_DECISIONS = ("allow", "ask", "deny")


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


class Permissions(BaseModel):
    """An agent's policy: lists of rules, or a flat map of tools to `allow`, `ask` and `deny`.

    deny goes before ask, ask before allow, and in a list the first rule that fits decides.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    allow: list[str] = Field(default_factory=list)
    ask: list[str] = Field(default_factory=list)
    deny: list[str] = Field(default_factory=list)
    default: Decision | None = None
    """For calls that neither a rule nor the built-in layer decides. `deny` also goes before the built-in layer."""
    enabled: bool = Field(default=True, strict=True)
    """False lets every call through; file tools stay inside the working directory."""

    @model_validator(mode="before")
    @classmethod
    def _from_flat_map(cls, data: Any) -> Any:
        if not isinstance(data, Mapping):
            return data
        flat = {key: value for key, value in data.items() if key not in cls.model_fields}
        rules = {key: value for key, value in flat.items() if isinstance(value, str)}
        if not rules or len(rules) != len(flat):
            return data
        lists: dict[str, Any] = {key: value for key, value in data.items() if key not in flat}
        mixed = [key for key in _DECISIONS if key in lists]
        if mixed:
            raise ValueError(
                f"{next(iter(rules))!r} is not a field here; write either lists (allow, ask, deny) or a map from tool "
                f"to rule, and not both ({mixed[0]!r} is there too)"
            )
        for rule, decision in rules.items():
            if decision not in _DECISIONS:
                raise ValueError(f"{rule!r} is {decision!r}; write allow, ask or deny")
            lists.setdefault(decision, []).append(rule)
        return lists

    @field_validator("allow", "ask", "deny")
    @classmethod
    def _parse(cls, rules: list[str]) -> list[str]:
        for rule in rules:
            parse_rule(rule)
        return rules


@dataclass(frozen=True, kw_only=True)
class ToolTraits:
    """What a policy looks at in a tool and one call of it.

    Attributes:
        name: What the model calls it.
        read_only: It changes nothing.
        builtin: It is one of Loom's own.
        risk: How much it can do.
        paths: What this call touches, relative to the working directory; several spellings of one place (as written,
            and with symbolic links followed) may be given. None: the tool has no paths.
        recursive: The paths are directories of which the whole tree is touched.
        reference: `module:function`, when that is how the agent names it.
        listed: The agent names it in `tools:`.
    """

    name: str
    read_only: bool
    builtin: bool
    risk: Risk = Risk.MEDIUM
    paths: tuple[str, ...] | None = None
    recursive: bool = False
    reference: str = ""
    listed: bool = True


def traits_of(
    tool: Tool,
    arguments: Mapping[str, Any],
    *,
    builtin: bool,
    working_dir: str | None = None,
    real_path: Callable[[str], str] | None = None,
    reference: str = "",
    listed: bool = True,
) -> ToolTraits:
    """Describe a call of a tool to `decide`.

    Args:
        tool: The tool.
        arguments: Its validated arguments.
        builtin: It is one of Loom's own.
        working_dir: Absolute paths below it are made relative.
        real_path: Follows symbolic links, so that a link does not lead around a rule; a place it gives is added.
        reference: `module:function`, when that is how the agent names it.
        listed: The agent names it in `tools:`.
    """
    paths = _paths(tool, arguments, working_dir) if tool.path_arguments else None
    if paths is not None and real_path is not None:
        paths += [real_path(path) for path in list(paths) if normal_path(path) is not None]
    return ToolTraits(
        name=tool.name,
        read_only=tool.read_only,
        builtin=builtin,
        risk=tool.risk,
        paths=None if paths is None else tuple(dict.fromkeys(paths)),
        recursive=tool.recursive,
        reference=reference,
        listed=listed,
    )


def _paths(tool: Tool, arguments: Mapping[str, Any], working_dir: str | None) -> list[str]:
    """List the paths that a call names; one that leads out stays as it is, so that it is refused by name."""
    values = [arguments.get(name) for name in tool.path_arguments]
    named = [item for value in values for item in (value if isinstance(value, list) else [value])]
    found = [(item, normal_path(item, working_dir)) for item in named if isinstance(item, str)]
    return [item if normal is None else normal for item, normal in found]


def decide(
    permissions: Permissions,
    tool: ToolTraits,
    arguments: Mapping[str, Any],
    remembered: Sequence[str] = (),
    require_approval_by_default: bool = False,
) -> Verdict:
    """Decide about one call.

    Args:
        permissions: The agent's policy.
        tool: The tool and what this call touches.
        arguments: The validated arguments.
        remembered: Rules that approvers allowed for the rest of the job; a deny rule still wins.
        require_approval_by_default: Ask where nothing decides, instead of denying.
    """
    if not permissions.enabled:
        reason = f"{tool.name} may run: permissions are switched off for this agent (enabled: false)"
        return Verdict(decision="allow", rule="enabled: false", layer="switched off", reason=reason)
    call = Call(tuple(filter(None, (tool.name, tool.reference))), arguments, tool.paths, tool.recursive)
    outside = [path for path, normal in zip(tool.paths or (), call.normal_paths, strict=True) if normal is None]
    if outside and tool.builtin:
        reason = f"{outside[0]!r} is outside the working directory; give a path inside it"
        return Verdict(
            decision="deny", rule=f"{tool.name}: inside the working directory", layer="built-in", reason=reason
        )
    if denied := _first(permissions.deny, call, Rule.may_fit):
        return _by_rule("deny", denied, "agent", call)
    if kept := _first(remembered, call, Rule.surely_fits):
        return _by_rule("allow", kept, "remembered", call)
    if asked := _first(permissions.ask, call, Rule.may_fit):
        return _by_rule("ask", asked, "agent", call)
    if allowed := _first(permissions.allow, call, Rule.surely_fits):
        return _by_rule("allow", allowed, "agent", call)
    return _without_rule(permissions.default, tool, require_approval_by_default)


def explain(verdict: Verdict) -> str:
    """Say in one line what was decided, by which rule, and where that rule comes from."""
    origins = {
        "agent": "in the agent's permissions",
        "built-in": "built in",
        "default": "the default",
        "remembered": "remembered from an approval of this job",
        "switched off": "permissions are switched off",
    }
    return f"{verdict.decision}: {verdict.reason} [rule {verdict.rule!r}, {origins[verdict.layer]}]"


def _first(rules: Sequence[str], call: Call, fits: Callable[[Rule, Call], bool]) -> Rule | None:
    return next((rule for rule in map(parse_rule, rules) if fits(rule, call)), None)


def _by_rule(decision: Decision, rule: Rule, layer: Layer, call: Call) -> Verdict:
    words = {"allow": "may run", "ask": "must be approved", "deny": "is not allowed"}[decision]
    where = f" on {', '.join(map(repr, call.paths))}" if rule.pattern is not None and call.paths else ""
    source = "an earlier approval covers it" if layer == "remembered" else f"the rule {rule.text!r} covers it"
    reason = f"{call.names[0]}{where} {words}: {source}"
    return Verdict(decision=decision, rule=rule.text, layer=layer, reason=reason)


def _without_rule(default: Decision | None, tool: ToolTraits, require_approval: bool) -> Verdict:
    """Decide where no rule fits. A written `default: deny` means what it says, also for Loom's own tools."""
    name = tool.name
    if default != "deny" and tool.listed:
        if tool.builtin and tool.read_only:
            reason = f"{name} only reads inside the working directory"
            return Verdict(decision="allow", rule="built-in tools that read", layer="built-in", reason=reason)
        what = "one of Loom's tools that change something" if tool.builtin else "a tool of your own"
        rule = "built-in tools that write" if tool.builtin else "tools of your own"
        reason = f"{name} must be approved: it is {what} (risk {tool.risk}) and no rule allows it"
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
