"""What happened to a job, read from its store, from its events as a watcher would, and from its histories."""

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from temporalio.api.enums.v1 import EventType as HistoryEvent
from temporalio.api.enums.v1 import WorkflowTaskFailedCause
from temporalio.api.failure.v1 import Failure
from temporalio.api.history.v1 import MarkerRecordedEventAttributes, WorkflowTaskFailedEventAttributes
from temporalio.client import Client, WorkflowHistory

from loom_client.job import Job
from loom_dsl.agent.messages import legal_order
from loom_dsl.observe.events import Event, EventType
from loom_store.store import Store
from loom_store.transaction import Transaction
from tests.support.external import lines

Message = dict[str, Any]
_HARMLESS = ("UnhandledCommand", "[TMPRL1101] Potential deadlock detected")


async def transcript(store: Store, session: str) -> list[Message]:
    """The conversation as the model reads it: roles, contents, ids and arguments of calls."""

    def read(tx: Transaction) -> list[Message]:
        found = []
        for entry in tx.read_entries(session):
            if entry.kind != "message":
                continue
            head = {key: value for key, value in entry.head.items() if key != "_loom"}
            content = tx.get_blob(entry.content_digest).decode() if entry.content_digest else None
            found.append({**head, "content": content})
        return found

    messages = await store.read(read)
    assert legal_order(messages) == []
    return messages


async def events(job: Job) -> list[Event]:
    """Everything that watchers were told so far."""
    return [event async for event in job.events(follow=False)]


def of(told: list[Event], kind: EventType) -> list[dict[str, Any]]:
    """The data of the events of one type."""
    return [event.data for event in told if event.type == kind]


def watched(told: list[Event]) -> dict[str, str]:
    """The text of each model stream as somebody sees it who adds up deltas and obeys resets."""
    seen: dict[str, str] = {}
    finished: dict[int, str] = {}
    for event in told:
        if event.type == EventType.STREAM_RESET:
            seen[event.data["stream"]] = ""
        elif event.type == EventType.LLM_DELTA:
            seen[event.data["stream"]] = seen.get(event.data["stream"], "") + event.data["content"]
        elif event.type == EventType.LLM_FINISH:
            assert event.turn not in finished, "an answer was told twice"
            finished[event.turn] = event.data["content"]
    # A job that is aborted, or whose model fails for good, leaves text that no answer follows.
    broken = any(e.type == EventType.ABORTED or e.data.get("state") == "failed" for e in told)
    for stream, text in seen.items():
        turn = int(stream.partition("/")[0])
        if turn in finished or not broken:
            assert text == finished.get(turn), f"the watcher of {stream} saw another text"
    return seen


@dataclass(frozen=True)
class Account:
    """What must be the same whether or not processes were killed."""

    status: str
    error: str
    answer: str
    messages: list[Message]
    usage: dict[str, Any]
    results: Counter[str]


async def account(store: Store, job: Job) -> Account:
    """Wait for the job's end and give what it came to; the watcher's view is checked on the way."""
    result = await job.result()
    told = await events(job)
    watched(told)
    offsets = [event.offset for event in told]
    assert offsets == list(range(1, len(offsets) + 1))
    usage = result.usage.model_dump(mode="json", exclude={"wasted"})  # which tells of the kills
    results = Counter(str(data["tool_call_id"]) for data in of(told, EventType.TOOL_RESULT))
    assert len(of(told, EventType.AGENT_FINISH)) == (result.status == "completed"), result.error
    error = f"{result.error.code}: {result.error.message}" if result.error else ""
    return Account(result.status, error, result.answer, await transcript(store, result.session_id), usage, results)


def effects_of(folder: Path) -> list[str]:
    """The effects in the outside world, without the job's name."""
    return [line.partition("/")[2] for line in lines(folder)]


async def histories(client: Client, job: str) -> list[WorkflowHistory]:
    """The histories of all runs of a job, the first one first."""
    found: list[WorkflowHistory] = []
    run: str | None = None
    latest = await client.get_workflow_handle(job).describe()
    first = (await client.get_workflow_handle(job, run_id=latest.run_id).fetch_history()).events[0]
    run = first.workflow_execution_started_event_attributes.first_execution_run_id
    while run:
        history = await client.get_workflow_handle(job, run_id=run).fetch_history()
        found.append(history)
        last = history.events[-1]
        run = last.workflow_execution_continued_as_new_event_attributes.new_execution_run_id or None
    return found


