"""Letting a graph run that was written while its job did: looked at, then written down as a job."""

import asyncio
from typing import Any

from temporalio import activity

from activities.jobs.child import write_graph_down
from activities.observe.events import store_events
from activities.record.activity_call import ActivityCall
from activities.record.job_store import JobFacts, JobStore
from loom_dsl.errors import GraphRefused
from loom_dsl.graph.admission import admitted
from loom_dsl.graph.plan import Plan, PlanText
from loom_dsl.text.redaction import mask_known
from loom_store.transaction import Transaction


class Admit:
    """The activity ``loom.graph.admit``."""

    def __init__(self, jobs: JobStore) -> None:
        self._jobs = jobs

    @activity.defn(name="loom.graph.admit")
    async def admit(self, envelope: dict[str, Any]) -> PlanText:
        """Look at a written graph, and write down the job that will run it. The same child again changes nothing.

        Returns:
            Its plan, which travels as its hash.

        Raises:
            GraphRefused: It is not valid, or it does what the node does not allow; lists every finding.
        """
        call = ActivityCall.of(envelope)
        facts = await self._jobs.facts(call.job)
        given = call.arguments
        asked = {**given, "text": mask_known(given["text"], self._jobs.secrets)}
        try:
            plan = await asyncio.to_thread(admitted, facts.plan, asked, given["with"])
        except GraphRefused as error:
            told = {"t": "graph_refused", "n": call.turn, "node": call.at, "message": error.message}
            await self._jobs.store.write(lambda tx: _tell(tx, call, "refused", told))
            raise
        await self._jobs.store.write(lambda tx: _write_down(tx, call, facts, plan))
        return PlanText(plan.text)


def _tell(tx: Transaction, call: ActivityCall, what: str, event: dict[str, Any]) -> None:
    store_events(tx, call)
    tx.append_events(call.job, f"{call.turn}/{call.at}/{what}", [event])


def _write_down(tx: Transaction, call: ActivityCall, facts: JobFacts, plan: Plan) -> None:
    nodes = sum(len(body.nodes) for name, body in plan.bodies.items() if name.partition("/")[0] == plan.root)
    child = call.arguments["child"]
    told = {"node": call.at, "child": child, "graph": plan.root, "plan": plan.hash, "nodes": nodes}
    _tell(tx, call, "admitted", {"t": "graph_admitted", "n": call.turn, **told})
    write_graph_down(tx, call, facts, plan)
