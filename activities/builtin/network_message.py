"""What is sent to a server and what is told of its answer: addresses, headers, redirects, text."""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import urljoin, urlsplit

from activities.builtin.network_address import check_host
from activities.builtin.text_file import describe_size
from loom_dsl.errors import PermissionDenied, ToolError
from loom_dsl.secret_references import REFERENCE, put_secrets
from loom_dsl.tools import ToolContext

LARGEST_BODY = 2 * 1024 * 1024
"""Bytes of an answer that are read."""
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
_VALUE = re.compile(r"[\t\x20-\x7e\xa0-\xff]{0,8000}")
_OURS = frozenset(
    {"host", "content-length", "transfer-encoding", "connection", "upgrade", "te", "trailer", "expect", "keep-alive"}
    | {"accept-encoding", "forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip", "metadata-flavor"}
    | {"metadata", "x-aws-ec2-metadata-token", "x-aws-ec2-metadata-token-ttl-seconds"}
)
"""Headers that a model does not set: the connection's own, lies about who asks, those of metadata services."""
_SHOWN = (
    *("content-type", "content-length", "location", "last-modified", "etag", "link", "retry-after", "allow"),
    *("x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"),
)
"""Headers of an answer that a model is told; cookies and the like are not."""
_TEXT = re.compile(
    r"(?:text/|application/(?:json|xml|javascript|x-www-form-urlencoded|yaml|x-ndjson|graphql)|.*\+(?:json|xml))"
)


@dataclass(frozen=True, slots=True)
class Target:
    """Where a request goes.

    Attributes:
        url: The whole address.
        scheme: ``http`` or ``https``.
        host: In lower case, in its ASCII form.
        port: Also when the address does not name one.
    """

    url: str
    scheme: str
    host: str
    port: int

    @property
    def origin(self) -> str:
        """Host and port."""
        return f"{self.host}:{self.port}"

    @property
    def shown(self) -> str:
        """The address without its query, which may hold what is nobody's business."""
        return self.url.partition("?")[0]


