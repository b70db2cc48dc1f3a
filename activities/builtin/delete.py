"""Deleting files."""

from activities.builtin.file_state import state_at
from activities.builtin.read import file_key
from activities.builtin.text_file import describe_size
from activities.workspace import Workspace
from loom_dsl.errors import LoomError
from loom_dsl.tools import Arguments, Preview, Reconciliation, Risk, ToolContext, tool


def _preview(arguments: Arguments, context: ToolContext) -> Preview:
    path = arguments["path"]
    try:
        with Workspace(context.working_dir) as space:
            found = state_at(space, path)
    except LoomError as error:
        return Preview(f"delete {path} ({error.message})")
    if found.data is None:
        return Preview(f"delete {path} ({found.problem or 'there is none'})", state=found.name)
    beginning = found.data[:2_000].decode("utf-8", "replace")
    text = f"delete {path} ({describe_size(found.size)}), which begins with\n{beginning}"
    return Preview(text, state=found.name)


def _reconcile(arguments: Arguments, context: ToolContext) -> Reconciliation:
    """Look whether it is gone: an earlier attempt is the likely reason, though not the only one."""
    try:
        with Workspace(context.working_dir) as space:
            there = space.exists(arguments["path"])
    except LoomError:
        return Reconciliation(outcome="unknown")
    if there:
        return Reconciliation(outcome="not_happened")
    return Reconciliation(outcome="happened", result=f"Deleted {arguments['path']}")


@tool(
    path_arguments=("path",),
    concurrency_key=file_key,
    timeout=30,
    risk=Risk.HIGH,  # nothing brings the content back
    summarise=lambda arguments: f"delete {arguments.get('path')}",
    preview=_preview,
    reconcile=_reconcile,
)
def delete_file(context: ToolContext, path: str) -> str:
    """Delete one file, or a directory that is empty.

    Args:
        path: Path relative to the working directory.
    """
    with Workspace(context.working_dir) as space:
        if context.approved_states:
            context.check_state(state_at(space, path).name, repr(path))
        what = space.delete(path)
    return f"Deleted {'the empty directory ' if what == 'directory' else ''}{path}"
