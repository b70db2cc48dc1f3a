"""Context assembly: what the model is going to read, chosen by priority and within the token budget."""

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

from temporalio import activity

from activities.catalogue import EMPTY, KEPT, Catalogue, current, tool_specs
from activities.chat.endpoints import Endpoints
from activities.context.view import View, Views
from activities.observe.events import store_events
from activities.record.activity_call import ActivityCall, Run, remember
from activities.record.job_store import JobFacts, JobStore
from activities.record.transcript import Transcript
from loom_dsl.agent.context import Component, ComponentPriority, assemble, estimate_tokens, select_messages
from loom_dsl.agent.definition import Agent, Limits, call_name
from loom_dsl.agent.messages import INJECTED, PROJECT_CONTEXT
from loom_dsl.agent.provenance import injected_note
from loom_dsl.errors import BlobMissing, ContextLengthExceeded
from loom_dsl.text.canonical import digest
from loom_dsl.tools.mcp import is_mcp
from loom_store.job_facts import last_key
from loom_store.rows import NewEntry
from loom_store.transaction import Transaction
from loom_store.transcript import NOTE
from loom_tools.mcp.servers import Servers
from loom_tools.registry import ToolRegistry

LEAST_GAIN = 0.05
"""Share of the window that what is compressed has at least; less where compressing begins very early."""
LAST_TURN = "This is the last turn that the limits allow. Give the best answer you can with what you have now."


@dataclass(frozen=True, slots=True)
class _New:
    """A message to append: its text, or where the store has it; and what a note before it says."""

    key: str
    role: str
    text: str
    ref: str
    note: str = ""


class Assemble:
    """The activity ``loom.context.assemble``."""

    def __init__(
        self, jobs: JobStore, transcript: Transcript, endpoints: Endpoints, registry: ToolRegistry, mcp: Servers
    ) -> None:
        self._jobs, self._transcript, self._registry, self._mcp = jobs, transcript, registry, mcp
        self._stored: OrderedDict[Run, str] = OrderedDict()
        """By run: the system message that it has put. Each puts its own, or prune would take it for an old job's."""
        self._views = Views(jobs, transcript, endpoints)
        self._sizes: dict[tuple[tuple[str, ...], bytes], int] = {}
        self._offered: OrderedDict[Run, bytes] = OrderedDict()

    @activity.defn(name="loom.context.assemble")
    async def assemble(self, envelope: dict[str, Any]) -> dict[str, Any]:
        """Append what was injected, then choose. Equal entries and agent give an equal context.

        Returns:
            The end of the entry range, and the context: digest of the system message, ranges of entries, the summary's
            entry; and ``full`` where the conversation is to be compressed first, without a context if none fits, with
            ``room``: the tokens that there are for it beside the task.
        """
        call = ActivityCall.of(envelope)
        facts = await self._jobs.facts(call.job)
        new = self._new_entries(call)
        session = await self._jobs.conversation(call.job)
        known = await self._transcript.messages(session, call.arguments["entries"])
        project = next((text for text, _, role in reversed(known) if role == NOTE + PROJECT_CONTEXT), "")
        catalogue, more = await self._catalogue(call, facts.agent)
        system = system_message(facts.agent, facts, project, catalogue)
        end, name = call.arguments["entries"], digest(system)
        if new or call.batches or self._stored.get(call.run) != name:
            end = await self._jobs.store.write(lambda tx: _append(tx, call, new, system))
            remember(self._stored, call.run, name)
        view = await self._views.of(call, end)
        fixed = estimate_tokens(system) + self._tool_tokens(facts.agent, catalogue)
        limits, room = facts.agent.limits, facts.agent.limits.max_context_tokens - fixed
        summary = {"summary": view.summary.seq} if view.summary else {}
        budget = room - (view.summary.tokens if view.summary else 0)
        given: dict[str, Any] = {"entries": end}
        try:
            ranges = select_messages(view.sizes, budget, view.groups, view.task)
        except ContextLengthExceeded:
            if not can_compress(view, limits):
                raise
        else:
            given["context"] = {"system": name, "ranges": ranges, **summary, **more}
            if not is_full(view, fixed, limits):
                return given
        return {**given, "full": True, "room": max(room - view.task_tokens, 0)}

    def _new_entries(self, call: ActivityCall) -> list[_New]:
        new = [
            _New(
                key=f"{call.job}/inject/{message['id']}",
                role="user",
                text=message.get("text", ""),
                ref=message.get("ref", ""),
                note=injected_note(message),
            )
            for message in call.arguments.get("inject", [])
        ]
        if call.arguments.get("last") and call.turn > 0:
            new.append(_New(last_key(call.job, call.turn), "system", LAST_TURN, ""))
        return new

    async def _catalogue(self, call: ActivityCall, agent: Agent) -> tuple[Catalogue, dict[str, str]]:
        """What MCP servers offer this turn, and its name for the turn's context, by which every later step goes."""
        if not any(map(is_mcp, agent.tools)):
            return EMPTY, {}
        catalogue = await current(self._mcp, agent)
        text = catalogue.dump()
        if self._offered.get(call.run) != text:
            await self._jobs.store.write(lambda tx: tx.put_blob(text))
            remember(self._offered, call.run, text)
        return catalogue, {KEPT: digest(text)}

    def _tool_tokens(self, agent: Agent, catalogue: Catalogue) -> int:
        key = agent.tools, catalogue.dump() if catalogue.tools else b""
        if key not in self._sizes:
            specs = tool_specs(self._registry, self._mcp, agent, catalogue) if agent.tools else ""
            self._sizes[key] = estimate_tokens(specs)
        return self._sizes[key]


