"""What the delivery of webhooks is called on the Temporal server."""

WORKFLOW, MORE = "loom.webhooks", "loom.webhooks.more"
"""The workflow that delivers, and the signal that tells it of more."""
NEXT, POST, BURY = "loom.webhook.next", "loom.webhook.post", "loom.webhook.bury"
"""Its activities."""


def workflow_of(job: str, endpoint: str) -> str:
    """Name the workflow that delivers what an endpoint is told of a job. No job has a slash in its id."""
    return f"{job}/webhooks/{endpoint}"
