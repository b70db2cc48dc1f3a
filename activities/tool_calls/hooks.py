"""Calling the hooks of an agent or a graph around the stages of a tool call, inside the stages' own activities."""

import functools
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from temporalio import activity

from activities.record.activity_call import ActivityCall
from activities.record.job_store import JobFacts, JobStore
from activities.record.outcomes import effect_key, failed, outcome_of
from activities.tool_calls.call_reader import CallReader
from loom_dsl.agent.messages import KEPT_BACK
from loom_dsl.errors import LoomError, PermissionDenied, StepDied, ToolError
from loom_dsl.text.canonical import canonical_json
from loom_dsl.tools.hooks import HookAnswer, HookCall, misuse
from loom_dsl.tools.secrets import refuse_secrets
from loom_dsl.tools.tool import validate_arguments
from loom_tools.masking import redact
from loom_tools.registry import ToolRegistry
from loom_tools.running import ask, describe
from loom_tools.user_code import Code, Raised

MAX_NOTE = 500
Outcome = dict[str, Any]
Work = Callable[..., Awaitable[Outcome]]


class Hooks:
    """The hooks of a worker's agents."""

    def __init__(self, jobs: JobStore, registry: ToolRegistry, reader: CallReader) -> None:
        self._jobs, self._registry, self._reader = jobs, registry, reader

    async def around(self, stage: str, envelope: dict[str, Any], work: Callable[[], Awaitable[Outcome]]) -> Outcome:
        """Do a stage's work between its hooks. A hook that fails refuses the call."""
        call = ActivityCall.of(envelope)
        try:
            facts = await self._jobs.facts(call.job)
        except LoomError:
            return await work()  # which tells it
        hooks: Mapping[str, str] = {str(point): reference for point, reference in facts.agent.hooks.items()}
        if not hooks:
            return await work()
        outcome: Outcome | None = None
        if f"before_{stage}" in hooks:
            refused = await self._asked(f"before_{stage}", hooks[f"before_{stage}"], call, facts, {})
            if refused and (outcome := await self._already(stage, call)) is None:
                return refused
        if outcome is None:
            outcome = await work()
        if f"after_{stage}" in hooks:
            return await self._asked(f"after_{stage}", hooks[f"after_{stage}"], call, facts, outcome) or outcome
        return outcome

    async def _already(self, stage: str, call: ActivityCall) -> Outcome | None:
        """What an attempt before this one did counts, not what would be said now."""
        if stage != "execute":
            return None
        return await self._jobs.store.write(lambda tx: outcome_of(tx, effect_key(call)))

    async def _asked(
        self, point: str, reference: str, call: ActivityCall, facts: JobFacts, outcome: Outcome
    ) -> Outcome | None:
        try:
            asked = await self._described(point, call, facts, outcome)
            answer = await self._answer(reference, asked)
            if wrong := misuse(point, answer):
                raise ToolError(f"the hook {reference} at {point} is wrong: {wrong}")
            await self._note(point, reference, call, answer)
            if answer.deny:
                ran = KEPT_BACK if point == "after_execute" else ""
                raise PermissionDenied(redact(f"{ran}{answer.deny}", self._jobs.secrets))
            return await self._changed(asked, answer, call, facts, outcome)
        except StepDied:
            raise
        except LoomError as error:
            if point.endswith("_format"):
                activity.logger.error("%s", redact(error.message, self._jobs.secrets))
                return None  # the result is told, whatever a hook thinks of it
            return {"decision": "deny", **failed(error)} if point.endswith("_authorize") else failed(error)

    async def _described(self, point: Any, call: ActivityCall, facts: JobFacts, outcome: Outcome) -> HookCall:
        item, arguments, output = call.arguments["call"], {}, None
        if point == "after_validate" and outcome.get("ok") and outcome.get("arguments"):
            text = await self._jobs.store.read(lambda tx: tx.get_blob(outcome["arguments"]))
            arguments = json.loads(text)
        elif point not in ("before_discover", "after_discover", "before_validate") and outcome.get("ok", True):
            try:
                arguments = await self._reader.arguments(call, await self._reader.tool(facts, item))
            except ToolError:
                arguments = {}  # the call failed before it had any
        if point == "after_execute" and outcome.get("ok"):
            output = (await self._jobs.store.read(lambda tx: tx.get_blob(outcome["output"]))).decode()
        return HookCall(
            point=point,
            tool=item["name"],
            arguments=arguments,
            output=output,
            outcome=dict(outcome),
            job=call.job,
            turn=call.turn,
            call_id=item["id"],
            working_dir=facts.workdir,
        )

    async def _answer(self, reference: str, asked: HookCall) -> HookAnswer:
        function = self._registry.function(reference)
        try:
            answer = await ask(function, asked, code=Code((reference,)).given(asked))
        except Raised as raised:
            raise ToolError(f"the hook {reference} at {asked.point} failed: {describe(raised.error)}") from None
        except TimeoutError:
            raise ToolError(f"the hook {reference} at {asked.point} gave no answer in time") from None
        if answer is None:
            return HookAnswer()
        if not isinstance(answer, HookAnswer):
            kind = type(answer).__name__
            raise ToolError(f"the hook {reference} at {asked.point} returned a {kind}; return a HookAnswer or None")
        return answer

    async def _changed(
        self, asked: HookCall, answer: HookAnswer, call: ActivityCall, facts: JobFacts, outcome: Outcome
    ) -> Outcome | None:
        secrets = self._jobs.secrets
        if answer.arguments is not None and outcome.get("ok"):
            tool = await self._reader.tool(facts, call.arguments["call"])
            arguments = validate_arguments(tool, answer.arguments)
            refuse_secrets(arguments, secrets)
            text = canonical_json(arguments).encode()
            return {**outcome, "arguments": await self._jobs.store.write(lambda tx: tx.put_blob(text))}
        if answer.output is not None and outcome.get("ok"):
            output = redact(answer.output, secrets).encode("utf-8", "replace")
            return {**outcome, "output": await self._jobs.store.write(lambda tx: tx.put_blob(output))}
        return None

    async def _note(self, point: str, reference: str, call: ActivityCall, answer: HookAnswer) -> None:
        """Keep what a hook did, once for each execution of the stage."""
        did = "denied" if answer.deny else "changed" if (answer.arguments, answer.output) != (None, None) else "noted"
        said = answer.deny or answer.note
        if did == "noted" and not said:
            return
        event = {
            "t": "hook",
            "n": call.turn,
            "tool_call_id": call.arguments["call"]["id"],
            "point": point,
            "hook": reference,
            "did": did,
            "note": redact(str(said), self._jobs.secrets)[:MAX_NOTE],
        }
        key = f"{call.turn}/{call.at}/{point}"
        await self._jobs.store.write(lambda tx: tx.append_events(call.job, key, [event]))


def hooked(stage: str) -> Callable[[Work], Work]:
    """Put an agent's hooks around a stage: a method of something that has `_hooks`."""

    def decorate(work: Work) -> Work:
        @functools.wraps(work)
        async def around(self: Any, envelope: dict[str, Any]) -> dict[str, Any]:
            hooks: Hooks = self._hooks
            return await hooks.around(stage, envelope, lambda: work(self, envelope))

        return around

    return decorate