class Answered(Protocol):
    """What the functions here look at in an answer."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    whole: bool


def parse_url(text: str) -> Target:
    """Read an address.

    Raises:
        ToolError: It is not one.
        PermissionDenied: Its scheme, its credentials or the spelling of its host are refused.
    """
    if any(ord(char) <= 32 or ord(char) == 127 for char in text) or "\\" in text:
        raise ToolError(f"{text[:200]!r} is not an address: it holds a space, a control character or a backslash")
    if REFERENCE.search(text):
        raise PermissionDenied("a secret does not belong in an address, which servers log; name it in a header")
    try:
        parts = urlsplit(text)
        port, host = parts.port, parts.hostname
    except ValueError as error:
        raise ToolError(f"{text[:200]!r} is not an address: {error}") from error
    if parts.scheme not in ("http", "https"):
        raise PermissionDenied(f"{text[:200]!r} is neither http:// nor https://, which is all that is asked")
    if not host or port == 0:
        raise ToolError(f"{text[:200]!r} names no host; write it as https://example.com/path")
    if parts.username is not None or parts.password is not None:
        raise PermissionDenied("an address must not hold a user's name or password; use a header and ${secret:NAME}")
    host = _ascii(host)
    check_host(host)
    name = f"[{host}]" if ":" in host else host
    address = f"{parts.scheme}://{name}" + (f":{port}" if port else "") + (parts.path or "/")
    address += f"?{parts.query}" if parts.query else ""
    if not address.isascii():
        raise ToolError(f"{text[:200]!r} holds characters that an address cannot have; write them percent-encoded")
    return Target(address, parts.scheme, host, port or {"http": 80, "https": 443}[parts.scheme])


def _ascii(host: str) -> str:
    if ":" in host:
        if "%" in host:
            raise PermissionDenied(f"{host!r} names a network of this machine; requests do not go there")
        return host.lower()
    try:
        # The same reading that look-ups use: full-width digits and dots become plain ones, and are then checked.
        name = host.encode("idna").decode("ascii").lower().rstrip(".")
    except UnicodeError as error:
        raise ToolError(f"{host[:200]!r} is not a name of a host: {error}") from error
    if not re.fullmatch(r"[a-z0-9_.-]{1,253}", name):
        raise ToolError(f"{host[:200]!r} is not a name of a host")
    return name


def checked_headers(
    given: Mapping[str, str], target: Target, context: ToolContext, method: str, body: str | None
) -> dict[str, str]:
    """Give the headers to send, with the secrets that they name.

    Raises:
        ToolError: One is no header.
        PermissionDenied: One is not a model's to set, or names a secret that may not be sent to this host.
    """
    if len(given) > 40:
        raise ToolError(f"{len(given)} headers are too many; give at most 40")
    sent: dict[str, str] = {"user-agent": "loom-agent", "accept": "*/*", "accept-encoding": "identity"}
    if method not in SAFE_METHODS and context.idempotency_key:
        # The same for every attempt of this call, so that a service that knows the header acts once.
        sent["idempotency-key"] = hashlib.sha256(context.idempotency_key.encode()).hexdigest()[:32]
    if body is not None:
        sent["content-type"] = "text/plain; charset=utf-8"
    for name, value in given.items():
        key = name.lower()
        if not _TOKEN.fullmatch(name):
            raise ToolError(f"{name[:100]!r} is not the name of a header")
        if key in _OURS or key.startswith(("proxy-", "sec-")):
            raise PermissionDenied(f"the header {name} is not yours to set; leave it out")
        filled = put_secrets(value, lambda secret: _secret(secret, target, context))
        if not _VALUE.fullmatch(filled):
            raise ToolError(f"the value of the header {name} holds what a header cannot, or is over 8,000 characters")
        sent[key] = filled
    return sent


def _secret(name: str, target: Target, context: ToolContext) -> str:
    # An operator who writes HOST:PORT of a private service has decided about plain http there.
    if target.scheme != "https" and target.origin not in context.services.private_hosts:
        raise PermissionDenied(f"the secret {name} is not sent without encryption; use https://")
    return context.services.secret(name, target.origin)


def redirect_of(target: Target, method: str, found: Answered) -> Target | None:
    """Say where to ask instead, or None when the answer is to be told.

    Only what asks is asked again, and only at the same host: the policy was asked about that one, and secrets are
    bound to it.
    """
    place = found.headers.get("location")
    if found.status not in (301, 302, 303, 307, 308) or not place or method not in SAFE_METHODS:
        return None
    following = parse_url(urljoin(target.url, place))
    upgraded = (target.scheme, target.port, following.scheme, following.port) == ("http", 80, "https", 443)
    same = (following.scheme, following.origin) == (target.scheme, target.origin)
    return following if following.host == target.host and (same or upgraded) else None


def answer_text(found: Answered, target: Target) -> str:
    """Write an answer as a model reads it."""
    lines = [f"HTTP {found.status} from {target.shown}"]
    lines += [f"{name}: {found.headers[name][:500]}" for name in _SHOWN if name in found.headers]
    if 300 <= found.status < 400 and "location" in found.headers:
        lines.append("[the redirect was not followed; ask for that address in a call of its own if you want it]")
    return "\n".join([*lines, "", *_body(found)])


def _body(found: Answered) -> list[str]:
    kind = found.headers.get("content-type", "").lower()
    encoding = found.headers.get("content-encoding", "identity").lower()
    if not found.body:
        return ["[no body]"]
    size = describe_size(len(found.body))
    if encoding != "identity":
        return [f"[{size} of {encoding}, which was not asked for and is not unpacked]"]
    if (kind and not _TEXT.match(kind)) or b"\0" in found.body[:8192]:
        return [f"[a binary body: {size}, {kind or 'of an unknown type'}]"]
    said = re.search(r"charset=\"?([A-Za-z0-9_.:-]+)", kind)
    try:
        text = found.body.decode(said[1] if said else "utf-8", "replace")
    except LookupError:
        text = found.body.decode("utf-8", "replace")
    return [text] if found.whole else [text, f"[only the first {size} were read]"]
