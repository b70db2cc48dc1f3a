"""Which workers ask a task queue for work."""

import time
from typing import TYPE_CHECKING

from loom_dsl.queues import presence_queue

if TYPE_CHECKING:
    from temporalio.client import Client

RECENT_SECONDS = 70.0
"""A worker asks for work at least once in this time: a question waits for a minute."""


async def pollers(client: "Client", task_queue: str, *, activities: bool = False) -> dict[str, float]:
    """Give the workers that asked for work on a queue lately, and how many seconds ago.

    Args:
        client: Of the namespace.
        task_queue: The queue, as Temporal has it.
        activities: Those that asked for activities; else for steps of workflows.
    """
    # Only here: `loom doctor` also looks where there is no server, and is quick without the SDK.
    from temporalio.api.enums.v1 import TaskQueueType
    from temporalio.api.taskqueue.v1 import TaskQueue
    from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest

    request = DescribeTaskQueueRequest(
        namespace=client.namespace,
        task_queue=TaskQueue(name=task_queue),
        task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY
        if activities
        else TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW,
    )
    answer = await client.workflow_service.describe_task_queue(request)
    now = time.time()
    ages = ((poller.identity, now - poller.last_access_time.ToSeconds()) for poller in answer.pollers)
    return {identity: age for identity, age in ages if age < RECENT_SECONDS}


async def present_workers(client: "Client", task_queue: str) -> dict[str, str]:
    """Give the workers of all stores under a base name that were heard lately, and the id of each one's store."""
    seen = await pollers(client, presence_queue(task_queue), activities=True)
    return {name: store for name, _, store in (identity.partition("#") for identity in seen)}
