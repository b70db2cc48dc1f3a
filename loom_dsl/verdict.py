"""What is decided about a call, and the policies that have a say in it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel, ConfigDict

from loom_dsl.canonical import canonical_json, digest
from loom_dsl.permission_lists import Decision, Permissions

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
