"""Hosts of addresses, and patterns over them: `api.example.com`, `*.example.com`."""

import ipaddress
import re
from functools import lru_cache

_ADDRESS = re.compile(r"(?i:https?)://(\[[0-9a-fA-F:.]+\]|[^/?#:@\\%\[\]]+)(?::\d{1,5})?(?:[/?#].*)?")
"""Without a user, a backslash or an escape in the host: programs do not agree on what these mean."""
_HOST = re.compile(r"(?:[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9])?\.)*[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9])?")


def host_of(address: object) -> str | None:
    """Give the host of an address in normal form.

    Returns:
        Small letters, without a dot at the end; an IPv6 address without its brackets. None: the address can be read
        in more than one way, or is none of HTTP.
    """
    if not isinstance(address, str) or any(ord(letter) < 33 or ord(letter) == 127 for letter in address):
        return None
    found = _ADDRESS.fullmatch(address)
    return normal_host(found[1]) if found else None


def normal_host(host: str) -> str | None:
    """Write a host in one form; None when it is not a host."""
    text = host.strip("[]").lower()
    if ":" in text:
        try:
            return str(ipaddress.IPv6Address(text))
        except ValueError:
            return None
    text = text[:-1] if text.endswith(".") else text
    try:
        text = text.encode("idna").decode() if not text.isascii() else text
    except UnicodeError:
        return None
    if not _HOST.fullmatch(text) or len(text) > 253:
        return None
    return None if _odd_number(text) else text


def _odd_number(host: str) -> bool:
    """Whether it is an IPv4 address in a form that programs read differently, such as 0x7f.1 or 2130706433."""
    last = host.rpartition(".")[2]
    if not (last.isdigit() or last.startswith("0x")):
        return False
    try:
        ipaddress.IPv4Address(host)
    except ValueError:
        return True
    return False


class DomainPattern:
    """A host, or `*.` and a domain for every host below it; `*` alone is any host.

    Raises:
        ValueError: It is neither.
    """

    def __init__(self, text: str) -> None:
        below = text.strip().startswith("*.")
        host = _normal(text.strip()[2:] if below else text.strip()) if text.strip() != "*" else "*"
        if host is None:
            raise ValueError(f"{text!r} is not a domain; write a host such as api.example.com, or *.example.com")
        self.host, self.below = host, below

    def covers(self, host: str) -> bool:
        """Say whether a rule that allows covers the host."""
        if self.host == "*":
            return True
        return host.endswith(f".{self.host}") if self.below else host == self.host

    def may_cover(self, host: str) -> bool:
        """Say whether a rule that denies or asks covers it: the hosts below a domain are its own."""
        return self.host in ("*", host) or host.endswith(f".{self.host}")


@lru_cache(maxsize=16_384)
def _normal(host: str) -> str | None:
    return normal_host(host)
