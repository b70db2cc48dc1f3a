"""A tool that needs what its run was started with."""

from loom_dsl.tools import ToolContext, tool


@tool(read_only=True, requires_runtime=True)
def tenant(context: ToolContext) -> str:
    """Say for whom the run works."""
    return str(context.runtime["tenant"])
