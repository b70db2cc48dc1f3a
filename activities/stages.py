"""The stages of a tool call before and after it runs: discover, validate, authorize, check_cancel, format."""

import asyncio
import json
from pathlib import Path
from typing import Any

from temporalio import activity

from activities.observe import store_events
from activities.runtime import Call, JobFacts, Runtime
from activities.tool_run import describe
from activities.transcript import PRIVATE, Transcript
from activities.workspace import Workspace
from loom_dsl.agent import call_name
from loom_dsl.canonical import canonical_json, digest
from loom_dsl.errors import LoomError, ToolNotFound, ToolUnavailable, ToolValidationError
from loom_dsl.permission_rules import rule_for
from loom_dsl.permissions import ToolTraits, Verdict, decide, traits_of
from loom_dsl.redaction import mask_known, redact
from loom_dsl.tool_result import ToolMessage, failure, refusal, success
from loom_dsl.tools import Arguments, Tool, ToolContext, validate_arguments
from loom_dsl.validation import suggest
from loom_store.transaction import Transaction

MOST_SUMMARY = 300
MOST_MESSAGE = 8_000
"""Characters of a failure's message that enter the history."""
CUT = "your message was cut off at the limit of output tokens, so make the arguments shorter;"


class Calls:
    """What all stages need to know about one call."""

    def __init__(self, runtime: Runtime, transcript: Transcript) -> None:
        self.runtime, self._transcript = runtime, transcript

    def tool(self, facts: JobFacts, name: str) -> Tool:
        """Find the tool that the model named.

        Raises:
            ToolNotFound: The agent has no tool of that name.
            ToolUnavailable: It cannot be used now.
        """
        for reference in facts.agent.tools:
            if call_name(reference) == name:
                tool = self.runtime.registry.resolve(reference)
                _check_available(tool)
                return tool
        known = [call_name(reference) for reference in facts.agent.tools]
        hint = suggest(name, known)
        listed = f"the tools are {', '.join(known)}" if known else "there are no tools"
        raise ToolNotFound(f"there is no tool {name!r}; {hint or listed}")

    async def raw_arguments(self, call: Call) -> str:
        """What the model sent as arguments of this call."""
        item = call.arguments["call"]
        head = await self._transcript.head(call.session, item["e"])
        raw: str = head["tool_calls"][item["i"]]["function"]["arguments"]
        return raw

    async def was_cut(self, call: Call) -> bool:
        """Whether the model ran into its limit of output tokens in the message that makes this call."""
        head = await self._transcript.head(call.session, call.arguments["call"]["e"])
        return bool(head.get(PRIVATE, {}).get("finish") == "length")

    async def arguments(self, call: Call, tool: Tool) -> Arguments:
        """The validated arguments: those that were approved, where somebody was asked."""
        name = call.arguments.get("arguments")
        if name:
            text = await self.runtime.store.read(lambda tx: tx.get_blob(name))
            value: Arguments = json.loads(text)
            return value
        return validate_arguments(tool, await self.raw_arguments(call))

    def verdict(self, call: Call, facts: JobFacts, tool: Tool, arguments: Arguments) -> Verdict:
        """Ask the policy. Somebody's approval stands in for a rule that asks, never for one that denies."""
        verdict = decide(
            facts.agent.permissions, self.traits(facts, tool, arguments), arguments, call.arguments["remembered"]
        )
        if verdict.decision == "ask" and call.arguments.get("approved"):
            return verdict.model_copy(update={"decision": "allow"})
        return verdict

    def traits(self, facts: JobFacts, tool: Tool, arguments: Arguments) -> ToolTraits:
        """What the policy looks at."""
        workspace = Workspace(facts.workdir)
        reference = next(ref for ref in facts.agent.tools if call_name(ref) == tool.name)
        return traits_of(
            tool,
            arguments,
            builtin=":" not in reference,
            working_dir=str(facts.workdir),
            real_path=workspace.real_path,
            reference=reference if ":" in reference else "",
        )


def _check_available(tool: Tool) -> None:
    try:
        available = tool.is_available is None or tool.is_available()
    except Exception as error:
        why = f"it could not be found out whether the tool {tool.name} is available: {describe(error)}"
        raise ToolUnavailable(why) from None
    if not available:
        raise ToolUnavailable(f"the tool {tool.name} is not available now")


