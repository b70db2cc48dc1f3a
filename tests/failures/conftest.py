"""A stand for each module, and what its tables begin with."""

import uuid
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest
import pytest_asyncio

from loom_cli.dev.server import DevServer
from tests.failures.bad_endpoint import bad_endpoints, closed_port
from tests.failures.stand import Stand, standing


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stand(
    request: pytest.FixtureRequest, dev_server: DevServer, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Stand]:
    """The module's stand. Its `CASES` (name → steps, agent fields) all begin at once."""
    cases: dict[str, dict[str, Any]] = request.module.CASES
    steps = {name: case["steps"] for name, case in cases.items()}
    folder = tmp_path_factory.mktemp("stand")
    queue = f"test-{uuid.uuid4().hex[:12]}"
    async with AsyncExitStack() as stack:
        endpoints = await stack.enter_async_context(bad_endpoints())
        gone = {"GONE_BASE_URL": f"http://127.0.0.1:{stack.enter_context(closed_port())}/v1"}
        environment = {**endpoints, **gone, **getattr(request.module, "ENVIRONMENT", {})}
        made = await stack.enter_async_context(standing(dev_server, folder, queue, steps, environment=environment))
        for name, case in cases.items():
            options = {key: value for key, value in case.items() if key != "steps"}
            if not options.pop("later", False):
                made.begin(name, **options)
        yield made
