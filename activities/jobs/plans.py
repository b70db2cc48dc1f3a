"""Writing down that a job goes on under another plan."""

from typing import Any

from temporalio import activity

from activities.record.activity_call import ActivityCall
from loom_store.store import Store


class Pin:
    """The activity ``loom.job.pin``."""

    def __init__(self, store: Store) -> None:
        self._store = store

    @activity.defn(name="loom.job.pin")
    async def pin(self, envelope: dict[str, Any]) -> None:
        """Write the hash of the job's plan into its row, from where activities take it at the start of a run."""
        call = ActivityCall.of(envelope)
        await self._store.write(lambda tx: tx.update_job(call.job, plan=call.arguments["plan"]))
