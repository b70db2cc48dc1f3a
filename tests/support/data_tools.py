"""A tool that needs what its run was started with."""

from loom_dsl.tools.context import ToolContext
from loom_dsl.tools.tool import tool


@tool(read_only=True, requires_runtime=True)
def tenant(context: ToolContext) -> str:
    """Say for whom the run works."""
    return str(context.runtime["tenant"])
