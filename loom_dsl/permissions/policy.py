"""An agent's or a graph's policy as its file writes it."""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    field_validator,
    model_serializer,
    model_validator,
)
from pydantic.json_schema import SkipJsonSchema

from loom_dsl.approvals.policy import ApprovalPolicy
from loom_dsl.permissions.rules import parse_rule

Decision = Literal["allow", "ask", "deny"]
Mode = Literal["plan", "default", "accept_edits", "dont_ask"]
MODES: tuple[Mode, ...] = ("plan", "dont_ask", "default", "accept_edits")
"""The strictest first."""
_FUNCTION = r"^[A-Za-z_][A-Za-z0-9_.]*:[A-Za-z_][A-Za-z0-9_]*$"
_DECISIONS = ("allow", "ask", "deny")


class Permissions(BaseModel):
    """An agent's policy: lists of rules, or a flat map of tools to `allow`, `ask` and `deny`.

    deny goes before ask, ask before allow, and in a list the first rule that fits decides.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    allow: list[str] = Field(default_factory=list)
    """Rules of calls that run."""
    ask: list[str] = Field(default_factory=list)
    """Rules of calls that wait for an approval."""
    deny: list[str] = Field(default_factory=list)
    """Rules of calls that are refused."""
    default: Decision | None = None
    """For what no rule names: `deny` refuses it; `ask`, in a policy around, asks; else the built-in layer decides."""
    mode: Mode = "default"
    """`plan`: only tools that read. `accept_edits`: edits inside the working directory run where no rule fits.
    `dont_ask`: what would ask is refused."""
    function: str | None = Field(default=None, pattern=_FUNCTION)
    """A function of yours, ``module:function``, that decides too: it may deny, ask, and allow what no rule denies."""
    within: SkipJsonSchema[tuple["Permissions", ...]] = ()
    """Policies of the jobs above, which these cannot exceed. Loom writes it when a job starts another one."""
    asking: SkipJsonSchema[ApprovalPolicy | None] = None
    """In `within`: the `approvals` of that job, which hold for what its rules ask. Loom writes it, too."""
    enabled: bool = Field(default=True, strict=True)
    """False lets every call through; file tools stay inside the working directory."""

    def below(self, outer: "Permissions", asking: ApprovalPolicy | None = None) -> "Permissions":
        """Give these as the policy of a job that one with the outer policy starts.

        Args:
            outer: That one's.
            asking: Its `approvals`.

        Returns:
            These permissions, bounded by the outer ones and by what bounds those: see `within`.
        """
        says = outer.enabled and outer.model_copy(update={"within": ()}) != Permissions(
            allow=outer.allow, default=outer.default if outer.default == "allow" else None
        )
        own = outer.model_copy(update={"within": (), "asking": None if asking == ApprovalPolicy() else asking})
        above = (*outer.within, *((own,) if says else ()))
        return self.model_copy(update={"within": (*above, *self.within)}) if above else self

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

    @model_serializer(mode="wrap")
    def _without_what_nobody_wrote(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        data: dict[str, Any] = write(self)
        for name in ("within", "asking"):
            if not data.get(name):
                data.pop(name, None)
        return data

    @field_validator("allow", "ask", "deny")
    @classmethod
    def _parse(cls, rules: list[str]) -> list[str]:
        for rule in rules:
            parse_rule(rule)
        return rules
