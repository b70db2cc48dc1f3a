"""The workflow ``loom.webhooks``: delivers what one endpoint is told of one job, one message after the other."""

from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError, is_cancelled_exception

with workflow.unsafe.imports_passed_through():
    from loom_dsl.webhook_names import BURY, MORE, NEXT, POST, WORKFLOW

LOCAL, HEARTBEAT = timedelta(seconds=10), timedelta(seconds=5)
"""How long a local activity may take, and after which time another worker takes over from one that is not heard of."""


@workflow.defn(name=WORKFLOW)
class WebhookWorkflow:
    """The messages themselves are in the store; this knows the number of the one that is under way."""

    def __init__(self) -> None:
        self._more = False

    @workflow.signal(name=MORE)
    def more(self) -> None:
        """Look again before ending."""
        self._more = True

    @workflow.run
    async def run(self, job: str, endpoint: str) -> None:
        """Deliver until nothing waits. A message that is not taken is given up after its attempts."""
        while True:
            self._more = False
            found: dict[str, Any] | None = await workflow.execute_local_activity(
                NEXT, args=[job, endpoint], start_to_close_timeout=LOCAL
            )
            if found is not None:
                await self._deliver(found)
            elif not self._more:
                return
            if workflow.info().is_continue_as_new_suggested():
                workflow.continue_as_new(args=[job, endpoint])

    async def _deliver(self, found: dict[str, Any]) -> None:
        try:
            await workflow.execute_activity(
                POST,
                found["number"],
                start_to_close_timeout=timedelta(seconds=found["seconds"]),
                heartbeat_timeout=HEARTBEAT,
                retry_policy=RetryPolicy(
                    maximum_attempts=found["attempts"],
                    initial_interval=timedelta(seconds=found["first"]),
                    backoff_coefficient=found["factor"],
                    maximum_interval=timedelta(seconds=max(found["first"], found["longest"])),
                ),
            )
        except ActivityError as error:
            if is_cancelled_exception(error):  # somebody ended the workflow: the message waits for another one
                raise
            cause = error.cause
            problem = cause.message if isinstance(cause, ApplicationError) else "no attempt came to its end in time"
            await workflow.execute_local_activity(BURY, args=[found["number"], problem], start_to_close_timeout=LOCAL)