def unheard_of(runs: list[WorkflowHistory], name: str = "") -> int:
    """How many attempts of activities the server gave up because it had not heard of their worker for too long.

    Of an activity only the attempt before the last one that began tells why it failed; all before are counted with it.

    Args:
        runs: The histories.
        name: The activities' name; else those of all are counted.
    """
    lost = 0
    for run in runs:
        events = {event.event_id: event for event in run.events}
        for event in run.events:
            began, ended = event.activity_task_started_event_attributes, event.activity_task_timed_out_event_attributes
            attempts = (began.attempt - 1) * began.last_failure.HasField("timeout_failure_info")
            attempts += event.HasField("activity_task_timed_out_event_attributes")
            if attempts:
                scheduled = events[began.scheduled_event_id or ended.scheduled_event_id]
                given = scheduled.activity_task_scheduled_event_attributes.activity_type.name
                lost += attempts * (not name or given == name)
    return lost


def failed_tasks(runs: list[WorkflowHistory]) -> list[str]:
    """Why workflow tasks failed, if any did: each with its causes.

    Left out is what has the task done again and is nobody's fault: a signal that arrives while a run ends, a machine
    so busy that the SDK takes a workflow for locked up, which has not gone on for two seconds, and results of more
    than 2 MB (`history.maximumBufferedEventsSizeInBytes`) that arrive at the server while a task is under way, which
    it then takes back to hand them out with the next. One that is locked up is so each time, and its job does not end.
    """
    return [
        _messages(event.workflow_task_failed_event_attributes.failure)
        for run in runs
        for event in run.events
        if event.event_type == HistoryEvent.EVENT_TYPE_WORKFLOW_TASK_FAILED
        and not _harmless(event.workflow_task_failed_event_attributes)
    ]


def _harmless(failed: WorkflowTaskFailedEventAttributes) -> bool:
    taken_back = failed.cause == WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_FORCE_CLOSE_COMMAND
    return taken_back or failed.failure.message.startswith(_HARMLESS)


def _messages(failure: Failure) -> str:
    return failure.message + (f" <- {_messages(failure.cause)}" if failure.HasField("cause") else "")


def trace(runs: list[WorkflowHistory]) -> dict[str, list[tuple[str, str]]]:
    """What ran: for each branch of each turn the executions (``node#visit``) in order, and how each ended."""
    ended: dict[str, str] = {}
    for run in runs:
        scheduled: dict[int, str] = {}
        for event in run.events:
            if event.HasField("activity_task_scheduled_event_attributes"):
                scheduled[event.event_id] = event.activity_task_scheduled_event_attributes.activity_id
            elif event.HasField("activity_task_completed_event_attributes"):
                completed = event.activity_task_completed_event_attributes
                ended[scheduled[completed.scheduled_event_id]] = "done"
            elif event.HasField("activity_task_failed_event_attributes"):
                failed = event.activity_task_failed_event_attributes
                ended[scheduled[failed.scheduled_event_id]] = failed.failure.application_failure_info.type
            elif event.HasField("marker_recorded_event_attributes"):
                marker = event.marker_recorded_event_attributes
                if marker.marker_name == "core_local_activity":
                    name = json.loads(marker.details["data"].payloads[0].data)["activity_id"]
                    ended |= _told(marker)
                    # A local one that was too slow runs again as a remote one, which then has the last word.
                    ended[name] = marker.failure.application_failure_info.type if marker.HasField("failure") else "done"
    return branches(list(ended.items()))


def _told(marker: MarkerRecordedEventAttributes) -> dict[str, str]:
    """What a stretch of local executions tells of each of them."""
    if "result" not in marker.details or not marker.details["result"].payloads:
        return {}
    result = json.loads(marker.details["result"].payloads[0].data or "null")
    if not isinstance(result, list):
        return {}
    return {name: rest[0] if verdict == "failed" else verdict for name, _, verdict, *rest in result}


def branches(ended: list[tuple[str, str]]) -> dict[str, list[tuple[str, str]]]:
    """Sort ``turn/frame/node#visit`` by turn and frame, without what belongs to no branch."""
    found: dict[str, list[tuple[str, str]]] = {}
    for name, outcome in ended:
        if "/~" not in name:
            branch, _, node = name.rpartition("/")
            found.setdefault(branch, []).append((node, outcome))
    return found
