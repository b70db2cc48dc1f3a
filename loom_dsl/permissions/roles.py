"""Roles: who may start and approve what, and abort, pause or write to a job. A deployment's policy names them."""

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from loom_dsl.approvals.policy import Who, is_among
from loom_dsl.fields import listed
from loom_dsl.tools.risk import Risk

_ORDER = (Risk.LOW, Risk.MEDIUM, Risk.HIGH)
Right = Literal["abort", "pause", "inject", "links"]
Pattern = Annotated[str, Field(min_length=1, max_length=200)]


class Role(BaseModel):
    """What some people may do with every job of a deployment."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    who: Annotated[tuple[Who, ...], Field(min_length=1)]
    """Their names."""
    start: tuple[Pattern, ...] = ()
    """Names of the agents and graphs that they may start; `*` stands for any text. Absent: none."""
    directories: tuple[Pattern, ...] = ()
    """Names of the gateway's directories in which jobs that they start there may work; `*` stands for any text.
    Absent: only in a new one, the job's own."""
    approve: Risk | None = None
    """Up to which risk they may decide: `low`, `medium` or `high`. Absent: nothing."""
    abort: bool = Field(default=False, strict=True)
    """Whether they may end jobs."""
    pause: bool = Field(default=False, strict=True)
    """Whether they may pause jobs, and let them go on."""
    inject: bool = Field(default=False, strict=True)
    """Whether they may send messages to an agent."""
    links: bool = Field(default=False, strict=True)
    """Whether they may make approve and reject links for other people."""

    _one = field_validator("who", "start", "directories", mode="before")(listed)


Roles = Mapping[str, Role]


def may_decide(roles: Roles, name: str, risk: str) -> bool:
    """Whether a person may decide about a call of this risk. A question without a known risk counts as a high one."""
    need = _ORDER.index(_risk(risk))
    return any(role.approve is not None and _ORDER.index(role.approve) >= need for role in _of(roles, name))


def may(roles: Roles, name: str, right: Right) -> bool:
    """Whether a person has a right."""
    return any(getattr(role, right) for role in _of(roles, name))


def may_start(roles: Roles, name: str, what: str, directory: str | None = None) -> bool:
    """Whether a person may start a job.

    Args:
        roles: Who may do what.
        name: The person.
        what: Name of the agent or the graph.
        directory: Name of the gateway's directory that the job works in; None for one of its own. One and the same
            role must allow both.
    """
    return any(
        _fits(what, role.start) and (directory is None or _fits(directory, role.directories))
        for role in _of(roles, name)
    )


def is_known(roles: Roles, name: str) -> bool:
    """Whether a person has a role at all."""
    return bool(_of(roles, name))


def who_may_decide(roles: Roles, risk: str) -> list[str]:
    """Name everybody who may decide about a call of this risk."""
    need = _ORDER.index(_risk(risk))
    able = (role for role in roles.values() if role.approve is not None and _ORDER.index(role.approve) >= need)
    return list(dict.fromkeys(name for role in able for name in role.who))


def _fits(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _of(roles: Roles, name: str) -> list[Role]:
    return [role for role in roles.values() if is_among(name, role.who)]


def _risk(text: str) -> Risk:
    return Risk(text) if text in set(Risk) else Risk.HIGH
