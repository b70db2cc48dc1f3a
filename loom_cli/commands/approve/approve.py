"""``loom approvals``, ``approve`` and ``reject``."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from loom_cli.errors import DONE, FAILED, guarded, say
from loom_cli.options import By, ConnectionOptions, Json, Sign, connection_options, who

if TYPE_CHECKING:
    from loom_client.records import Receipt
    from loom_store.store import Store


REMEMBER = ("no", "job", "rule")
WORDS = {
    "approve": "approved",
    "edit": "approved with other arguments",
    "reject": "rejected",
    "respond": "answered in the tool's place",
    "terminate": "ended the job",
}
"""What each choice does, for people."""

Names = Annotated[
    list[str] | None,
    typer.Argument(help="The job and the approval; may be left out while only one waits.", metavar="[JOB] [APPROVAL]"),
]


Shown = Annotated[
    list[str] | None,
    typer.Argument(help="Show all of this approval, or of those that wait in this job.", metavar="[JOB] [ID]"),
]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("approvals", help="List the approvals that wait, or show all of one.")(approvals)
    app.command("approve", help="Let a tool call that waits run.")(approve)
    app.command("reject", help="Refuse a tool call that waits; the agent is told and goes on.")(reject)


@guarded
@connection_options("address", "namespace", "store")
async def approvals(
    names: Shown = None,
    job: Annotated[str | None, typer.Option(help="Only those of this job and those below it.", metavar="JOB")] = None,
    every: Annotated[bool, typer.Option("--all", help="Also those that are decided.")] = False,
    as_json: Json = False,
    *,
    connection: ConnectionOptions,
) -> int:
    """List approvals, or show all of those that are named."""
    from loom_cli.commands.approve.display import show_approvals
    from loom_cli.commands.approve.find import named, waiting
    from loom_cli.opening import existing_store, find_job

    settings = connection.settings()
    with existing_store(settings) as opened_store:
        if names:
            return await show_named(opened_store, await named(opened_store, settings, names), as_json)
        if job is not None:
            await find_job(opened_store, job)
        rows = await waiting(opened_store, settings, job, below=True)
        if every:
            rows = await opened_store.read(lambda tx: tx.approvals(job=job, below=True))
        if as_json:
            for row in rows:
                print(json.dumps(row))
        else:
            show_approvals(rows, opened_store, every)
    return DONE


async def show_named(store: "Store", rows: list[dict[str, Any]], as_json: bool) -> int:
    """Show all of some approvals: the whole preview, and the whole arguments."""
    from loom_cli.commands.approve.display import contents, show_whole

    for row in rows:
        if as_json:
            print(json.dumps({**row, **await store.read(lambda tx, row=row: contents(tx, row))}))  # type: ignore[misc]
        else:
            show_whole(row, store)
    return DONE


@guarded
@connection_options()
async def approve(  # noqa: PLR0913, PLR0917 - each is an option of the command
    names: Names = None,
    remember: Annotated[
        str, typer.Option(help="Do not ask again for the same: in this job, or by a rule.", metavar="no|job|rule")
    ] = "no",
    edit: Annotated[
        Path | None, typer.Option(help="JSON file with other arguments to run the tool with.", metavar="FILE")
    ] = None,
    choice: Annotated[
        str | None, typer.Option(help="Another of the answers that a graph's question allows.", metavar="CHOICE")
    ] = None,
    by: By = "",
    sign: Sign = None,
    message: Annotated[str, typer.Option(help="A note that is kept with the decision.")] = "",
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask first, when no approval is named.")] = False,
    as_json: Json = False,
    *,
    connection: ConnectionOptions,
) -> int:
    """Approve."""
    from loom_dsl.errors import UserError

    if remember not in REMEMBER:
        raise UserError(f"--remember {remember}: write {' or '.join(REMEMBER)}")
    fields: dict[str, Any] = {"message": message, "remember": remember, **who(by, sign)}
    if edit is not None:
        if remember != "no":
            raise UserError(
                f"--edit and --remember {remember} do not go together: what was edited is not asked for again"
            )
        fields["edited_arguments"] = arguments_of(edit)
    if edit is not None and choice is not None:
        raise UserError(
            "--edit and --choice do not go together: --edit is the choice to run the tool with other arguments"
        )
    answer = "edit" if edit is not None else choice or "approve"
    return await decide_one(connection, names or [], answer, fields, as_json, yes)


@guarded
@connection_options()
async def reject(
    names: Names = None,
    reason: Annotated[str, typer.Option(help="Why; the agent reads it.")] = "",
    by: By = "",
    sign: Sign = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="As for approve; a rejection never asks first.")] = True,
    as_json: Json = False,
    *,
    connection: ConnectionOptions,
) -> int:
    """Reject."""
    fields = {"message": reason, **who(by, sign)}
    return await decide_one(connection, names or [], "reject", fields, as_json, yes)


async def decide_one(
    connection: ConnectionOptions,
    names: list[str],
    choice: str,
    fields: dict[str, Any],
    as_json: bool,
    yes: bool = True,
) -> int:
    """Decide the approval that is meant, and say so; who named none is shown what it is, and asked at a terminal."""
    from loom_cli.commands.approve.display import show_call
    from loom_cli.commands.approve.find import chosen
    from loom_cli.commands.run.prompt import can_ask
    from loom_cli.opening import existing_store, opened
    from loom_client.edited_arguments import check_edit

    settings, edited = connection.settings(), fields.get("edited_arguments")
    with existing_store(settings) as opened_store:
        row, named = await chosen(opened_store, settings, names)
        if edited is not None:
            await check_edit(opened_store, row["id"], edited)  # before anybody is asked whether to send it
        # Who named no approval may not know what waits, so it is shown first; a program gets it with the answer.
        unseen = not named and not as_json
        if unseen:
            show_call(row, opened_store, edited)
    if unseen and not yes and can_ask() and not await agreed():
        say(f"nothing was decided; it waits: `loom approve {row['id']}` or `loom reject {row['id']}`")
        return FAILED
    async with opened(settings) as loom:
        # What is shown is what counts: a request that is not the one in the store is refused.
        said = await loom.job(row["job"]).decide(row["id"], choice, **{"digest": row["arguments_digest"], **fields})
        if as_json:
            call = {"tool": row["tool"], "summary": row["summary"]}
            print(json.dumps({"job": row["job"], "approval": row["id"], "choice": choice, **call, **said.model_dump()}))
            return DONE
        print(done_line(row, choice, said, fields.get("remember", "no")), flush=True)
    if said.verdict == "unconfirmed":
        say(said.message)
    return DONE


def done_line(row: dict[str, Any], choice: str, said: "Receipt", remember: str = "no") -> str:
    """Say what became of a decision about an approval, and what is remembered of it.

    Args:
        row: The approval.
        choice: What was decided.
        said: The job's answer.
        remember: For how long it was to count.
    """
    from loom_cli.render.approvals import remembered_line
    from loom_dsl.text.confusables import revealed

    of = f"{row['id']} ({row['tool']})" if row["tool"] else row["id"]
    of += f" of job {row['job']}"
    if said.verdict == "unconfirmed":
        return f"sent: {choice}: {of}"
    if said.message != f"{choice} recorded":  # it waits for others, or it was sent before
        word = "counted before" if said.verdict == "already_done" else "recorded, and it still waits"
        return f"{word}: {of}: {revealed(said.message)}"
    kept = remembered_line(remember, row["details"].get("rules"))
    if kept and row["policy"].get("quorum", 1) > 1:
        kept = f"if all who agree say so, {kept}"
    if remember != "no" and not kept:
        kept = "nothing of it can be remembered"
    return f"{WORDS.get(choice, f'answered {choice}')}: {of}{f'; {kept}' if kept else ''}"


async def agreed(question: str = "approve this?") -> bool:
    """Ask the person at the terminal."""
    from loom_cli.commands.run.prompt import Lines

    lines = Lines()
    while True:
        print(f"{question} [y]es [n]o ", end="", flush=True)
        answer = await lines.read()
        if answer is None:
            print()
            return False
        word = answer.strip().lower()
        if word in ("y", "yes", "n", "no"):
            return word in ("y", "yes")


def arguments_of(path: Path) -> dict[str, Any]:
    """Read the arguments that a user wrote.

    Raises:
        UserError: The file cannot be read, or is not a JSON object.
    """
    from loom_dsl.errors import NotFoundError, UserError
    from loom_dsl.text.canonical import read_json

    try:
        value = read_json(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise NotFoundError(f"--edit: there is no file {path}") from None
    except OSError as error:
        raise UserError(f"--edit {path}: {error.strerror}") from None
    except ValueError as error:
        raise UserError(f"--edit {path}: this is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise UserError(f'--edit {path}: the arguments must be a JSON object, such as {{"path": "a.txt"}}')
    return value
