"""What the stages of a tool call are given, made from a worker's means as the registration does."""

from activities.runtime import Runtime
from activities.tool_calls.call_policy import CallPolicy
from activities.tool_calls.call_reader import CallReader
from activities.transcript import Transcript


def parts_of_a_call(runtime: Runtime) -> tuple[CallReader, CallPolicy]:
    """Give what reads calls and what judges them."""
    transcript = Transcript(runtime.store)
    return CallReader(runtime, transcript), CallPolicy(runtime, transcript)
