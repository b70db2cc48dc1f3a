"""Sends one message to one endpoint, signed as Standard Webhooks says."""

import base64
import binascii
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

from standardwebhooks import Webhook

from activities.connections import Unreached, post
from loom_dsl.errors import ConfigurationError, LoomError
from loom_dsl.observe.webhooks import Endpoint, read_webhooks, resolved, variable_of

SETTING = "LOOM_WEBHOOKS"
"""Variable that names the file of webhooks."""
LEAST_SECRET, MAX_SECRET = 24, 64
"""Bytes of a secret, as Standard Webhooks wants them."""
_PREFIX = "whsec_"


class NotTaken(LoomError):
    """The endpoint did not take the message.

    Attributes:
        gone: Whether it says that it never will.
        wait: Seconds after which it wants to be asked again, or None.
        check: What somebody who tries the endpoint is to look at.
    """

    code = "webhook_not_taken"
    retryable = True

    def __init__(self, message: str, *, gone: bool = False, wait: float | None = None, check: str = "") -> None:
        super().__init__(message)
        self.gone, self.wait, self.check = gone, wait, check


@dataclass(frozen=True, slots=True)
class Sender:
    """An endpoint with what it takes to send to it.

    Attributes:
        endpoint: What the file says.
        secrets: What signs, the new one first.
        hidden: What nobody else is to know, by the names of its variables.
    """

    endpoint: Endpoint
    secrets: tuple[str, ...] = field(repr=False)
    hidden: Mapping[str, str] = field(default_factory=dict, repr=False)

    def headers(self, message: str, body: str, now: float) -> dict[str, str]:
        """Give the headers of a message: its id, when this attempt is made, and a signature for each secret."""
        moment = datetime.fromtimestamp(int(now), UTC)
        signatures = [Webhook(secret).sign(message, moment, body) for secret in self.secrets]
        return {
            "webhook-id": message,
            "webhook-timestamp": str(int(now)),
            "webhook-signature": " ".join(signatures),
            "content-type": "application/json",
            "user-agent": "loom",
        }

    async def send(self, message: str, body: str) -> int:
        """Send a message once.

        Returns:
            The status, which is a 2xx.

        Raises:
            NotTaken: There was no answer, or another one. Says nothing of the address.
        """
        url, seconds = self.endpoint.url, self.endpoint.timeout
        try:
            status, headers = await post(url, body.encode(), self.headers(message, body, time.time()), seconds)
        except Unreached as error:
            what = f"did not answer within {seconds:g} s" if error.late else f"cannot be reached: {error.why}"
            raise NotTaken(f"{self.endpoint.name} {what}", check=error.check) from None
        return _checked(self.endpoint.name, status, headers)


def _checked(name: str, status: int, headers: Mapping[str, str]) -> int:
    if 200 <= status < 300:
        return status
    if status == 410:
        raise NotTaken(f"{name} answered 410: it takes no more messages", gone=True, check=_GONE)
    why = ", and redirects are not followed" if 300 <= status < 400 else ""
    after = headers.get("retry-after", "")
    wait = float(after) if after.isdecimal() else None
    raise NotTaken(f"{name} answered {status}{why}", wait=wait, check=_CHECKS.get(status, _CHECKS[status // 100]))


_GONE = "whether the receiver is still there; take the endpoint out of the file if it is not"
_CHECKS = {
    401: "whether the receiver has the secret that the endpoint names, and whether both clocks are right",
    403: "whether the receiver has the secret that the endpoint names, and lets this machine in",
    404: "the path of the address",
    1: "whether a receiver of webhooks listens there",
    3: "the address: give the one that it redirects to",
    4: "the receiver's log",
    5: "the receiver's log",
}
"""What to look at after a status, or one of its class."""


def place_of(url: str) -> str:
    """Give the host and the port of an address, as whoever set it up knows them."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    return f"{f'[{host}]' if ':' in host else host}:{parts.port or (443 if parts.scheme == 'https' else 80)}"


class Senders:
    """All endpoints of a worker, by name."""

    def __init__(self, senders: Mapping[str, Sender]) -> None:
        self.by_name = dict(senders)

    @classmethod
    def load(cls, file: Path | None, environment: Mapping[str, str], named: str = SETTING) -> "Senders":
        """Read the deployment's file; no file means that nobody is told.

        Args:
            file: The file.
            environment: Has its secrets.
            named: How its operator named it: a flag or a variable.

        Raises:
            ConfigurationError: The file, or a secret that it names, is missing, or a secret is not one.
            DocumentError: The file is wrong; says where.
        """
        if file is None:
            return cls({})
        try:
            text = file.read_bytes()
        except OSError as error:
            raise ConfigurationError(f"the webhooks {file} ({named}) cannot be read: {error.strerror}") from None
        return cls({made.name: _sender(file, made, environment) for made in read_webhooks(text, str(file)).endpoints})

    @property
    def endpoints(self) -> list[Endpoint]:
        """What the file says."""
        return [sender.endpoint for sender in self.by_name.values()]

    @property
    def secrets(self) -> dict[str, str]:
        """The values that sign, and addresses that are secret, by the names of their variables."""
        return {name: value for sender in self.by_name.values() for name, value in sender.hidden.items()}

    def get(self, name: str) -> Sender:
        """Give an endpoint.

        Raises:
            ConfigurationError: There is none of that name.
        """
        if name not in self.by_name:
            known = ", ".join(self.by_name) or "none"
            raise ConfigurationError(f"there is no endpoint {name!r} among the webhooks; there is: {known}")
        return self.by_name[name]


def _sender(file: Path, endpoint: Endpoint, environment: Mapping[str, str]) -> Sender:
    try:
        made = resolved(endpoint, environment)
    except ValueError as error:
        raise ConfigurationError(f"{file}: the endpoint {endpoint.name}: {error}") from None
    signing = {name: environment.get(name, "") for name in (endpoint.secret, endpoint.former_secret) if name}
    for name, value in signing.items():
        if not value:
            raise ConfigurationError(f"{file}: the endpoint {endpoint.name} needs the variable {name}; it is not set")
        if not _is_secret(value):
            raise ConfigurationError(
                f"{file}: {name} is no secret for webhooks: it must be {_PREFIX} and {LEAST_SECRET} to "
                f"{MAX_SECRET} bytes in base64; make one with: echo {_PREFIX}$(openssl rand -base64 32)"
            )
    variable = variable_of(endpoint.url)
    return Sender(made, tuple(signing.values()), signing | ({variable: made.url} if variable else {}))


def _is_secret(value: str) -> bool:
    try:
        key = base64.b64decode(value.removeprefix(_PREFIX), validate=True)
    except binascii.Error:
        return False
    return value.startswith(_PREFIX) and LEAST_SECRET <= len(key) <= MAX_SECRET
