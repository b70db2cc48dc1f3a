"""Writing down the job of an agent node before it starts: a job of its own, with a session and a first message."""

import asyncio
import json
import time
from collections.abc import Mapping
from typing import Any

from temporalio import activity
from temporalio.client import WorkflowExecutionStatus, WorkflowFailureError, WorkflowHandle
from temporalio.exceptions import ApplicationError, TerminatedError
from temporalio.service import RPCError, RPCStatusCode

from activities.observe.events import store_events
from activities.record.activity_call import ActivityCall
from activities.record.job_store import JobFacts, JobStore
from activities.record.provenance import inherited
from loom_dsl.agent.definition import Agent
from loom_dsl.agent.messages import PROJECT_CONTEXT, UNTRUSTED_TASK
from loom_dsl.agent.provenance import task_note, words_in
from loom_dsl.agent.turn import TurnState, turn_id
from loom_dsl.errors import JobExists, UserError
from loom_dsl.graph.plan import Plan
from loom_dsl.machine.state import MachineState
from loom_dsl.text.redaction import mask_known
from loom_store.rows import NewEntry
from loom_store.transaction import Transaction
from loom_tools.workspace.project import project_context

LOST = "child_lost"


class Child:
    """The activities ``loom.child.prepare``, ``loom.child.look`` and ``loom.child.discard``."""

    def __init__(self, jobs: JobStore) -> None:
        self._jobs = jobs

    @activity.defn(name="loom.child.prepare")
    async def prepare(self, envelope: dict[str, Any]) -> dict[str, Any]:
        """Write down the job of an agent or of a graph. The same child again changes nothing.

        Returns:
            ``state``, with which its machine starts, and ``plan``, the hash of its plan.

        Raises:
            UserError: Nothing says what the agent is to do.
            JobExists: Another job has the child's id.
        """
        call = ActivityCall.of(envelope)
        facts = await self._jobs.facts(call.job)
        if name := call.arguments.get("graph"):
            part, given = facts.plan.child("", name), call.arguments["with"]
            await self._jobs.store.write(lambda tx: write_graph_down(tx, call, facts, part, name))
            return {"state": MachineState(input=given).to_json(), "plan": part.hash}
        plan = facts.plan.child(call.arguments["agent"])
        agent = Agent.from_plan_data(plan.agent)
        task = mask_known(first_message(agent.name, call.arguments["with"]), self._jobs.secrets)
        context = await asyncio.to_thread(project_context, facts.workdir)
        state = await self._jobs.store.write(lambda tx: _write_down(tx, call, facts, plan, agent, task, context))
        return {"state": state.to_json(), "plan": plan.hash}

    @activity.defn(name="loom.child.discard")
    async def discard(self, envelope: dict[str, Any]) -> None:
        """Write down that a child never began, if it was written down at all. One that has ended is left alone."""
        call = ActivityCall.of(envelope)
        await self._jobs.store.write(lambda tx: _discard(tx, call))

    @activity.defn(name="loom.child.look")
    async def look(self, envelope: dict[str, Any]) -> dict[str, Any]:
        """Ask the server whether a child is still under way: one that was terminated cannot report.

        With a ``word`` it is asked, too, whether it is the child that was given this word at its start.

        Returns:
            ``open``, and of a child that has ended its ``result``, or ``code`` and ``message``.
        """
        given = ActivityCall.of(envelope).arguments
        child, word = given["child"], given.get("word")
        handle = activity.client().get_workflow_handle(child)
        try:
            if word is not None and await _word_of(handle) != word:
                why = f"another job has the id {child} on the server; start the job above it under another id"
                return {"open": False, "code": JobExists.code, "message": why}
            status = (await handle.describe()).status
            if status in (WorkflowExecutionStatus.RUNNING, WorkflowExecutionStatus.CONTINUED_AS_NEW):
                return {"open": True}
            result = await handle.result()
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise
            return {"open": False, "code": LOST, "message": f"the server does not know the job {child} any more"}
        except WorkflowFailureError as error:
            cause = error.cause
            if isinstance(cause, ApplicationError):
                return {"open": False, "code": cause.type or "failed", "message": cause.message}
            what = "was terminated on the server" if isinstance(cause, TerminatedError) else "ended outside Loom"
            return {"open": False, "code": LOST, "message": f"the job {child} {what}"}
        if isinstance(result, dict) and result.get("status") == "aborted":
            return {"open": False, "code": "aborted", "message": "the job below this one was aborted"}
        return {"open": False, "result": result}


