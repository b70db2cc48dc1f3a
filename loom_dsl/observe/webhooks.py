"""Webhooks: which events of jobs are told to which addresses. A deployment's file says so.

Only what is told, and to whom. The address and the secret of an endpoint never leave the worker that sends.
"""

import ipaddress
import json
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from loom_dsl.approvals.policy import Who
from loom_dsl.documents.document import load_document
from loom_dsl.documents.validation import validate_model
from loom_dsl.fields import Duration
from loom_dsl.text.confusables import gathered, revealed
from loom_dsl.tools.risk import Risk

# What is asked as a text for systems that only pass it on: nothing in it hides, and what is left out is said.


MAX_SHOWN = 2_500
"""Characters; chats and mails take about so many in one message."""
_NAMES = ("tool", "risk", "reason", "requester")


def shown(data: Mapping[str, Any], most: int = MAX_SHOWN) -> dict[str, Any]:
    """Give what a message about an approval asks as text.

    Args:
        data: The message's `data`, with the arguments as `content` where they are told.
        most: Characters of the text.

    Returns:
        ``title``, one line of at most 120 characters; ``text``; and ``left_out``, how many characters of it are not
        there, which the text says too.
    """
    asked = data.get("request") if isinstance(data.get("request"), dict) else {}
    assert isinstance(asked, dict)
    summary = str(asked.get("summary") or asked.get("tool") or "a question")
    lines = [f"Job {data.get('job')} of {data.get('agent')} asks: {summary}"]
    lines += [f"{name}: {asked[name]}" for name in _NAMES if asked.get(name)]
    if "content" in data:
        lines.append(json.dumps(data["content"], ensure_ascii=False, indent=2))
    elif asked.get("arguments"):
        lines.append("The arguments are not in this message.")
    text = visible_text("\n".join(lines))
    title = " ".join(visible_text(summary).split())
    end = f"\n… {{}} more characters are not shown here: loom approvals {data.get('approval_id')}"
    if len(text) <= most:
        return {"title": _cut(title, 120), "text": text, "left_out": 0}
    room = most - len(end) - len(str(len(text)))
    return {"title": _cut(title, 120), "text": text[:room] + end.format(len(text) - room), "left_out": len(text) - room}


def visible_text(text: str) -> str:
    """Write what does not look like what it is as escapes, and many blanks or blank lines as their number."""
    return "\n".join(gathered(revealed(line) for line in text.split("\n")))


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


KIND = "webhooks"

WebhookEvent = Literal[
    "approval_requested",
    "approval_reminded",
    "approval_escalated",
    "approval_halted",
    "approval_renewed",
    "approval_voted",
    "approval_decided",
    "approval_expired",
    "job_completed",
    "job_failed",
    "job_aborted",
    "job_paused",
    "job_resumed",
    "step_halted",
    "step_resumed",
]
"""What an endpoint can be told."""
ASKS = frozenset({"approval_requested", "approval_reminded", "approval_escalated", "approval_renewed"})
"""The events that want somebody to decide."""
_CHANGES = {"vote": "approval_voted"} | {
    what: f"approval_{what}" for what in ("reminded", "escalated", "halted", "renewed")
}
_STATES = {state: f"job_{state}" for state in ("completed", "failed", "aborted")}
_CONTROLS = {"pause": "job_paused", "resume": "job_resumed"}
_STEPS = {"halted": "step_halted", "resumed": "step_resumed"}
_RISKS = (Risk.LOW, Risk.MEDIUM, Risk.HIGH)
_ENVIRONMENT = re.compile(r"\$\{env:([A-Za-z_][A-Za-z0-9_]*)\}")
_NAME, _VARIABLE = r"[a-z0-9][a-z0-9_-]{0,39}", r"[A-Za-z_][A-Za-z0-9_]*"


