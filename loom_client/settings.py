"""Where the server, the queue and the store are: flags first, then the environment, then what `loom dev` uses."""

import os
import shlex
from pathlib import Path

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from loom_store.location import default_store_path

DEFAULT_QUEUE = "loom"


def worker_command(task_queue: str) -> str:
    """Give the command that starts a worker on a queue."""
    return "loom worker" if task_queue in ("", DEFAULT_QUEUE) else f"loom worker --task-queue {shlex.quote(task_queue)}"


class Settings(BaseSettings):
    """How to reach Loom. Every field can be set as ``LOOM_`` and its name in capitals."""

    model_config = SettingsConfigDict(env_prefix="LOOM_", extra="ignore")

    address: str = Field(default_factory=lambda: os.environ.get("TEMPORAL_ADDRESS", "127.0.0.1:7233"))
    """Host and port of the Temporal server."""
    namespace: str = Field(default_factory=lambda: os.environ.get("TEMPORAL_NAMESPACE", "default"))
    """Temporal namespace."""
    task_queue: str = DEFAULT_QUEUE
    """Task queue that workers serve."""
    store: str = ""
    """Path of the store; empty means the default of the namespace."""
    connect_seconds: float = 5.0
    """How long to try to connect."""

    def store_path(self) -> str | Path:
        """Give the store's place."""
        return self.store or default_store_path(self.namespace)