def system_message(agent: Agent, facts: JobFacts, project: str = "", catalogue: Catalogue = EMPTY) -> str:
    """Give the one leading system message.

    Raises:
        ContextLengthExceeded: The instructions alone are over the budget.
    """
    names = [call_name(reference) for reference in agent.tools if not is_mcp(reference)] + list(catalogue.tools)
    tools = f"Tools you may call now: {', '.join(names)}." if names else ""
    if catalogue.missing:
        tools = f"{tools} These do not answer, so their tools may fail: {', '.join(catalogue.missing)}.".strip()
    parts = [
        Component(name="base_instructions", content=agent.instructions, priority=ComponentPriority.CRITICAL),
        Component(
            name="environment",
            content=f"Working directory: {facts.workdir}. Paths are relative to it." if names else "",
            priority=ComponentPriority.HIGH,
            truncatable=True,
        ),
        Component(name="project", content=project, priority=ComponentPriority.HIGH, truncatable=True),
        Component(name="tools", content=tools, priority=ComponentPriority.MEDIUM),
    ]
    return assemble(parts, agent.limits.max_context_tokens).text


def can_compress(view: View, limits: Limits) -> bool:
    """Whether a conversation may be compressed before the model is asked: once a turn, where there is anything."""
    return limits.compress_at is not None and bool(view.compressible) and not (view.summary and view.summary.fresh)


def is_full(view: View, fixed: int, limits: Limits) -> bool:
    """Whether a conversation is to be compressed before the model is asked although it may fit.

    There must be a part of the window to gain: where the task or the tools fill it, every turn would compress the one
    before it.

    Args:
        view: What is read of it.
        fixed: Tokens of what else the model reads.
        limits: The agent's.
    """
    window = limits.max_context_tokens
    if limits.compress_at is None or fixed + view.tokens < limits.compress_at * window:
        return False
    if not can_compress(view, limits) or view.paused or len(view.compressible) < 2:
        return False
    gain = view.tokens_of(view.compressible) - view.unread(window - fixed - view.task_tokens)
    return gain >= min(LEAST_GAIN, limits.compress_at / 10) * window


def _append(tx: Transaction, call: ActivityCall, new: list[_New], system: str) -> int:
    store_events(tx, call)
    end = call.arguments["entries"]
    for item in new:
        text = _text(tx, call, item)
        if text is None:
            continue
        entries = [NewEntry(kind="message", head={"role": item.role}, content=text, job=call.job, turn=call.turn)]
        if item.note:
            who = {"note": INJECTED}
            entries.insert(0, NewEntry(kind="note", head=who, content=item.note, job=call.job, turn=call.turn))
        end = max(end, tx.append_entries(call.session, item.key, entries).end)
    tx.put_blob(system.encode())
    return int(end)


def _text(tx: Transaction, call: ActivityCall, item: _New) -> str | None:
    """The message itself. One that the store does not hold cannot be delivered; that is told, and ends no job."""
    if not item.ref:
        return item.text
    try:
        return tx.get_blob(item.ref).decode("utf-8", "replace")
    except BlobMissing:
        message = f"a message could not be delivered: this store does not hold its text {item.ref}"
        warning = {"t": "warning", "n": call.turn, "code": "not_delivered", "message": message}
        tx.append_events(call.job, f"{item.key}/missing", [warning])
        return None
