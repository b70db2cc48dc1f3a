"""Where the server, the queue and the store are: the environment, then what `loom dev` uses."""

import os
from pathlib import Path
from typing import Any, TypeVar

from pydantic import Field, SecretStr, ValidationError, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from loom_dsl.errors import ConfigurationError
from loom_store.location import default_store_path, shown_place

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


class ConnectionSettings(BaseSettings):
    """How to reach the server and the store. Every field can be set as ``LOOM_`` and its name in capitals."""

    model_config = SettingsConfigDict(env_prefix="LOOM_", extra="ignore", env_ignore_empty=True)

    address: str = Field(default_factory=lambda: os.environ.get("TEMPORAL_ADDRESS", "127.0.0.1:7233"))
    """Host and port of the Temporal server."""
    namespace: str = Field(default_factory=lambda: os.environ.get("TEMPORAL_NAMESPACE", "default"))
    """Temporal namespace."""
    task_queue: str = DEFAULT_QUEUE
    """Task queue that workers serve: the base name, to which the store's id is added."""
    store: str = ""
    """Path of the store, or the address of a PostgreSQL database; empty means the default of the namespace."""
    connect_seconds: float = 5.0
    """How long to try to connect."""
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

    @model_validator(mode="before")
    @classmethod
    def _as_temporal_has_it(cls, given: dict[str, Any]) -> dict[str, Any]:
        """Take what is not set from the variables that Temporal's own tools read."""
        theirs = {name: os.environ[variable] for name, variable in TEMPORAL_NAMES.items() if os.environ.get(variable)}
        return {**theirs, **given}

    def store_path(self) -> str | Path:
        """Give the store's place."""
        return self.store or default_store_path(self.namespace)

    def shown_store(self) -> str:
        """Give the store's place as messages and logs have it, without a password."""
        return shown_place(self.store_path())


Kind = TypeVar("Kind", bound=ConnectionSettings)
HIGHEST_PORT = 65_535


def read_settings(kind: type[Kind], **chosen: str | None) -> Kind:
    """Give the settings: what was chosen first, then the environment, then the defaults.

    Args:
        kind: Those of the calling side, or of the serving side.
        chosen: Single fields, as options give them; None: not chosen.

    Raises:
        ConfigurationError: A variable of the environment is not what it should be, or the address is none.
    """
    try:
        settings = kind().model_copy(update={name: value for name, value in chosen.items() if value is not None})
    except ValidationError as error:
        names = ", ".join(f"LOOM_{str(found['loc'][0]).upper()}" for found in error.errors())
        raise ConfigurationError(f"the environment's {names} cannot be used: {error.errors()[0]['msg']}") from None
    host, colon, port = settings.address.rpartition(":")
    if not (colon and host and port.isdecimal() and int(port) <= HIGHEST_PORT):
        raise ConfigurationError(f"{settings.address!r} is not an address; write HOST:PORT, such as 127.0.0.1:7233")
    return settings
