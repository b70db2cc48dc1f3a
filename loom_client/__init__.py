"""The calling side: Python client, command line, development server.

`connect` is where a program begins: ``async with loom_client.connect() as loom: ...``.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from loom_client.connection import connect


__all__ = ["connect"]


def __getattr__(name: str) -> Any:
    # Only when it is asked for: `loom --help` imports this package, and need not wait for the SDK.
    if name != "connect":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from loom_client.connection import connect

    return connect
