"""What a tool's author wrote for the people who are asked about its calls: a summary, and a preview."""

from collections.abc import Mapping
from pathlib import Path

from temporalio import activity

from activities.runtime import Call
from activities.tool_run import ANSWER_SECONDS, ask, describe
from activities.users_code import Code, Raised, as_preview, as_text
from loom_dsl.errors import LoomError
from loom_dsl.redaction import redact
from loom_dsl.tools import Arguments, Preview, Tool, ToolContext

LONGEST_LOG = 8_000
"""Characters of a failure that are logged."""


async def summary_of(tool: Tool, arguments: Arguments, secrets: Mapping[str, str]) -> str:
    """The tool's own summary; a summary that fails must not stand between a call and its approver."""
    if tool.summarise is None:
        return ""
    try:
        code = Code.of(tool, "summarise", as_text)
        return await ask(as_text, tool.summarise, arguments, code=code and code.given(arguments))
    except Raised as raised:
        told = redact(describe(raised.error), secrets)[:LONGEST_LOG]
        activity.logger.error("the summary of the tool %s failed: %s", tool.name, told)
    except TimeoutError:
        activity.logger.error("the summary of the tool %s took over %g s", tool.name, ANSWER_SECONDS)
    return ""


async def preview_of(tool: Tool, arguments: Arguments, workdir: Path, call: Call) -> Preview:
    """What a call would do, as the tool shows it, such as a diff; without text where it shows nothing."""
    if tool.preview is None:
        return Preview("")
    context = ToolContext(working_dir=workdir, job=call.job, turn=call.turn)
    try:
        code = Code.of(tool, "preview", as_preview)
        return await ask(as_preview, tool.preview, arguments, context, code=code and code.given(arguments, context))
    except Raised as raised:
        error = raised.error
        return Preview(f"(no preview: {error.message if isinstance(error, LoomError) else describe(error)})")
    except TimeoutError:
        return Preview(f"(no preview: it did not end within {ANSWER_SECONDS:g} s)")
