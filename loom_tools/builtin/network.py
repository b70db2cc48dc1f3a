"""Asking a server on the internet."""

import hashlib
import ipaddress
import re
import socket
import ssl
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal
from urllib.parse import urljoin, urlsplit

import httpcore2
from pydantic import Field

from loom_dsl.errors import Aborted, LoomError, PermissionDenied, ToolError
from loom_dsl.tools.context import Reconciliation, ToolContext
from loom_dsl.tools.risk import Risk
from loom_dsl.tools.secret_references import REFERENCE, put_secrets
from loom_dsl.tools.tool import tool
from loom_tools.builtin.text_file import describe_size

# Connecting only to addresses of the public internet: the address that was checked is the one that is connected to.


_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_UNICAST = ipaddress.ip_network("2000::/3")
_TUNNELS = tuple(map(ipaddress.ip_network, ("2001::/23", "2002::/16", "3fff::/20")))
_REFUSED_V4 = tuple(map(ipaddress.ip_network, ("168.63.129.16/32", "192.0.0.0/24", "192.88.99.0/24", "224.0.0.0/3")))
"""Global by the registry, and yet not the internet: a cloud's own services, tunnels and groups."""
_METADATA = ("fd00:ec2::254", "100.100.100.200", "168.63.129.16", "192.0.0.192")
"""Where clouds keep the credentials of a machine, besides link-local addresses."""
_NUMBER = re.compile(r"(?:0[xX][0-9a-fA-F]*|[0-9]+)")
Resolve = Callable[[str, int], list[str]]


def is_public(address: str) -> bool:
    """Say whether an IP address is one of a single machine on the public internet.

    Private, loopback, link-local, shared, reserved and multicast ones are not, nor addresses that stand for another:
    IPv4 in IPv6, except behind NAT64, where the inner one counts.
    """
    try:
        found = ipaddress.ip_address(address)
    except ValueError:  # such as one with a zone, which is always link-local
        return False
    if isinstance(found, ipaddress.IPv6Address):
        if found in _NAT64:
            return is_public(str(ipaddress.IPv4Address(int(found) & 0xFFFFFFFF)))
        return found.is_global and found in _UNICAST and not any(found in net for net in _TUNNELS)
    return found.is_global and not any(found in net for net in _REFUSED_V4)


def check_host(host: str) -> None:
    """Refuse a host that is an IP address in another spelling than the usual one, such as ``0x7f.1`` or ``2130706433``.

    Raises:
        PermissionDenied: It is.
    """
    last = host.rstrip(".").rpartition(".")[2]
    if ":" in host or not _NUMBER.fullmatch(last):
        return
    try:
        ipaddress.IPv4Address(host)
    except ValueError:
        raise PermissionDenied(
            f"{host!r} is an IP address in an unusual spelling, which is not connected to; write it as 203.0.113.7"
        ) from None


