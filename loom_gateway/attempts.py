"""How often a client's address may come with a token that does not count."""

import ipaddress
import time
from collections import OrderedDict
from collections.abc import Callable
from hashlib import sha256

MOST = 10
"""Wrong tokens that an address may send at once, before it has to wait."""
SECONDS = 6.0
"""After which it may send one more."""
MAX_ADDRESSES = 10_000
MAX_KNOWN = 10_000


class Attempts:
    """Counts wrong tokens by address, in memory of a bounded size.

    An address that sent too many is told to wait before its tokens are looked at, right or wrong, so that it cannot go
    on guessing. Only who came in from that address before still does: behind one proxy or one office's address, nobody
    locks out those who are at work.

    Args:
        clock: Gives seconds, and never goes back.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._spent: OrderedDict[str, float] = OrderedDict()
        """By address: when all that it did will be forgotten. The one that failed last is at the end."""
        self._known: OrderedDict[bytes, None] = OrderedDict()
        """Hashes of addresses with tokens that counted; the one that came last is at the end."""

    def wait(self, address: str, token: str) -> int:
        """Give the seconds after which the address may send a token; 0: now."""
        if _pair(address, token) in self._known:
            return 0
        left = self._spent.get(_network(address), 0.0) - self._clock() - (MOST - 1) * SECONDS
        return 0 if left <= 0 else int(left) + 1

    def failed(self, address: str, token: str) -> None:
        """Note a token that does not count, perhaps not any more."""
        self._known.pop(_pair(address, token), None)
        key, now = _network(address), self._clock()
        self._spent[key] = max(self._spent.pop(key, now), now) + SECONDS
        if len(self._spent) > MAX_ADDRESSES:
            self._spent.popitem(last=False)

    def succeeded(self, address: str, token: str) -> None:
        """Note a token that counts."""
        pair = _pair(address, token)
        self._known[pair] = None
        self._known.move_to_end(pair)
        if len(self._known) > MAX_KNOWN:
            self._known.popitem(last=False)


def _pair(address: str, token: str) -> bytes:
    return sha256(f"{_network(address)} {token}".encode("utf-8", "surrogatepass")).digest()


def _network(address: str) -> str:
    """What counts as one client: an IPv4 address, or the network of 64 bits that one customer has of IPv6."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if found.version == 6 and found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.ip_network((found, 64), strict=False)) if found.version == 6 else str(found)
