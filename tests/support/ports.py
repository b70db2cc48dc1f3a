"""Ports for servers that are told theirs before they listen."""

import itertools
import os
import random
import socket
from pathlib import Path

_BLOCK = 1_000
_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")


def _block() -> int:
    """The first port of this test process's own block.

    It lies below those that the system gives to whoever asks for any: between being chosen and being listened on a
    port of those may go to somebody else.
    """
    least = int(_RANGE.read_text().split()[0]) if _RANGE.exists() else 32_768
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    blocks = max(1, (least - 10_000) // _BLOCK)
    return max(1_024, least - _BLOCK * (worker % blocks + 1))


_offsets = itertools.count(random.randrange(_BLOCK))


def own_port() -> int:
    """A port on loopback that nobody listens on, that no other test of this run is given."""
    first = _block()
    while True:
        port = first + next(_offsets) % _BLOCK
        if _is_free(port):
            return port


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
