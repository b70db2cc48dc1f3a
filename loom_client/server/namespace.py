"""The namespace on the server: whether the server answers, and has it."""

from datetime import timedelta

from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client


async def look_up_namespace(client: Client, seconds: float | None = None) -> None:
    """Ask the server once for the client's namespace.

    Args:
        client: Of the server.
        seconds: How long the answer is waited for; None: as long as the connection lasts.

    Raises:
        RPCError: The server does not have it, does not let the client in, or is away.
    """
    request = DescribeNamespaceRequest(namespace=client.namespace)
    timeout = None if seconds is None else timedelta(seconds=seconds)
    await client.workflow_service.describe_namespace(request, timeout=timeout)
