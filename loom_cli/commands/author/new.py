"""``loom new`` and ``loom schema``: what helps to write documents."""

from pathlib import Path
from typing import Annotated

import typer

from loom_cli.errors import DONE, guarded, say


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("new")(guarded(new))
    app.command("schema")(guarded(schema))


def new(
    kind: Annotated[
        str | None, typer.Argument(help="What it begins; without it, the kinds are listed.", metavar="[KIND]")
    ] = None,
    name: Annotated[
        str | None, typer.Argument(help="Name of the document and its files; the kind by default.", metavar="[NAME]")
    ] = None,
    directory: Annotated[
        Path, typer.Option("--dir", help="Where; it is made when it is not there.", metavar="DIR")
    ] = Path(),
    schema: Annotated[
        bool, typer.Option("--schema", help="Write the JSON Schema beside it, too, and name it in the documents.")
    ] = False,
) -> int:
    """Begin a graph or an agent from a commented starting point that runs as it stands."""
    from loom_cli.project.templates import STARTS, start

    if kind is None:
        width = max(map(len, STARTS))
        for each, about in STARTS.items():
            print(f"{each:<{width}}  {about}")
        print("\nBegin one with `loom new KIND [NAME]`.")
        return DONE
    begun = start(kind, name, directory, schema=schema)
    for place in begun.files:
        print(place)
    if begun.kept is not None:
        say(f"{begun.kept} was there and is not of this release; renew it: loom schema --output {begun.kept}")
    where = "" if directory == Path() else f" in {directory}"
    modules = "".join(f" --tools {place.stem}" for place in begun.files if place.suffix == ".py")
    print(f"Next: check it with `loom validate {begun.files[0]}{modules}`; its first lines say how to run it{where}.")
    return DONE


def schema(
    kind: Annotated[
        str | None,
        typer.Argument(
            help="graph, agent, policy, webhooks, fake-model or scenario; without it, one for all.", metavar="[KIND]"
        ),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", help="Write it into this file, and over what is there.", metavar="FILE")
    ] = None,
) -> int:
    """Print the JSON Schema of documents, for editors and other tools."""
    from loom_cli.project.templates import schema_text
    from loom_dsl.errors import UserError

    text = schema_text(kind)
    if output is None:
        print(text, end="")
        return DONE
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"{output} cannot be written: {error.strerror or error}") from None
    print(output)
    return DONE
