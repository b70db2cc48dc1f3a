"""Where the content of a job comes from: found out from its session, and from marks of jobs above and below it."""

import json
from collections.abc import Iterable, Sequence

from activities.record.activity_call import ActivityCall, Item, is_node_call
from activities.record.job_store import JobFacts, JobStore
from activities.record.transcript import Transcript
from loom_dsl.agent.definition import call_name
from loom_dsl.agent.messages import UNTRUSTED_TASK
from loom_dsl.agent.provenance import (
    Heard,
    Speaks,
    first_untrusted,
    hear,
    is_untrusted,
    only_starter,
    speaks,
    unmentioned_target,
)
from loom_dsl.expr.template import literal_texts
from loom_dsl.graph.nodes import AgentNode, Subgraph
from loom_dsl.permissions.roles import Roles
from loom_dsl.permissions.traits import ToolTraits
from loom_dsl.tools.mcp import is_mcp
from loom_dsl.tools.tool import Arguments
from loom_store.job_facts import sources_below
from loom_store.transaction import Transaction
from loom_store.transcript import NOTE, Message, rendered
from loom_tools.registry import ToolRegistry


class Provenance:
    """Judges calls by where the content of their job comes from.

    Args:
        jobs: Say what jobs below gave.
        transcript: The conversations.
        registry: Its tools may say that they give what is from outside.
        trusted: Tools whose results the deployment trusts.
        roles: Those of the deployment.
    """

    def __init__(
        self, jobs: JobStore, transcript: Transcript, registry: ToolRegistry, trusted: Sequence[str], roles: Roles
    ) -> None:
        self._jobs, self._transcript, self._registry = jobs, transcript, registry
        self._trusted, self._roles = trusted, roles

    async def untrusted_reason(
        self, call: ActivityCall, facts: JobFacts, traits: ToolTraits, arguments: Arguments
    ) -> str:
        """Say why a call must be looked at although rules allow it; empty: it need not be.

        A node's call in a graph is the author's own, and a tool that only reads changes nothing. What an MCP server is
        asked goes outside, whatever it says of itself.
        """
        item = call.arguments["call"]
        harmless = traits.read_only and traits.hosts is None and not is_mcp(traits.name)
        if is_node_call(item) or harmless:
            return ""
        told = await self._transcript.messages(await self._jobs.conversation(call.job), item["e"])
        below = await self._jobs.store.read(lambda tx: sources_below(tx, call.job))
        declared = _declared(self._registry, facts)
        if not below and not any(_named(told, declared)):
            return ""
        heard = _heard(told, self._trusted, speaks(self._roles), declared)
        source = heard.source or first_untrusted(below, self._trusted)
        missing = unmentioned_target(traits, arguments, heard.words) if source else ""
        if not missing:
            return ""
        said = f"what {source} gave was read before, and the user did not name {missing!r}"
        return f"{traits.name} must be approved: {said}"


def comes_from_outside(registry: ToolRegistry, facts: JobFacts, item: Item) -> bool:
    """Whether a call's tool is one whose results come from outside: by its name, or by what it declares.

    Raises:
        LoomError: This worker does not have the tool.
    """
    reference = facts.offered(item).get(item["name"]) or str(item["name"])
    return is_untrusted(item["name"]) or (":" in reference and registry.resolve(reference).untrusted)


def mark_untrusted(tx: Transaction, job: str, tool: str) -> None:
    """Write down that a job got what a tool gave that comes from outside."""
    tx.mark(job, "untrusted", call_name(tool))


def _declared(registry: ToolRegistry, facts: JobFacts) -> frozenset[str]:
    """Name the agent's tools that say of themselves that their results come from outside."""
    own = [reference for reference in facts.agent.tools if ":" in reference]
    return frozenset(call_name(reference) for reference in own if registry.resolve(reference).untrusted)


def inherited(tx: Transaction, call: ActivityCall, facts: JobFacts, *, agent: str = "", graph: str = "") -> Heard:
    """Say what a job that this one starts gets from it: content from outside, and the words of people.

    Everything that was read in this job, above it or below it, may be in what it gives. The words are those of who
    started it, of those who answered its questions, and what the graph's author wrote at the node. Of messages that
    were injected, those of who started it: what others may say is for the job's own worker to judge.
    """
    job = tx.job(call.job) or {}
    entries = tx.read_entries(job["session"], 0) if job.get("session") else []
    heard = _heard([rendered(e.head, _content(tx, e.content_digest), e.kind) for e in entries], ())
    sources = [*heard.sources, *tx.marks(call.job, "untrusted"), *sources_below(tx, call.job)]
    if not sources:
        return Heard()
    words = [heard.words, *(tx.get_blob(name).decode("utf-8", "replace") for name in tx.marks(call.job, "words"))]
    words += [str(row["message"]) for row in tx.approvals(job=call.job) if row["message"] and row["by"]]
    if not tx.marks(call.job, "written"):
        words += _literals(facts, agent, graph)
    return Heard(sources=tuple(dict.fromkeys(sources)), words="\n".join(filter(None, words)))


def _heard(
    told: Iterable[Message],
    trusted: Sequence[str],
    counts: Speaks = only_starter,
    declared: frozenset[str] = frozenset(),
) -> Heard:
    entries = ((role.removeprefix(NOTE) if role.startswith(NOTE) else "", text) for text, _, role in told)
    return hear(entries, trusted, counts, declared)


def _named(told: Iterable[Message], declared: Iterable[str]) -> Iterable[str]:
    """The tools from outside that a conversation may have something from: looked for in the text, which is quick."""
    quoted = {f'"{name}"': name for name in declared}
    for text, _, role in told:
        if role == NOTE + UNTRUSTED_TASK:
            yield from json.loads(text)["sources"]
        elif '"mcp__' in text:
            yield "mcp__"
        elif '"network_request"' in text:
            yield "network_request"
        else:
            yield from (name for mention, name in quoted.items() if mention in text)


def _literals(facts: JobFacts, agent: str, graph: str) -> Iterable[str]:
    for body in facts.plan.bodies.values():
        for node in body.nodes.values():
            if (agent and isinstance(node, AgentNode) and node.agent == agent) or (
                graph and isinstance(node, Subgraph) and node.graph == graph
            ):
                yield from literal_texts(node.with_)


def _content(tx: Transaction, name: str | None) -> str | None:
    return tx.get_blob(name).decode("utf-8", "replace") if name else None
