"""All activities of a worker, made from one runtime."""

from collections.abc import Callable
from typing import Any

from activities.assemble import Assemble
from activities.conclude import Conclude
from activities.execute import Execute
from activities.model import Model
from activities.observe import Observe
from activities.runtime import Runtime
from activities.stages import Calls, Stages
from activities.transcript import Transcript


def activities_of(runtime: Runtime) -> list[Callable[..., Any]]:
    """Give every activity that a plan may name."""
    transcript = Transcript(runtime.store)
    calls = Calls(runtime, transcript)
    observe, stages, conclude = Observe(runtime), Stages(runtime, calls), Conclude(runtime, transcript)
    return [
        observe.flush,
        observe.announce,
        observe.signal_time,
        Assemble(runtime, transcript).assemble,
        Model(runtime, transcript).call,
        stages.discover,
        stages.validate,
        stages.authorize,
        stages.check_cancel,
        stages.format,
        Execute(runtime, calls).execute,
        conclude.feedback,
        conclude.result,
    ]
