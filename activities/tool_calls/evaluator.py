"""What is known of one tool call while it goes through its stages: its tool, its arguments, and the verdict on it."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from activities.catalogue import changed, tool_of_call
from activities.runtime import ActivityCall, Item, JobFacts, Runtime, is_node_call, offered, this_run
from activities.tool_calls.approval_check import check_approved, kept_rules, remembered_here
from activities.tool_calls.node import inline_arguments
from activities.tool_calls.policy_layers import PolicyLayers
from activities.tool_calls.provenance import untrusted_reason
from activities.transcript import MASKED, Transcript
from loom_dsl.approvals.policy import Approvals
from loom_dsl.errors import ToolNotFound, ToolUnavailable
from loom_dsl.permissions.combine import approvals_for
from loom_dsl.permissions.decide import Verdict, decide, layers_around
from loom_dsl.permissions.roles import Roles
from loom_dsl.permissions.traits import ToolTraits, traits_of
from loom_dsl.text.canonical import canonical_json, digest
from loom_dsl.text.redaction import mask_known
from loom_dsl.text.wording import suggest
from loom_dsl.tools.mcp import is_mcp
from loom_dsl.tools.risk import reaches
from loom_dsl.tools.tool import Arguments, Tool, validate_arguments
from loom_store.transcript import PRIVATE
from loom_tools.running import ANSWER_SECONDS, beside, check_call, describe, in_time, run_function, runs_apart
from loom_tools.shell import read_command
from loom_tools.user_code import GUARD, Code, Raised, as_nothing, as_truth
from loom_tools.workspace.workspace import Workspace


class CallEvaluator:
    """What all stages need to know about one call."""

    def __init__(self, runtime: Runtime, transcript: Transcript) -> None:
        self.runtime, self._transcript = runtime, transcript
        self._layers = PolicyLayers(runtime.registry, runtime.environment)
        self._asked: dict[str, asyncio.Task[bool]] = {}
        """By reference: the questions under way. One that hangs is not asked again and again, each in a thread."""

    @property
    def roles(self) -> Roles:
        """Who may decide in this deployment."""
        return self._layers.roles

    def is_signed(self, call: ActivityCall, facts: JobFacts, tool: Tool) -> bool:
        """Whether only a signed decision lets a tool's call run, as the agent's policy says it, or those around it."""
        around = self._layers.signed(call.latest, facts.workdir)
        return reaches(tool.risk, around) or reaches(tool.risk, facts.agent.approvals.signed)

    async def tool(self, facts: JobFacts, item: Item) -> Tool:
        """Find the tool that the model, or a graph's node, named.

        Raises:
            ToolNotFound: The agent has no tool of that name.
            ToolUnavailable: It cannot be used now.
            MissingTools: The agent has it, and this worker does not.
        """
        name, known = item["name"], offered(facts, item)
        if is_mcp(name) and (name in known or not is_node_call(item)):
            return await tool_of_call(self.runtime, self._transcript, this_run()[0], facts, item)
        if name in known:
            tool = self.runtime.registry.resolve(known[name])
            if tool.is_available is not None:
                await self._check_available(known[name], tool, tool.is_available)
            return tool
        hint = suggest(name, known)
        listed = f"the tools are {', '.join(known)}" if known else "there are no tools"
        raise ToolNotFound(f"there is no tool {name!r}; {hint or listed}")

    async def _check_available(self, reference: str, tool: Tool, is_available: Callable[[], bool]) -> None:
        code = Code.of(tool, "is_available", as_truth)
        if code is not None and (guard := GUARD.get()) is not None:
            await guard.begin()  # here: the question may be another step's
        shared = self._asked if not runs_apart(code) else {}
        asking = shared.get(reference)
        if asking is None:
            work = run_function(partial(as_truth, is_available), {}, code=code, seconds=ANSWER_SECONDS)
            asking = shared[reference] = asyncio.create_task(work)
            asking.add_done_callback(lambda done: answered(shared, reference, done))
        unclear = f"it could not be found out whether the tool {tool.name} is available"
        try:
            available = await in_time(asking, code)
        except TimeoutError:
            why = f"{unclear}: its is_available gave no answer within {ANSWER_SECONDS:g} s"
            raise ToolUnavailable(why) from None
        except Raised as raised:
            if isinstance(raised.error, ToolUnavailable):
                raise raised.error from None  # it says itself why it cannot be used
            raise ToolUnavailable(f"{unclear}: {describe(raised.error)}") from None
        if not available:
            raise ToolUnavailable(f"the tool {tool.name} is not available now")

    async def raw_arguments(self, call: ActivityCall) -> str:
        """What the model sent as arguments of this call."""
        item = call.arguments["call"]
        if is_node_call(item):
            return inline_arguments(item, self.runtime.secrets)
        head = await self._head(call)
        raw: str = head["tool_calls"][item["i"]]["function"]["arguments"]
        return raw

    async def was_cut(self, call: ActivityCall) -> bool:
        """Whether the model ran into its limit of output tokens in the message that makes this call."""
        return not is_node_call(call.arguments["call"]) and bool(
            (await self._head(call)).get(PRIVATE, {}).get("finish") == "length"
        )

    async def was_masked(self, call: ActivityCall) -> bool:
        """Whether secrets were masked in what the caller sent as arguments."""
        item = call.arguments["call"]
        if is_node_call(item):
            return inline_arguments(item, self.runtime.secrets) != canonical_json(item["arguments"])
        return item["i"] in (await self._head(call)).get(PRIVATE, {}).get(MASKED, ())

    async def arguments(self, call: ActivityCall, tool: Tool) -> Arguments:
        """The validated arguments: those that were approved, where somebody was asked."""
        name = call.arguments.get("arguments")
        if name:
            text = await self.runtime.store.read(lambda tx: tx.get_blob(name))
            value: Arguments = json.loads(text)
            return value
        return validate_arguments(tool, await self.raw_arguments(call))

    async def _head(self, call: ActivityCall) -> dict[str, Any]:
        return await self._transcript.head(await self.runtime.conversation(call.job), call.arguments["call"]["e"])

    async def verdict(
        self, call: ActivityCall, facts: JobFacts, tool: Tool, arguments: Arguments, *, recorded: bool = False
    ) -> Verdict:
        """Ask the policies. Somebody's approval stands in for a rule that asks, never for one that denies.

        Args:
            call: The call.
            facts: Its job.
            tool: What is called.
            arguments: Validated.
            recorded: An approval counts only as the store has it.

        Raises:
            LoomError: The tool itself does not want to run with these arguments.
        """
        if tool.check is not None:
            await check_call(tool.check, arguments, Code.of(tool, "check", as_nothing))
        traits = await beside(arguments, self.traits, call, facts, tool, arguments)
        await self._layers.learn(self.runtime.store, call, facts.workdir)
        around = self._layers.around(call.latest, facts.workdir)
        answer = await self._layers.answer(call, facts, traits, arguments)
        other = await changed(self.runtime, call)
        untrusted = other or await untrusted_reason(
            self.runtime, self._transcript, call, traits, arguments, self._layers.trusted, self._layers.roles
        )
        decided = partial(
            decide, facts.agent.permissions, traits, arguments, layers=around, answer=answer, untrusted=untrusted
        )
        judge = partial(beside, arguments, decided)
        asked = await judge()
        if asked.decision != "ask":
            return asked
        policy, signed = self.approvals(call, facts, tool, asked), self.is_signed(call, facts, tool)
        remembered = [] if other else await remembered_here(self.runtime, call, policy, signed=signed)
        verdict = await judge(remembered=remembered)
        if verdict.decision != "ask":
            return verdict
        name = traits.call(arguments).digest
        if call.arguments.get("approved"):
            if recorded:
                await check_approved(self.runtime, call, policy, name, signed=signed)
            return verdict.model_copy(update={"decision": "allow"})
        kept = [] if other else await kept_rules(self.runtime, facts, policy, name, signed=signed)
        return await judge(remembered=[*remembered, *kept]) if kept else verdict

    def approvals(self, call: ActivityCall, facts: JobFacts, tool: Tool, verdict: Verdict) -> Approvals:
        """Say what happens to the question about a call, and who answers it: by the policies of all who ask.

        Raises:
            ExpressionError: Nobody could decide.
        """
        around = layers_around(facts.agent.permissions, self._layers.around(call.latest, facts.workdir))
        named = bool(self.roles) or self.is_signed(call, facts, tool)
        return approvals_for(verdict, facts.agent.approvals, around, named=named)

    def traits(self, call: ActivityCall, facts: JobFacts, tool: Tool, arguments: Arguments) -> ToolTraits:
        """What the policy looks at."""
        workspace = Workspace(facts.workdir)
        item = call.arguments["call"]
        reference = offered(facts, item).get(item["name"], item["name"])  # `mcp__server__*` names many tools
        found = traits_of(
            tool,
            arguments,
            builtin=self.runtime.registry.is_builtin(reference),
            working_dir=str(facts.workdir),
            real_path=workspace.real_path,
            reference=reference if ":" in reference else "",
            read_command=read_command,
        )
        return replace(found, digest=digest(mask_known(canonical_json(arguments), self.runtime.secrets)))


def answered(shared: dict[str, "asyncio.Task[bool]"], reference: str, asking: "asyncio.Task[bool]") -> None:
    """Take a question that was asked once for several calls away when it has its answer."""
    shared.pop(reference, None)
    asking.cancelled() or asking.exception()  # looked at, because it may be that nobody waits any more
