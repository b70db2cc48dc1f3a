"""The calling side: a connection to Loom, and the jobs that a program starts, watches and decides about.

``async with connect() as loom: ...`` is where a program begins. It may import everything below it (the rooms of a
worker, the store and the language); the gateway and the command line import it. Each name is loaded when it is first
used: ``loom --help`` imports this package, and need not wait for the SDK.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from loom_client.client import Loom
    from loom_client.connection import connect
    from loom_client.job import GraphJob, Job, JobGone, NoAnswer
    from loom_client.runner import AgentRunner, RunFailed
    from loom_client.settings import Settings
    from loom_client.signing import SigningKey
    from loom_client.start.schedules import Times

__all__ = [
    "AgentRunner",
    "GraphJob",
    "Job",
    "JobGone",
    "Loom",
    "NoAnswer",
    "RunFailed",
    "Settings",
    "SigningKey",
    "Times",
    "connect",
]

_HOMES = {
    name: module
    for module, names in {
        "loom_client.client": "Loom",
        "loom_client.connection": "connect",
        "loom_client.job": "GraphJob Job JobGone NoAnswer",
        "loom_client.runner": "AgentRunner RunFailed",
        "loom_client.settings": "Settings",
        "loom_client.signing": "SigningKey",
        "loom_client.start.schedules": "Times",
    }.items()
    for name in names.split()
}


if not TYPE_CHECKING:  # a type checker would take every name for one that there is

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(_HOMES[name]), name)
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
