"""Connecting only to addresses of the public internet: the address that was checked is the one that is connected to."""

import ipaddress
import re
import socket
import ssl
import time
from collections.abc import Callable, Iterable
from typing import Any

import httpcore2

from loom_dsl.errors import PermissionDenied, ToolError

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
