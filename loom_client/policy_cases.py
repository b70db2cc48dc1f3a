"""Tables of cases for a policy: calls, and what is to be decided about them."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from loom_client.policy import Explained, PolicyView
from loom_client.project.validate import read_document
from loom_dsl.document import Document, load_document, validate_model
from loom_dsl.permission_lists import Decision, Mode
from loom_dsl.permissions import Layer


class Expected(BaseModel):
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
    cases: dict[str, Expected] = Field(min_length=1)
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


async def _judged(document: Document, view: PolicyView, call: str, expected: Expected) -> Judged:
    found = await view.explain(call)
    line, _ = document.position(("cases", call), key=True)
    return Judged(found, expected.wrong(found), line)
