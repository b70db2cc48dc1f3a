"""The judgement of a tool call: by the agent's policy, those around it, and what was approved."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from activities.catalogue import changed
from activities.record.activity_call import ActivityCall
from activities.record.job_store import JobFacts, JobStore
from activities.record.provenance import Provenance
from activities.record.transcript import Transcript
from activities.tool_calls.approval_check import check_approved, kept_rules, remembered_here
from activities.tool_calls.policy_layers import PolicyLayers
from loom_dsl.approvals.policy import ApprovalPolicy
from loom_dsl.permissions.combine import approvals_for
from loom_dsl.permissions.decide import Verdict, decide, layers_around
from loom_dsl.permissions.roles import Roles
from loom_dsl.permissions.traits import ToolTraits, traits_of
from loom_dsl.text.canonical import canonical_json, digest
from loom_dsl.text.redaction import mask_known
from loom_dsl.tools.risk import reaches
from loom_dsl.tools.tool import Arguments, Tool
from loom_tools.registry import ToolRegistry
from loom_tools.running import check_call, run_in_thread_if_large
from loom_tools.user_code import Code, as_nothing
from loom_tools.workspace.workspace import Workspace


class _Question(NamedTuple):
    """A call that somebody is asked about, and what an answer takes now."""

    call: ActivityCall
    facts: JobFacts
    policy: ApprovalPolicy
    signed: bool


class CallPolicy:
    """Judges calls, and says who decides about those that somebody is asked about."""

    def __init__(
        self, jobs: JobStore, transcript: Transcript, registry: ToolRegistry, environment: Mapping[str, str]
    ) -> None:
        self._jobs, self._registry = jobs, registry
        self._layers = PolicyLayers(registry, environment)
        self._provenance = Provenance(jobs, transcript, registry, self._layers.trusted, self._layers.roles)

    @property
    def roles(self) -> Roles:
        """Who may decide in this deployment."""
        return self._layers.roles

    def is_signed(self, call: ActivityCall, facts: JobFacts, tool: Tool) -> bool:
        """Whether only a signed decision lets a tool's call run, as the agent's policy says it, or those around it."""
        around = self._layers.signed(call.latest, facts.workdir)
        return reaches(tool.risk, around) or reaches(tool.risk, facts.agent.approvals.signed)

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
        store = self._jobs.store
        traits = await run_in_thread_if_large(arguments, self.traits, call, facts, tool, arguments)
        await self._layers.learn(store, call, facts.workdir)
        around = self._layers.around(call.latest, facts.workdir)
        answer = await self._layers.answer(call, facts, traits, arguments)
        other = await changed(store, call)
        untrusted = other or await self._provenance.untrusted_reason(call, facts, traits, arguments)
        decided = partial(
            decide, facts.agent.permissions, traits, arguments, layers=around, answer=answer, untrusted=untrusted
        )
        judge = partial(run_in_thread_if_large, arguments, decided)
        asked = await judge()
        if asked.decision != "ask":
            return asked
        question = _Question(call, facts, self.approvals(call, facts, tool, asked), self.is_signed(call, facts, tool))
        return await self._with_answers(question, judge, traits.call(arguments).digest, bool(other), recorded)

    async def _with_answers(
        self, question: _Question, judge: Callable[..., Awaitable[Verdict]], name: str, changed: bool, recorded: bool
    ) -> Verdict:
        """Judge a call that is asked about by what approvers answered before; of a tool that changed, nothing counts.

        Args:
            question: What is asked.
            judge: Judges the call with what is remembered.
            name: Digest of its arguments.
            changed: Whether its server describes the tool otherwise than before.
            recorded: An approval counts only as the store has it.
        """
        store, (call, facts, policy, signed) = self._jobs.store, question
        remembered = [] if changed else await remembered_here(store, call, policy, signed=signed)
        verdict = await judge(remembered=remembered)
        if verdict.decision != "ask":
            return verdict
        if call.arguments.get("approved"):
            if recorded:
                await check_approved(store, call, policy, name, signed=signed)
            return verdict.model_copy(update={"decision": "allow"})
        kept = [] if changed else await kept_rules(store, facts, policy, name, signed=signed)
        return await judge(remembered=[*remembered, *kept]) if kept else verdict

    def approvals(self, call: ActivityCall, facts: JobFacts, tool: Tool, verdict: Verdict) -> ApprovalPolicy:
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
        reference = facts.offered(item).get(item["name"], item["name"])  # `mcp__server__*` names many tools
        found = traits_of(
            tool,
            arguments,
            builtin=self._registry.is_builtin(reference),
            working_dir=str(facts.workdir),
            real_path=workspace.real_path,
            reference=reference if ":" in reference else "",
        )
        return replace(found, digest=digest(mask_known(canonical_json(arguments), self._jobs.secrets)))
