"""All activities of a worker, each given what it uses of the runtime, and no more."""

from collections.abc import Awaitable, Callable
from typing import Any

from activities.context.assemble import Assemble
from activities.context.compress import Compress
from activities.context.turn_text import TurnText
from activities.jobs.admission import Admit
from activities.jobs.child import Child
from activities.jobs.conclude import Conclude
from activities.jobs.functions import FunctionCall
from activities.jobs.local_batch import LocalBatch
from activities.jobs.plans import Pin
from activities.jobs.schedule import Firing
from activities.jobs.signatures import Signed
from activities.model.call import ModelCall
from activities.model.llm import Llm
from activities.observe.events import Observe
from activities.observe.metrics import MEASURED, Metrics
from activities.observe.turn_log import TurnLog
from activities.record.transcript import Transcript
from activities.runtime import Runtime
from activities.tool_calls.call_policy import CallPolicy
from activities.tool_calls.call_reader import CallReader
from activities.tool_calls.execute import Execute
from activities.tool_calls.format import Format
from activities.tool_calls.hooks import Hooks
from activities.tool_calls.services import Lender
from activities.tool_calls.stages import Stages
from activities.tool_calls.tool_node import ToolNode
from activities.tool_calls.undo import Undo


def activities_of(runtime: Runtime, metrics: Metrics | None = None) -> dict[str, Callable[..., Any]]:
    """Give every activity that a plan may name, and those that the workflow itself needs, by their names.

    Args:
        runtime: What they work with.
        metrics: Where it is counted what they do; without it nothing is.
    """
    jobs, registry, mcp = runtime.jobs, runtime.registry, runtime.mcp
    stopping, endpoints = runtime.stopping, runtime.endpoints
    transcript, lender = Transcript(jobs.store), Lender(jobs.store, runtime.allowed, runtime.environment)
    reader = CallReader(jobs, transcript, registry, mcp)
    policy, hooks = CallPolicy(jobs, transcript, registry, runtime.environment), Hooks(jobs, registry, reader)
    observe, stages = Observe(jobs, stopping, runtime.on_approval), Stages(jobs, reader, policy, hooks)
    conclude, text = Conclude(jobs, transcript), TurnText(jobs)
    tool_node, child = ToolNode(jobs, registry, mcp), Child(jobs)
    named: dict[str, Callable[[dict[str, Any]], Awaitable[Any]]] = {
        "loom.context.assemble": Assemble(jobs, transcript, endpoints, registry, mcp).assemble,
        "loom.context.compress": Compress(jobs, transcript, endpoints).compress,
        "loom.model.call": ModelCall(jobs, transcript, endpoints, registry, mcp).call,
        "loom.tool.discover": stages.discover,
        "loom.tool.validate": stages.validate,
        "loom.tool.authorize": stages.authorize,
        "loom.tool.check_cancel": stages.check_cancel,
        "loom.tool.execute": Execute(jobs, reader, policy, hooks, lender, stopping).execute,
        "loom.tool.format": Format(jobs, registry, hooks).format,
        "loom.tool.prepare": tool_node.prepare,
        "loom.tool.output": tool_node.output,
        "loom.function.call": FunctionCall(jobs, registry, stopping).call,
        "loom.llm.call": Llm(jobs, endpoints).call,
        "loom.child.prepare": child.prepare,
        "loom.child.look": child.look,
        "loom.child.discard": child.discard,
        "loom.graph.admit": Admit(jobs).admit,
        "loom.job.begin": Firing(jobs.store).begin,
        "loom.job.pin": Pin(jobs.store).pin,
        "loom.effects.undo": Undo(jobs, registry, lender).undo,
        "loom.turn.feedback": conclude.feedback,
        "loom.turn.read": text.read,
        "loom.turn.add": text.add,
        "loom.job.result": conclude.result,
    }
    if metrics is not None:  # here both ways pass: an activity of its own, and one in a local stretch
        named |= {name: metrics.measured(name, work, jobs) for name, work in named.items() if name in MEASURED}
    log = TurnLog()
    named |= {name: log.logged(name, named[name]) for name in log.told}
    return {
        "loom.events.flush": observe.flush,
        "loom.approval.announce": observe.announce,
        "loom.signal.time": observe.signal_time,
        "loom.approval.verify": Signed(jobs, runtime.approver_keys).verify,
        "loom.local": LocalBatch(jobs, runtime.steps, named).run,
        **named,
    }
