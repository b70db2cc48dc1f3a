"""Where the server, the queue and the store are: flags first, then the environment, then what `loom dev` uses."""

import shlex
from collections.abc import Mapping

from pydantic import SecretStr

from loom_store.server.settings import DEFAULT_QUEUE, ConnectionSettings


def worker_command(task_queue: str) -> str:
    """Give the command that starts a worker on a queue."""
    return "loom worker" if task_queue in ("", DEFAULT_QUEUE) else f"loom worker --task-queue {shlex.quote(task_queue)}"


def without_access(environment: Mapping[str, str]) -> dict[str, str]:
    """Leave out how another server is reached: a server of our own on this machine has neither TLS nor keys."""
    return {name: value for name, value in environment.items() if not name.startswith(_ACCESS)}


_ACCESS = ("LOOM_TLS", "LOOM_API_KEY", "TEMPORAL_TLS", "TEMPORAL_API_KEY")


class Settings(ConnectionSettings):
    """How to reach Loom. Every field can be set as ``LOOM_`` and its name in capitals."""

    answer_seconds: float = 5.0
    """How long to wait for a worker to confirm what a job is sent; after that it is sent once more, unconfirmed."""
    gateway_tokens: str = ""
    """File of the tokens that `loom gateway` takes; `loom token` writes it."""
    gateway_key: SecretStr | None = None
    """Signs the links of `loom gateway`, at least 32 characters; without it there are no links."""
    gateway_url: str = ""
    """How others reach `loom gateway`, such as `https://loom.example.com`; links begin with it."""
    gateway_agents: str = ""
    """Directory of the agents' files that `loom gateway` may start; without it, it starts none."""
    gateway_work: str = ""
    """Directory whose directories those jobs may work in; a worker's `--root` must hold it."""
