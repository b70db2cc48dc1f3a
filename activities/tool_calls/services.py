"""What this worker lends to a tool's call: secrets, earlier outputs of the conversation, its todo list."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from activities.record.activity_call import ActivityCall, Item, is_node_call
from activities.record.job_store import JobFacts
from loom_dsl.agent.definition import takes_images
from loom_dsl.errors import PermissionDenied, ToolError, ToolUnavailable
from loom_dsl.text.canonical import canonical_json
from loom_dsl.tools.context import TodoItem, ToolServices, read_todo
from loom_dsl.tools.result import REFERENCE, SHORTEST_REFERENCE
from loom_dsl.tools.secret_references import secret_values
from loom_dsl.tools.tool import Arguments, Tool
from loom_store.job_facts import runtime_data
from loom_store.rows import Entry
from loom_store.store import Store
from loom_store.transaction import Transaction
from loom_store.transcript import PRIVATE
from loom_tools.secrets import AllowedSecrets

PRIVATE_HOSTS = "LOOM_PRIVATE_HOSTS"
"""Variable of the worker: addresses, as HOST:PORT, of private networks that `network_request` may ask."""
_TODO = "todo"


@dataclass(frozen=True, slots=True)
class Lender:
    """What of a worker is lent to tools.

    Attributes:
        store: Where outputs and the todo list are.
        allowed: The secrets.
        environment: Names the private hosts that may be asked.
    """

    store: Store
    allowed: AllowedSecrets
    environment: Mapping[str, str]

    def services(self, call: ActivityCall, facts: JobFacts) -> ToolServices:
        """Give what a call's tool may use. Its functions block, and are called in the tool's thread."""
        named = re.split(r"[,\s]+", self.environment.get(PRIVATE_HOSTS, "").lower())
        store, agent = self.store, facts.agent
        return ToolServices(
            secret=self.allowed.value,
            output=lambda reference: store.read_sync(lambda tx: _output(tx, call.session, reference)),
            todo=lambda: store.read_sync(lambda tx: todo_of(tx, call.session)),
            runtime=lambda: store.read_sync(lambda tx: runtime_data(tx, call.job, call.session)),
            private_hosts=frozenset(filter(None, named)),
            protected=() if store.path is None else (store.path,),
            images=takes_images(agent.model) if agent.images is None else agent.images,
        )

    def secrets(self, facts: JobFacts, tool: Tool, arguments: Arguments, item: Item | None = None) -> dict[str, str]:
        """Give the values of the secrets that a call names where its tool takes them, by parameter.

        Args:
            facts: Of the job.
            tool: What is called.
            arguments: With references.
            item: The call, where a graph's node may make it.

        Raises:
            PermissionDenied: This worker lends none of that name, or the node's graph does not name it.
        """

        def value(name: str) -> str:
            # What a model wrote or an event brought chooses no secret for a node: who wrote the graph or the tool does.
            by_node = item is not None and is_node_call(item)
            if by_node and f"${{secret:{name}}}" not in facts.plan.text + canonical_json(tool.parameters):
                raise PermissionDenied(
                    f"the secret {name[:64]!r} does not stand in this graph, whose nodes give no others to their "
                    "tools; write ${secret:NAME} itself in the node's `with`"
                )
            return self.allowed.value(name)

        return secret_values(arguments, tool.secrets, value)


def _output(tx: Transaction, session: str, reference: str) -> str:
    """Only what the model was told of in this very conversation can be read: a digest alone opens nothing."""
    wanted = reference.strip().removeprefix(REFERENCE)
    kept = [entry.head.get(PRIVATE, {}).get("output", "") for entry in tx.read_entries(session, 0)] if session else []
    found = {name for name in kept if name.startswith(wanted)} if len(wanted) >= SHORTEST_REFERENCE else set()
    if len(found) != 1:
        raise ToolError(
            f"there is no output {reference[:80]!r} in this conversation; give a reference as it stands in a result"
        )
    return tx.get_blob(found.pop()).decode("utf-8", "replace")


async def check_runtime(store: Store, call: ActivityCall, tool: Tool) -> None:
    """Refuse a tool that needs runtime data in a run that has none.

    Raises:
        ToolUnavailable: It is one.
    """
    if tool.requires_runtime and not await store.read(lambda tx: runtime_data(tx, call.job, call.session)):
        raise ToolUnavailable(f"the tool {tool.name} needs the run's runtime data, and this run has none")


def todo_of(tx: Transaction, session: str) -> tuple[TodoItem, ...]:
    """Give the todo list as the last call of the tool `todo` left it.

    It is nowhere else than in the conversation, so that a retried call writes nothing twice, a crash loses nothing,
    and a fork has the list of the turn that it goes on from.
    """
    entries = tx.read_entries(session, 0) if session else []
    for place in reversed(range(len(entries))):
        entry = entries[place]
        if entry.head.get("role") != "tool" or entry.head.get(PRIVATE, {}).get("status"):
            continue
        if _tool_of(entries[:place], entry.head["tool_call_id"]) == _TODO and entry.content_digest:
            return read_todo(tx.get_blob(entry.content_digest).decode("utf-8", "replace"))
    return ()


def _tool_of(entries: Sequence[Entry], call_id: str) -> str:
    """The tool of a call: the nearest message before its result that makes calls has made it."""
    head: Mapping[str, Any] = next((e.head for e in reversed(entries) if e.head.get("tool_calls")), {})
    names = (call["function"]["name"] for call in head.get("tool_calls", ()) if call["id"] == call_id)
    return next(names, "")
