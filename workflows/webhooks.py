"""The workflow ``loom.webhooks``: delivers what one endpoint is told of one job, one message after the other."""

from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError, is_cancelled_exception

from workflows.activities import UNANSWERED
from workflows.failures import WORKERS_SECONDS

with workflow.unsafe.imports_passed_through():
    from loom_dsl.machine.tokens.retry import growing_pause
    from loom_dsl.observe.webhook_names import BURY, MORE, NEXT, POST, WORKFLOW

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
        """Send a message until it is taken, or was refused as often as it may be; a worker that dies does not count."""
        tries = 0
        while True:
            try:
                await workflow.execute_activity(
                    POST,
                    found["number"],
                    start_to_close_timeout=timedelta(seconds=found["seconds"] + WORKERS_SECONDS),
                    heartbeat_timeout=HEARTBEAT,
                    retry_policy=UNANSWERED,
                )
                return
            except ActivityError as error:
                if is_cancelled_exception(error):  # somebody ended the workflow: the message waits for another one
                    raise
                cause = error.cause
            tries += 1
            problem = cause.message if isinstance(cause, ApplicationError) else str(cause)
            told = dict(cause.details[0]) if isinstance(cause, ApplicationError) and cause.details else {}
            if told.get("gone") or tries >= found["attempts"]:
                await workflow.execute_local_activity(
                    BURY, args=[found["number"], problem], start_to_close_timeout=LOCAL
                )
                return
            pause = growing_pause(tries, found["first"], found["factor"], max(found["first"], found["longest"]))
            await workflow.sleep(pause if told.get("wait") is None else told["wait"])
