"""What the planner's graphs may do: look at the texts of the job's directory."""

from loom_dsl import ToolContext, UserError


def list_texts(context: ToolContext) -> list[str]:
    """Name the texts, sorted."""
    return sorted(f"texts/{path.name}" for path in (context.working_dir / "texts").glob("*.txt"))


def count_words(path: str, context: ToolContext) -> int:
    """Count the words of one text.

    Raises:
        UserError: It is not one of the texts.
    """
    if path not in list_texts(context):
        raise UserError(f"{path} is not one of the texts")
    return len((context.working_dir / path).read_text(encoding="utf-8").split())