def resolve(host: str, port: int) -> list[str]:
    """Look a host's addresses up."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise ToolError(f"the host {host!r} cannot be found: {error}") from error
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


class CheckedBackend(httpcore2.NetworkBackend):
    """Resolves a name once, checks every address, and connects to one of those: no second look-up can say otherwise.

    Args:
        until: When all must be done, by the monotonic clock.
        private_hosts: Addresses, as HOST:PORT, that may be in a private network; link-local ones never are.
        resolver: Gives the addresses of a host.
    """

    def __init__(self, until: float, private_hosts: frozenset[str] = frozenset(), resolver: Resolve = resolve) -> None:
        self._until, self._private, self._resolve = until, private_hosts, resolver
        self._inner = httpcore2.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.NetworkStream:
        """Connect to one of the host's addresses.

        Raises:
            PermissionDenied: One of them is not public.
        """
        check_host(host)
        addresses = self._resolve(host, port)
        allowed = f"{host.lower()}:{port}" in self._private
        for address in addresses:  # all: a name with a public and a private address is an attack, or a mistake
            if not (is_public(address) or (allowed and not _never(address))):
                raise PermissionDenied(
                    f"{host} is at {address}, which is not on the public internet; requests do not go there"
                )
        problem: Exception = ToolError(f"the host {host!r} has no address")
        for address in addresses[:4]:
            try:
                stream = self._inner.connect_tcp(address, port, remaining(self._until, 10.0))
                return _Limited(stream, self._until)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                problem = error
        raise problem

    def connect_unix_socket(self, *_: Any, **__: Any) -> httpcore2.NetworkStream:
        """Refuse: nothing asks for it.

        Raises:
            PermissionDenied: Always.
        """
        raise PermissionDenied("requests do not go to sockets of this machine")


class _Limited(httpcore2.NetworkStream):
    """A connection whose every wait ends when the whole request's time is up, however slowly the other side drips."""

    def __init__(self, inner: httpcore2.NetworkStream, until: float) -> None:
        self._inner, self._until = inner, until

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._inner.read(max_bytes, remaining(self._until, timeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._inner.write(buffer, remaining(self._until, timeout))

    def close(self) -> None:
        self._inner.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore2.NetworkStream:
        inner = self._inner.start_tls(ssl_context, server_hostname, remaining(self._until, timeout))
        return _Limited(inner, self._until)

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)


def check_literal(host: str) -> None:
    """Refuse a host that is written as an address to which no request goes, whatever a worker allows.

    Raises:
        PermissionDenied: It is.
    """
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return  # a name
    if _never(host):
        raise PermissionDenied(f"{host} is not on the public internet; requests do not go there")


def remaining(until: float, most: float | None = None) -> float:
    """Give the seconds that are left.

    Raises:
        httpcore2.ReadTimeout: None are.
    """
    left = until - time.monotonic()
    if left <= 0:
        raise httpcore2.ReadTimeout("its time is up")
    return left if most is None else min(left, most)


def _never(address: str) -> bool:
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return True
    mapped = getattr(found, "ipv4_mapped", None) or found
    return mapped.is_link_local or mapped.is_multicast or str(mapped) in _METADATA


# What is sent to a server and what is told of its answer: addresses, headers, redirects, text.


MAX_BODY = 2 * 1024 * 1024
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


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """What a server said.

    Attributes:
        status: The HTTP status.
        headers: Names in lower case.
        body: At most `MAX_BODY` bytes of it.
        whole: Whether that is all of it.
    """

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


def redirect_of(target: Target, method: str, found: HttpResponse) -> Target | None:
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


def answer_text(found: HttpResponse, target: Target) -> str:
    """Write an answer as a model reads it."""
    lines = [f"HTTP {found.status} from {target.shown}"]
    lines += [f"{name}: {found.headers[name][:500]}" for name in _SHOWN if name in found.headers]
    if 300 <= found.status < 400 and "location" in found.headers:
        lines.append("[the redirect was not followed; ask for that address in a call of its own if you want it]")
    return "\n".join([*lines, "", *_body(found)])


def _body(found: HttpResponse) -> list[str]:
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


MAX_REDIRECTS = 5
SECONDS = 60.0


def _key(arguments: dict[str, Any]) -> str | None:
    try:
        return f"host:{parse_url(str(arguments.get('url', ''))).origin}"
    except LoomError:
        return None


def _reconcile(arguments: dict[str, Any], context: ToolContext) -> Reconciliation:
    """A request that only asks may be sent again; what became of another one, only the server knows."""
    return Reconciliation(outcome="not_happened" if arguments.get("method") in SAFE_METHODS else "unknown")


def _check(arguments: dict[str, Any]) -> None:
    """What is refused wherever the request would come from is refused before anybody is asked about it."""
    check_literal(parse_url(str(arguments["url"])).host)


def _preview(arguments: dict[str, Any], context: ToolContext) -> str:
    headers = "".join(f"{name}: {value}\n" for name, value in (arguments.get("headers") or {}).items())
    return f"{arguments['method']} {arguments['url']}\n{headers}\n{arguments.get('body') or ''}".rstrip()


@tool(
    risk=Risk.HIGH,
    concurrency_key=_key,
    timeout=SECONDS + 5,
    summarise=lambda arguments: f"{arguments.get('method', 'GET')} {arguments.get('url')}",
    preview=_preview,
    check=_check,
    reconcile=_reconcile,
)
def network_request(
    context: ToolContext,
    url: Annotated[str, Field(max_length=4_000)],
    method: Literal["GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"] = "GET",
    headers: dict[str, str] | None = None,
    body: Annotated[str, Field(max_length=1_000_000)] | None = None,
) -> str:
    """Send one HTTP request to a server on the internet, and give its answer: status, headers and text.

    Redirects within the same host are followed when the method only asks; of another one you are told where it leads.

    Args:
        url: Begins with https:// or http://.
        method: The HTTP method.
        headers: Request headers. A secret is named, never written: {"Authorization": "Bearer ${secret:NAME}"}.
        body: The request's body. Give its Content-Type among the headers.
    """
    until = time.monotonic() + SECONDS
    target = parse_url(url)
    sent = checked_headers(headers or {}, target, context, method, body)
    data = b"" if body is None else body.encode("utf-8", "replace")
    backend = CheckedBackend(until, context.services.private_hosts)
    with httpcore2.ConnectionPool(network_backend=backend, max_connections=1, retries=0) as pool:
        for _ in range(MAX_REDIRECTS + 1):
            context.progress(f"{method} {target.shown}")
            found = _ask(pool, method, target, sent, data, context)
            following = redirect_of(target, method, found)
            if following is None:
                return answer_text(found, target)
            target = following
    raise ToolError(f"{url!r} leads from one redirect to the next, more than {MAX_REDIRECTS} times")


def _ask(
    pool: httpcore2.ConnectionPool,
    method: str,
    target: Target,
    headers: Mapping[str, str],
    body: bytes,
    context: ToolContext,
) -> HttpResponse:
    fields = [(name.encode("ascii"), value.encode("latin-1")) for name, value in headers.items()]
    limits: dict[str, Any] = {"timeout": {"connect": 10.0, "read": 30.0, "write": 30.0, "pool": 10.0}}
    try:
        with pool.stream(method, target.url, headers=fields, content=body or None, extensions=limits) as response:
            told = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in response.headers}
            data, whole = _read(response.iter_stream(), context)
            return HttpResponse(response.status, told, data, whole)
    except httpcore2.TimeoutException as error:
        raise ToolError(f"{target.shown} did not answer in time ({_words(error)})") from error
    except httpcore2.ConnectError as error:
        raise ToolError(f"{target.shown} cannot be reached: {_words(error)}") from error
    except (httpcore2.NetworkError, httpcore2.ProtocolError, httpcore2.UnsupportedProtocol) as error:
        raise ToolError(f"the answer of {target.shown} broke off or is no HTTP: {_words(error)}") from error


def _read(pieces: Iterator[bytes], context: ToolContext) -> tuple[bytes, bool]:
    data = bytearray()
    for piece in pieces:
        if context.cancelled():
            raise Aborted("the request was given up, because the job was ended")
        data += piece
        if len(data) > MAX_BODY:
            return bytes(data[:MAX_BODY]), False
        if len(data) > 100_000:
            context.progress(f"{len(data):,} bytes so far")
    return bytes(data), True


def _words(error: Exception) -> str:
    return str(error) or type(error).__name__
