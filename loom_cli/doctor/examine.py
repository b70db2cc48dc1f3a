"""What `loom doctor` looks at, one thing after another."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from loom_cli.doctor.check import PROBE_SECONDS, Check, Status
from loom_cli.doctor.environment import confinement, openat2, package, python, room, store, temporal_cli
from loom_cli.doctor.model_endpoint import mcp_servers, model, policy
from loom_cli.doctor.server import server, webhooks
from loom_cli.doctor.workers import kept
from loom_client.settings import Settings

PACKAGES = ("workflows", "activities", "worker")
"""Import names of Loom's that other distributions own too."""


def examine(
    settings: Settings, env: Mapping[str, str] | None = None, seconds: float = PROBE_SECONDS
) -> Iterator[Check]:
    """Look at everything, one after another.

    Args:
        settings: Where the server and the store are.
        env: The environment's variables.
        seconds: How long what is looked for has to answer.
    """
    environment = os.environ if env is None else env
    yield python()
    packages = [package(name) for name in PACKAGES]
    yield from packages
    place, checked = store(settings)
    serving = kept(settings, place)
    reached = list(server(settings, serving, seconds))
    yield from reached
    yield temporal_cli(environment, needed=reached[0].status is Status.FAIL)
    yield checked
    if isinstance(place, Path):
        yield room(place)
    if place is not None and checked.status is reached[0].status is Status.OK:
        yield from webhooks(settings, place, serving.id, environment, seconds)
    # The provider's rules are the worker's, so they can be read only if that package is Loom's own.
    if all(check.status is Status.OK for check in packages):
        yield model(environment, seconds)
        yield openat2()
        yield confinement(environment)
        yield from mcp_servers(environment)
        yield from policy(environment)