class Stages:
    """The stages that only look: each is an activity of its own, local by default."""

    def __init__(self, runtime: Runtime, calls: Calls) -> None:
        self._runtime, self._calls = runtime, calls

    @activity.defn(name="loom.tool.discover")
    async def discover(self, envelope: dict[str, Any]) -> dict[str, Any]:
        """Find the tool and ask whether it is available."""
        call = await self._begin(envelope)
        try:
            self._calls.tool(await self._runtime.facts(call.job), call.arguments["call"]["name"])
        except LoomError as error:
            return _failed(error)
        return {"ok": True}

    @activity.defn(name="loom.tool.validate")
    async def validate(self, envelope: dict[str, Any]) -> dict[str, Any]:
        """Check the arguments; those of a call that changes something, or that were edited, are kept as approved."""
        call = await self._begin(envelope)
        edited = call.arguments.get("edited")
        try:
            tool = self._calls.tool(await self._runtime.facts(call.job), call.arguments["call"]["name"])
            raw = await self._calls.raw_arguments(call) if edited is None else edited
            arguments = validate_arguments(tool, raw)
        except ToolValidationError as error:
            cut = edited is None and await self._calls.was_cut(call)
            return _failed(ToolValidationError(f"{CUT} {error.message}") if cut else error)
        except LoomError as error:
            return _failed(error)
        if tool.read_only and edited is None:
            return {"ok": True, "arguments": None}
        text = mask_known(canonical_json(arguments), self._runtime.secrets).encode()
        return {"ok": True, "arguments": await self._runtime.store.write(lambda tx: tx.put_blob(text))}

    @activity.defn(name="loom.tool.authorize")
    async def authorize(self, envelope: dict[str, Any]) -> dict[str, Any]:
        """Decide by policy; where it asks, describe the call for a human."""
        call = await self._begin(envelope)
        facts = await self._runtime.facts(call.job)
        try:
            tool = self._calls.tool(facts, call.arguments["call"]["name"])
            arguments = await self._calls.arguments(call, tool)
            verdict = self._calls.verdict(call, facts, tool, arguments)
        except LoomError as error:
            return {"decision": "deny", **_failed(error)}
        if verdict.decision == "deny":
            return {"decision": "deny", "ok": False, "code": "permission_denied", "message": verdict.reason}
        if verdict.decision == "allow":
            return {"decision": "allow", "rule": verdict.rule}
        return {"decision": "ask", "request": await self._request(call, facts, tool, arguments, verdict)}

    @activity.defn(name="loom.tool.check_cancel")
    async def check_cancel(self, envelope: dict[str, Any]) -> dict[str, Any]:
        """Look at the abort mark: a signal reaches the workflow only with its next task."""
        call = await self._begin(envelope)
        mark = await self._runtime.store.read(lambda tx: tx.abort_requested(call.job))
        if mark is not None:
            return {"ok": False, "code": "aborted", "message": "the job was aborted before this call ran"}
        return {"ok": True}

    @activity.defn(name="loom.tool.format")
    async def format(self, envelope: dict[str, Any]) -> dict[str, Any]:
        """Make the tool message, whatever happened, and tell watchers."""
        call = Call.of(envelope)
        return await self._runtime.store.write(lambda tx: self._format(tx, call))

    def _format(self, tx: Transaction, call: Call) -> dict[str, Any]:
        store_events(tx, call)
        item, outcome = call.arguments["call"], call.arguments["outcome"]
        message = self._message(tx, outcome)
        # An output was redacted before it was kept; what others say about a call was not.
        text = message.content if outcome.get("ok") else redact(message.content, self._runtime.secrets)
        content = tx.put_blob(text.encode("utf-8", "replace"))
        event = {
            "t": "tool_result",
            "n": call.turn,
            "tool_call_id": item["id"],
            "tool": item["name"],
            "status": message.status,
            "content": {"$blob": content},
        }
        if message.code:
            event |= {"code": message.code}
        if outcome.get("ms") is not None:
            event |= {"ms": outcome["ms"]}
        tx.append_events(call.job, f"{call.turn}/{call.at}", [event])
        return {"id": item["id"], "status": message.status, "code": message.code, "content": content}

    def _message(self, tx: Transaction, outcome: dict[str, Any]) -> ToolMessage:
        if "choice" in outcome:
            return refusal(outcome)
        if outcome.get("ok"):
            return success(tx.get_blob(outcome["output"]).decode())
        return failure(outcome["code"], outcome["message"])

    async def _begin(self, envelope: dict[str, Any]) -> Call:
        call = Call.of(envelope)
        if call.batches:
            await self._runtime.store.write(lambda tx: store_events(tx, call))
        return call

    async def _request(
        self, call: Call, facts: JobFacts, tool: Tool, arguments: Arguments, verdict: Verdict
    ) -> dict[str, Any]:
        text = canonical_json(arguments)
        secrets = self._runtime.secrets
        summary = await asyncio.to_thread(_summary, tool, arguments) or f"{tool.name}({text})"
        request: dict[str, Any] = {
            "tool": tool.name,
            "call_id": call.arguments["call"]["id"],
            "arguments": digest(mask_known(text, secrets)),
            "summary": redact(summary, secrets)[:MOST_SUMMARY],
            "reason": verdict.reason[:MOST_SUMMARY],
            "rules": rule_for(tool.name, self._calls.traits(facts, tool, arguments).paths),
            "risk": str(tool.risk),
            "requester": f"agent {facts.agent.name}",
        }
        preview = await asyncio.to_thread(_preview, tool, arguments, facts.workdir, call) if tool.preview else ""
        blobs = [mask_known(text, secrets).encode(), *([redact(preview, secrets).encode()] if preview else [])]
        names = await self._runtime.store.write(lambda tx: [tx.put_blob(blob) for blob in blobs])
        if preview:
            request["preview"] = names[1]
        return request


def _summary(tool: Tool, arguments: Arguments) -> str:
    """The tool's own summary; a summary that fails must not stand between a call and its approver."""
    try:
        return str(tool.summarise(arguments)) if tool.summarise else ""
    except Exception:
        activity.logger.exception("the summary of the tool %s failed", tool.name)
        return ""


def _preview(tool: Tool, arguments: Arguments, workdir: Path, call: Call) -> str:
    assert tool.preview is not None
    try:
        return str(tool.preview(arguments, ToolContext(working_dir=workdir, job=call.job, turn=call.turn)))
    except LoomError as error:
        return f"(no preview: {error.message})"
    except Exception as error:
        return f"(no preview: {describe(error)})"


def _failed(error: LoomError) -> dict[str, Any]:
    return {"ok": False, "code": error.code, "message": error.message[:MOST_MESSAGE]}
