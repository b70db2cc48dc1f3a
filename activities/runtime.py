"""What a worker owns while it serves. The registration hands each activity what that uses; none gets all of it."""

import asyncio
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Self

from activities.chat.endpoints import Endpoints
from activities.interceptor import RetryDelays
from activities.lifecycle.attempts import Steps
from activities.lifecycle.deaths import DEATH_RULES, DeathRules
from activities.lifecycle.shutdown import Stopping
from activities.record.job_store import JobStore
from loom_store.store import Store
from loom_tools import masking
from loom_tools.approver_keys import ApproverKeys
from loom_tools.mcp.servers import Servers
from loom_tools.registry import ToolRegistry
from loom_tools.sandbox.run import LAUNCHER
from loom_tools.secrets import NO_SECRETS, AllowedSecrets


@dataclass(slots=True)
class Runtime:
    """One worker's means, opened with it and closed after it.

    Attributes:
        root: Working directories must lie under it.
        on_approval: Command or URL that is told of a new approval, or empty.
        secrets: Names and values that never enter the store, history or events.
        environment: Where endpoints and credentials of models are looked up, and how long their calls may take.
        delays: When what this worker could not do is tried again.
        allowed: The secrets that tools may have, and where those may be sent.
        mcp: The MCP servers that this worker knows.
        approver_keys: Public keys of those who sign decisions; None: nothing that is signed can be verified here.
        deaths: What it means for a step that its worker died.
        stopping: How the worker stops.
        jobs: The store as activities see it.
        endpoints: The models.
        steps: What notes the steps under way.
    """

    store: Store
    registry: ToolRegistry
    root: Path
    on_approval: str = ""
    secrets: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    delays: RetryDelays = field(default_factory=RetryDelays)
    allowed: AllowedSecrets = NO_SECRETS
    mcp: Servers = field(default_factory=lambda: Servers({}, NO_SECRETS))
    approver_keys: ApproverKeys | None = None
    deaths: DeathRules = DEATH_RULES
    stopping: Stopping = field(default_factory=Stopping)
    jobs: JobStore = field(init=False)
    endpoints: Endpoints = field(init=False)
    steps: Steps = field(init=False)

    def __post_init__(self) -> None:
        masking.prepare()
        self.store.mask_with(partial(masking.redact, known=self.secrets))
        self.jobs = JobStore(self.store, self.root, self.secrets)
        self.endpoints = Endpoints(self.environment)
        self.steps = Steps(self.store, self.secrets, self.deaths)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections to models and MCP servers, and end the process that commands are started from."""
        await self.steps.close()
        await self.mcp.close()
        await asyncio.to_thread(LAUNCHER.close)
        await self.endpoints.close()
