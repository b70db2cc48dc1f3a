"""Where the server, the queue and the store are: flags first, then the environment, then what `loom dev` uses."""

import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import Field, SecretStr, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from loom_store.location import default_store_path

DEFAULT_QUEUE = "loom"
TEMPORAL_NAMES = {
    "tls": "TEMPORAL_TLS",
    "tls_ca": "TEMPORAL_TLS_SERVER_CA_CERT_PATH",
    "tls_cert": "TEMPORAL_TLS_CLIENT_CERT_PATH",
    "tls_key": "TEMPORAL_TLS_CLIENT_KEY_PATH",
    "tls_server_name": "TEMPORAL_TLS_SERVER_NAME",
    "api_key": "TEMPORAL_API_KEY",
}
"""Variables of Temporal's own tools, which stand in for Loom's."""


def worker_command(task_queue: str) -> str:
    """Give the command that starts a worker on a queue."""
    return "loom worker" if task_queue in ("", DEFAULT_QUEUE) else f"loom worker --task-queue {shlex.quote(task_queue)}"


def without_access(environment: Mapping[str, str]) -> dict[str, str]:
    """Leave out how another server is reached: a server of our own on this machine has neither TLS nor keys."""
    return {name: value for name, value in environment.items() if not name.startswith(_ACCESS)}


_ACCESS = ("LOOM_TLS", "LOOM_API_KEY", "TEMPORAL_TLS", "TEMPORAL_API_KEY")


class Settings(BaseSettings):
    """How to reach Loom. Every field can be set as ``LOOM_`` and its name in capitals."""

    model_config = SettingsConfigDict(env_prefix="LOOM_", extra="ignore", env_ignore_empty=True)

    address: str = Field(default_factory=lambda: os.environ.get("TEMPORAL_ADDRESS", "127.0.0.1:7233"))
    """Host and port of the Temporal server."""
    namespace: str = Field(default_factory=lambda: os.environ.get("TEMPORAL_NAMESPACE", "default"))
    """Temporal namespace."""
    task_queue: str = DEFAULT_QUEUE
    """Task queue that workers serve: the base name, to which the store's id is added."""
    store: str = ""
    """Path of the store; empty means the default of the namespace."""
    connect_seconds: float = 5.0
    """How long to try to connect."""
    answer_seconds: float = 5.0
    """How long to wait for a worker to confirm what a job is sent; after that it is sent once more, unconfirmed."""
    tls: bool | None = None
    """Whether to speak TLS; when it says nothing, TLS is spoken if one of the following is set."""
    tls_ca: str = ""
    """PEM file of the CA that signed the server's certificate; empty means the CAs that the machine knows."""
    tls_cert: str = ""
    """PEM file of the client certificate, where the server asks for one."""
    tls_key: str = ""
    """PEM file of its key, without a password."""
    tls_server_name: str = ""
    """Name that the server's certificate is for, when it is not that of the address."""
    api_key: SecretStr | None = None
    """API key, as of Temporal Cloud. There is no option for it: a command line is not secret."""
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

    @model_validator(mode="before")
    @classmethod
    def _as_temporal_has_it(cls, given: dict[str, Any]) -> dict[str, Any]:
        """Take what is not set from the variables that Temporal's own tools read."""
        theirs = {name: os.environ[variable] for name, variable in TEMPORAL_NAMES.items() if os.environ.get(variable)}
        return {**theirs, **given}

    def store_path(self) -> str | Path:
        """Give the store's place."""
        return self.store or default_store_path(self.namespace)


# Who sits here, as decisions and starts of jobs say it.


def user_name() -> str:
    """Give the name of who runs the command."""
    import getpass

    try:
        return getpass.getuser()
    except (KeyError, OSError):  # no such user in this container
        return "somebody"
