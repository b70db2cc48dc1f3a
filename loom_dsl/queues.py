"""Names of task queues. What a user sets and sees is the base name; what Temporal gets has more in it.

Temporal gives a task to whoever asks on its queue and can select by nothing else, so whatever a worker must have for a
task is in the queue's name: docs/adr/0026-task-queues.md.
"""


def job_queue(base: str, store: str) -> str:
    """Name the task queue of the jobs of a store.

    Args:
        base: The name that workers and clients are started with.
        store: The store's id.
    """
    return f"{base}/{store}"


def webhook_queue(base: str, store: str, endpoint: str) -> str:
    """Name the task queue on which an endpoint is told of the jobs of a store.

    Only workers that have the endpoint ask there for work, and a slow receiver takes no job's place, nor another
    receiver's.
    """
    return f"{job_queue(base, store)}/webhooks/{endpoint}"


def presence_queue(base: str) -> str:
    """Name the task queue where the workers of all stores can be found by a base name. No job is ever on it."""
    return f"{base}/workers"