class DeliveryRetry(BaseModel):
    """How often a message is tried before it is a dead letter."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    attempts: Annotated[int, Field(strict=True, ge=1, le=100)] = 12
    """Attempts in all."""
    first: Duration = 5.0
    """Before the second attempt."""
    factor: Annotated[float, Field(ge=1, le=10)] = 3.0
    """Each time is so much longer than the one before."""
    longest: Duration = 3600.0
    """The longest time between two attempts; a longer `Retry-After` is cut to it."""


class Endpoint(BaseModel):
    """An address that is told of events."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Annotated[str, Field(pattern=f"^{_NAME}$")]
    """What `loom webhooks` calls it: small letters, digits, `_` and `-`."""
    url: str
    """Where it listens: https, or http on this machine. ``${env:NAME}`` where the address itself is secret."""
    secret: Annotated[str, Field(pattern=f"^{_VARIABLE}$")]
    """Name of the worker's variable with the secret that signs: `whsec_` and 24 to 64 bytes in base64."""
    former_secret: Annotated[str, Field(pattern=f"^(?:{_VARIABLE})?$")] = ""
    """Name of the variable with the secret before it, while receivers change over: both sign."""
    events: tuple[WebhookEvent, ...] = ()
    """What it is told of; absent: of everything."""
    agents: tuple[str, ...] = ()
    """Names of the agents and graphs whose jobs it is told of; absent: of all."""
    risk: Risk = Risk.LOW
    """From which risk on it is told of approvals. A graph's question counts as `high`."""
    links: tuple[Who, ...] = ()
    """People for whom links that decide are put in; needs the gateway."""
    arguments: bool = Field(default=True, strict=True)
    """Whether the arguments of a call are told, up to 64 KiB, besides their summary."""
    timeout: Annotated[Duration, Field(le=60)] = 10.0
    """How long an attempt may take."""
    retry: DeliveryRetry = DeliveryRetry()
    """How often it is tried."""

    @field_validator("url")
    @classmethod
    def _safe(cls, value: str) -> str:
        return value if variable_of(value) else checked_url(value)

    def wants(self, event: str, agent: str, risk: str) -> bool:
        """Whether it is told of an event.

        Args:
            event: A `WebhookEvent`.
            agent: Name of the job's agent or graph.
            risk: An approval's; empty: not known, which counts as high. Events of jobs have none.
        """
        if (self.events and event not in self.events) or (self.agents and agent not in self.agents):
            return False
        known = Risk(risk) if risk in set(Risk) else Risk.HIGH
        return not event.startswith("approval_") or _RISKS.index(known) >= _RISKS.index(self.risk)


class WebhookSettings(BaseModel):
    """All endpoints of a deployment."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    endpoints: Annotated[tuple[Endpoint, ...], Field(min_length=1)]
    """Who is told."""

    @model_validator(mode="after")
    def _one_of_a_name(self) -> "WebhookSettings":
        names = [endpoint.name for endpoint in self.endpoints]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"two endpoints have the name {', '.join(twice)}; names tell them apart")
        return self


def is_loopback(host: str) -> bool:
    """Whether a host is this machine."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def checked_url(value: str) -> str:
    """Give an address that may be sent to. It may be a secret, so no message has it.

    Raises:
        ValueError: It may not.
    """
    parts = urlsplit(value)
    if parts.username is not None or parts.password is not None:
        raise ValueError("an address with a name or password in it is not taken; the signature says who sends")
    if parts.scheme == "https" and parts.hostname:
        return value
    if parts.scheme == "http" and is_loopback(parts.hostname or ""):
        return value
    raise ValueError("write https://…, or http://… for an address of this machine (127.0.0.1, ::1, localhost)")


def variable_of(url: str) -> str:
    """Name the variable that an address stands in; empty: it stands here."""
    found = _ENVIRONMENT.fullmatch(url)
    return found[1] if found else ""


def resolved(endpoint: Endpoint, environment: Mapping[str, str]) -> Endpoint:
    """Put the address in that stands in the environment.

    Raises:
        ValueError: It is not set, or may not be sent to.
    """
    name = variable_of(endpoint.url)
    if not name:
        return endpoint
    if not environment.get(name):
        raise ValueError(f"its address is in the variable {name}, which is not set")
    try:
        return endpoint.model_copy(update={"url": checked_url(environment[name])})
    except ValueError as error:
        raise ValueError(f"the variable {name}: {error}") from None


def read_webhooks(text: str | bytes, source: str) -> WebhookSettings:
    """Read a file of ``kind: webhooks``.

    Args:
        text: Its content.
        source: Its name in messages.

    Raises:
        DocumentError: It is wrong; says where.
    """
    return validate_model(load_document(text, source, kinds=(KIND,)), WebhookSettings)


def told_as(event: Mapping[str, Any]) -> str | None:
    """Name what a stored event of a job is to an endpoint; None: nothing that is told."""
    match event.get("t"):
        case "approval_requested":
            return "approval_requested"
        case "approval_changed":
            return _CHANGES.get(event.get("what", ""))
        case "approval_decided":
            return "approval_expired" if event.get("choice") == "expired" else "approval_decided"
        case "state":
            return _STATES.get(event.get("state", ""))
        case "halted" | "resumed":
            return _STEPS[event["t"]]
        case "control" if event.get("cause"):
            return None  # only steps go on, and each says so itself
        case "control":
            return _CONTROLS.get(event.get("op", ""))
    return None
