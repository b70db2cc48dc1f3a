"""Beginning a project: an agent, a tool, a script for the fake model, and how to run them."""

from importlib.resources import files
from pathlib import Path

from loom_dsl.errors import ConflictError, UserError

FILES = ("README.md", "agent.yaml", "tools.py", "script.yaml", "notes.txt")


def begin(directory: Path) -> list[Path]:
    """Write the files of a new project.

    Args:
        directory: Where; it is made when it is not there. Other files in it stay.

    Returns:
        The files written.

    Raises:
        ConflictError: One of the files is there already; nothing is written.
        UserError: The directory cannot be written.
    """
    places = [directory / name for name in FILES]
    taken = [place.name for place in places if place.exists() or place.is_symlink()]
    if taken:
        raise ConflictError(
            f"{directory} already holds {', '.join(taken)}; nothing was written. "
            "Choose another directory: loom init DIR"
        )
    template = files("loom_client").joinpath("project", "template")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for place in places:
            with place.open("x", encoding="utf-8") as file:
                file.write(template.joinpath(place.name).read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{error.filename or directory} cannot be written: {error.strerror or error}") from None
    return places
