"""Approve something that a job of Loom asks, from a system that knows nothing of Loom: one Temporal signal.

    python approve.py 127.0.0.1:7233 default JOB APPROVAL [approve|reject]

The same from a shell:

    temporal workflow signal --workflow-id JOB --name loom.decision \
        --input '{"approval_id": "APPROVAL", "choice": "approve", "by": "ann"}'
"""

import asyncio
import gc
import sys

from temporalio.client import Client
from temporalio.runtime import Runtime, TelemetryConfig


async def decide(address: str, namespace: str, job: str, approval: str, choice: str = "approve") -> None:
    client = await Client.connect(address, namespace=namespace, runtime=Runtime(telemetry=TelemetryConfig()))
    decision = {"approval_id": approval, "choice": choice, "by": "approve.py"}
    await client.get_workflow_handle(job).signal("loom.decision", decision)


if __name__ == "__main__":
    asyncio.run(decide(*sys.argv[1:]))
    # The SDK's threads end here, with the runtime. The interpreter's own end may be too late: a thread that still
    # answers then aborts the process (https://github.com/temporalio/sdk-python/issues/300).
    gc.collect()
