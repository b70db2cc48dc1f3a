"""``loom key``: the keys with which people sign their decisions."""

from pathlib import Path
from typing import Annotated

import typer

from loom_cli.errors import DONE, guarded, say

KeyFile = Annotated[Path, typer.Argument(help="A private key.", metavar="KEYFILE")]
_MOMENT = "2027-01-31T12:00:00Z"
NotBefore = Annotated[str | None, typer.Option(help="From when on it counts.", metavar=_MOMENT)]
NotAfter = Annotated[str | None, typer.Option(help="Until when it counts.", metavar=_MOMENT)]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(help="Keys that sign decisions.", no_args_is_help=True, rich_markup_mode=None)
    group.command("new", help="Make a key; prints the line for the workers' file of public keys.")(new)
    group.command("show", help="Print the line of a key for the workers' file of public keys.")(show)
    app.add_typer(group, name="key")


@guarded
def new(
    name: Annotated[str, typer.Argument(help="Whose it is, as `approvers` and roles have the name.", metavar="NAME")],
    out: Annotated[Path, typer.Option(help="Where the private key goes; a new file.", metavar="KEYFILE")],
    not_before: NotBefore = None,
    not_after: NotAfter = None,
) -> int:
    """Make a key."""
    from loom_client.signing import SigningKey

    key = SigningKey.new(name)
    line = key.entry(not_before, not_after)
    key.save(out)
    print(line)
    say(f"the private key {key.name} of {name} is in {out}; nobody else is to have it")
    return DONE


@guarded
def show(path: KeyFile, not_before: NotBefore = None, not_after: NotAfter = None) -> int:
    """Show a key's public half."""
    from loom_client.signing import SigningKey

    print(SigningKey.load(path).entry(not_before, not_after))
    return DONE
