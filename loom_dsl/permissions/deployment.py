"""Policies around an agent's own: the deployment's, which its operator writes, and a project's, which only narrows."""

from typing import Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from loom_dsl.documents.document import Document, load_document
from loom_dsl.documents.validation import validate_model
from loom_dsl.permissions.decide import PolicyLayer
from loom_dsl.permissions.policy import Permissions
from loom_dsl.permissions.roles import Role
from loom_dsl.tools.risk import Risk

PROJECT_POLICY = ".loom/policy.yaml"
"""Where a project's policy lies, below the working directory."""


class Policy(BaseModel):
    """A policy for every agent of a deployment, or of a project."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    permissions: Permissions = Field(default_factory=Permissions)
    """Rules as in an agent's file. A deployment's `allow` counts for every agent; a project's only keeps its own
    `default` away."""

    trust: list[str] = Field(default_factory=list)
    """Tools whose results a deployment vouches for, such as ``mcp__git__*``; a project's list counts for nothing."""

    roles: dict[str, Role] = Field(default_factory=dict)
    """Who may start, decide, abort, pause and inject in a deployment, by the role's name; a project's count for
    nothing. Absent: anybody may."""

    signed: Risk | None = None
    """From which risk on a decision about a tool's call counts only with a signature: `low` (every one), `medium` or
    `high`. The strictest of the deployment, the project and the agent counts."""

    @model_validator(mode="after")
    def _not_a_switch(self) -> Self:
        if not self.permissions.enabled:
            raise ValueError("`enabled: false` is for an agent's file; here leave the rules out")
        if self.permissions.function:
            raise ValueError("`function` is for an agent's file; write rules here")
        if self.permissions.mode == "accept_edits":
            raise ValueError("`mode: accept_edits` is for an agent's file; a policy may say plan or dont_ask")
        return self

    def layer(self, *, deployment: bool) -> PolicyLayer:
        """Give it as one of the policies that decide about a call."""
        return PolicyLayer("deployment" if deployment else "project", self.permissions)


def read_policy(text: str | bytes, source: str) -> tuple[Policy, Document]:
    """Read a policy's file: ``loom: 1``, ``kind: policy``.

    Args:
        text: Its content.
        source: Its name in messages.

    Raises:
        DocumentError: It is not one; names the lines.
    """
    document = load_document(text, source, kinds=("policy",))
    return validate_model(document, Policy), document
