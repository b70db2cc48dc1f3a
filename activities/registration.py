"""All activities of a worker, made from one runtime."""

from collections.abc import Awaitable, Callable
from typing import Any

from activities.context.assemble import Assemble
from activities.context.compress import Compress
from activities.context.turn_text import TurnText
from activities.jobs.admission import Admit
from activities.jobs.child import Child
from activities.jobs.conclude import Conclude
from activities.jobs.functions import Function
from activities.jobs.local_batch import LocalBatch
from activities.jobs.plans import Pin
from activities.jobs.schedule import Firing
from activities.jobs.signatures import Signed
from activities.jobs.undo import Undo
from activities.model.call import Model
from activities.model.llm import Llm
from activities.observe.events import Observe
from activities.observe.metrics import MEASURED, Metrics
from activities.observe.turn_log import TurnLog
from activities.runtime import Runtime
from activities.tool_calls.call_policy import CallPolicy
from activities.tool_calls.call_reader import CallReader
from activities.tool_calls.execute import Execute
from activities.tool_calls.format import Format
from activities.tool_calls.stages import Stages
from activities.tool_calls.tool_node import ToolNode
from activities.transcript import Transcript


def activities_of(runtime: Runtime, metrics: Metrics | None = None) -> list[Callable[..., Any]]:
    """Give every activity that a plan may name, and those that the workflow itself needs.

    Args:
        runtime: What they work with.
        metrics: Where it is counted what they do; without it nothing is.
    """
    transcript = Transcript(runtime.store)
    reader, policy = CallReader(runtime, transcript), CallPolicy(runtime, transcript)
    observe, stages, conclude = Observe(runtime), Stages(runtime, reader, policy), Conclude(runtime, transcript)
    text = TurnText(runtime, transcript)
    tool_node, child = ToolNode(runtime), Child(runtime)
    named: dict[str, Callable[[dict[str, Any]], Awaitable[Any]]] = {
        "loom.context.assemble": Assemble(runtime, transcript).assemble,
        "loom.context.compress": Compress(runtime, transcript).compress,
        "loom.model.call": Model(runtime, transcript).call,
        "loom.tool.discover": stages.discover,
        "loom.tool.validate": stages.validate,
        "loom.tool.authorize": stages.authorize,
        "loom.tool.check_cancel": stages.check_cancel,
        "loom.tool.execute": Execute(runtime, reader, policy).execute,
        "loom.tool.format": Format(runtime, reader).format,
        "loom.tool.prepare": tool_node.prepare,
        "loom.tool.output": tool_node.output,
        "loom.function.call": Function(runtime).call,
        "loom.llm.call": Llm(runtime).call,
        "loom.child.prepare": child.prepare,
        "loom.child.look": child.look,
        "loom.child.discard": child.discard,
        "loom.graph.admit": Admit(runtime).admit,
        "loom.job.begin": Firing(runtime).begin,
        "loom.job.pin": Pin(runtime).pin,
        "loom.effects.undo": Undo(runtime).undo,
        "loom.turn.feedback": conclude.feedback,
        "loom.turn.read": text.read,
        "loom.turn.add": text.add,
        "loom.job.result": conclude.result,
    }
    if metrics is not None:  # here both ways pass: an activity of its own, and one in a local stretch
        named |= {name: metrics.measured(name, work, runtime) for name, work in named.items() if name in MEASURED}
    log = TurnLog()
    named |= {name: log.logged(name, named[name]) for name in log.told}
    own = [observe.flush, observe.announce, observe.signal_time, Signed(runtime).verify]
    return [*own, LocalBatch(runtime, named).run, *named.values()]