async def _word_of(handle: WorkflowHandle[Any, Any]) -> str | None:
    """Read the word that a job was given by the one above it; None: there is none, or it is no job of Loom's."""
    first = await anext(handle.fetch_history_events(page_size=1))
    payloads = first.workflow_execution_started_event_attributes.input.payloads[:1]
    try:
        (envelope,) = await activity.client().data_converter.decode(payloads, [dict])
        return str(envelope["parent"]["word"])
    except Exception:  # anybody may have started it, with anything
        return None


def _discard(tx: Transaction, call: ActivityCall) -> None:
    store_events(tx, call)
    child, status = call.arguments["child"], call.arguments["status"]
    row = tx.job(child)
    if row is None or row["ended_at"] is not None:
        return
    tx.append_events(child, "~discard", [{"t": "state", "n": 0, "from": "idle", "state": status}])
    tx.update_job(child, state=status, status=status, ended_at=time.time())


def first_message(agent: str, given: Mapping[str, Any]) -> str:
    """Say what a node gives its agent: the task as it is, and everything else as JSON below it.

    Raises:
        UserError: It gives nothing.
    """
    task = given.get("task")
    text = task if isinstance(task, str) else "" if task is None else json.dumps(task, ensure_ascii=False)
    rest = {name: value for name, value in given.items() if name != "task"}
    parts = [text.strip(), json.dumps(rest, ensure_ascii=False, indent=2) if rest else ""]
    message = "\n\n".join(part for part in parts if part)
    if not message:
        raise UserError(f"the agent {agent} is told nothing; give its node `with: {{task: …}}`")
    return message


def write_graph_down(tx: Transaction, call: ActivityCall, facts: JobFacts, plan: Plan, graph: str = "") -> None:
    """Write down the job of a graph below another job, and its plan. The same child again changes nothing.

    Args:
        tx: The transaction.
        call: What starts it.
        facts: The job above.
        plan: The graph's.
        graph: Its name in the plan of the job above; empty: an agent wrote it.
    """
    store_events(tx, call)
    if (tx.job(call.arguments["child"]) or {}).get("plan") is None:
        _pass_on(tx, call, facts, graph)
    _create_job(tx, call, facts, plan, agent=plan.root, task=f"part of {call.job}")


def _pass_on(tx: Transaction, call: ActivityCall, facts: JobFacts, graph: str) -> None:
    """Mark the job of a graph with what its values may hold, and with the words of people for what it starts."""
    child, given = call.arguments["child"], call.arguments["with"]
    heard = inherited(tx, call, facts, graph=graph)
    words = heard.words if heard.sources else words_in(given)
    tx.mark(child, "words", tx.put_blob(words.encode("utf-8", "replace")))
    for source in heard.sources:
        tx.mark(child, "untrusted", source)
    if not graph or tx.marks(call.job, "written"):
        tx.mark(child, "written", call.job)


def _create_job(tx: Transaction, call: ActivityCall, facts: JobFacts, plan: Plan, *, agent: str, task: str) -> str:
    """Write the child's job, its plan and its session, where the parent's are; the session's name."""
    parent, child = tx.job(call.job) or {}, call.arguments["child"]
    session = f"s-{child}"
    tx.put_blob(plan.text.encode())
    for policy in tx.marks(call.job, "policy"):
        tx.mark(child, "policy", policy)
    tx.create_session(session, job=child)
    tx.create_job(
        child,
        session=session,
        agent=agent,
        plan=plan.hash,
        task=task,
        workdir=str(facts.workdir),
        namespace=parent["namespace"],
        task_queue=parent["task_queue"],
        created_at=time.time(),
        above=call.job,
    )
    return session


def _write_down(
    tx: Transaction, call: ActivityCall, facts: JobFacts, plan: Plan, agent: Agent, task: str, context: str
) -> MachineState:
    store_events(tx, call)
    child = call.arguments["child"]
    heard = inherited(tx, call, facts, agent=call.arguments["agent"])
    session = _create_job(tx, call, facts, plan, agent=agent.name, task=task)
    entries = [NewEntry(kind="message", head={"role": "user"}, content=task, job=child, turn=0)]
    if context:
        note = {"note": PROJECT_CONTEXT}
        entries.insert(0, NewEntry(kind="note", head=note, content=context, job=child, turn=0))
    if heard.sources:
        said = task_note(heard.sources, heard.words)
        entries.insert(0, NewEntry(kind="note", head={"note": UNTRUSTED_TASK}, content=said, job=child, turn=0))
        for source in heard.sources:
            tx.mark(child, "untrusted", source)
    # A second attempt may know of more: what the first one wrote stays.
    end = tx.append_entries(session, f"{child}/input", entries).end
    turn = TurnState.initial(
        child,
        max_iterations=agent.limits.max_iterations,
        session_id=session,
        entries=end,
        parent_turn_id=turn_id(call.job, call.turn),
    )
    return MachineState(turn=turn)
