"""``loom decide``: decisions about one approval, several, or all of a job. ``loom rules``: the rules that were kept."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from loom_cli.commands.approve.approve import REMEMBER, agreed, arguments_of, decide_one, done_line
from loom_cli.errors import DONE, FAILED, guarded, say
from loom_cli.options import By, ConnectionOptions, Json, Sign, connection_options, who
from loom_client.user import user_name

if TYPE_CHECKING:
    from loom_client.settings import Settings


Names = Annotated[
    list[str] | None,
    typer.Argument(help="The job, and approvals of it; may be left out while only one waits.", metavar="[JOB] [ID]..."),
]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("decide", help="Decide what jobs ask: one approval, several, or all of a job.")(decide)
    app.command("rules", help="List the rules that approvers kept for later jobs, or take one back.")(rules)


@guarded
@connection_options()
async def decide(  # noqa: PLR0913, PLR0917 - each is an option of the command
    names: Names = None,
    approve: Annotated[bool, typer.Option("--approve", help="Let the call run.")] = False,
    reject: Annotated[bool, typer.Option("--reject", help="Refuse it; the agent is told and goes on.")] = False,
    edit: Annotated[Path | None, typer.Option(help="Run it with these arguments (JSON).", metavar="FILE")] = None,
    respond: Annotated[str | None, typer.Option(help="Do not run it: this text is its result.", metavar="TEXT")] = None,
    terminate: Annotated[bool, typer.Option("--terminate", help="End the job.")] = False,
    choice: Annotated[
        str | None, typer.Option(help="Another of the answers that a graph's question allows.", metavar="CHOICE")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="All that wait in the job.")] = False,
    remember: Annotated[
        str, typer.Option(help="With --approve: do not ask again for the same.", metavar="no|job|rule")
    ] = "no",
    reason: Annotated[str, typer.Option(help="Why; with --reject the agent reads it.")] = "",
    digest: Annotated[str, typer.Option(help="Only if what is asked has this digest.", metavar="SHA256")] = "",
    by: By = "",
    sign: Sign = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask first.")] = False,
    as_json: Json = False,
    *,
    connection: ConnectionOptions,
) -> int:
    """Decide."""
    from loom_dsl.errors import UserError

    given = {"approve": approve, "reject": reject, "edit": edit is not None, "respond": respond is not None,
             "terminate": terminate, "choice": choice is not None}  # fmt: skip
    chosen = [name for name, is_given in given.items() if is_given]
    if len(chosen) != 1:
        wrong = f"{', '.join('--' + name for name in chosen)}: " if chosen else ""
        raise UserError(f"{wrong}give one of --approve, --reject, --edit, --respond, --terminate and --choice")
    if remember not in REMEMBER:
        raise UserError(f"--remember {remember}: write {' or '.join(REMEMBER)}")
    if remember != "no" and not approve:
        raise UserError(f"--remember {remember} goes with --approve, and not with --{chosen[0]}")
    if respond is not None and (reason or not respond.strip()):
        raise UserError("--respond takes the text that the tool would have given, and no --reason")
    if digest and (every or len(names or []) > 2):
        raise UserError("--digest is that of one approval; name one")
    fields: dict[str, Any] = {"message": respond or reason, "remember": remember, **who(by, sign)}
    if edit is not None:
        fields["edited_arguments"] = arguments_of(edit)
    word = choice or chosen[0]
    given_names = names or []
    single = len(given_names) < 2 or (len(given_names) == 2 and not given_names[0].startswith("ap_"))
    if single and not every:
        return await _one(connection, given_names, word, fields, digest, as_json, yes or word == "reject")
    return await _many(connection.settings(), given_names, every, word, fields, digest, as_json, yes)


async def _one(
    connection: ConnectionOptions,
    names: list[str],
    choice: str,
    fields: dict[str, Any],
    digest: str,
    as_json: bool,
    yes: bool,
) -> int:
    if digest:
        fields = {**fields, "digest": digest}
    return await decide_one(connection, names, choice, fields, as_json, yes)


async def _many(
    settings: "Settings",
    names: list[str],
    every: bool,
    choice: str,
    fields: dict[str, Any],
    digest: str,
    as_json: bool,
    yes: bool,
) -> int:
    """Decide about several. Each is told for itself; one that is refused does not keep the others from counting."""
    from loom_cli.commands.approve.display import show_call
    from loom_cli.commands.approve.find import several, still_open
    from loom_cli.commands.run.prompt import can_ask
    from loom_cli.opening import existing_store, opened
    from loom_dsl.errors import LoomError, UserError
    from loom_dsl.text.confusables import revealed

    with existing_store(settings) as store:
        rows = await several(store, settings, names, every)
        if choice == "terminate":  # one question is enough to end a job, and then nothing of it waits any more
            rows = list({row["job"]: row for row in reversed(rows)}.values())
        if fields.get("edited_arguments") is not None and len(rows) > 1:
            raise UserError(f"--edit is for one approval, and {len(rows)} are meant; name one")
        for row in rows if every and not as_json else ():
            show_call(row, store)
    ask = every and not yes and not as_json and choice != "reject" and can_ask()
    if ask and not await agreed(f"{'this' if len(rows) == 1 else f'all {len(rows)}'}: {choice}?"):
        say("nothing was decided")
        return FAILED
    status = DONE
    async with opened(settings) as loom:
        for row in rows:
            sent = {**fields, "digest": digest or row["arguments_digest"]}
            try:
                said = await loom.job(row["job"]).decide(still_open(row)["id"], choice, **sent)
                told, line = said.model_dump(), done_line(row, choice, said, fields["remember"])
            except LoomError as error:
                status, line = FAILED, ""
                told = {"verdict": getattr(error, "verdict", error.code), "message": error.message}
            if as_json:
                print(json.dumps({"job": row["job"], "approval": row["id"], "choice": choice, **told}), flush=True)
            elif not line:
                say(revealed(f"not taken: {row['id']} of job {row['job']}: {told['message']}"))
            else:
                print(line, flush=True)
    return status


@guarded
@connection_options("store")
async def rules(
    revoke: Annotated[int | None, typer.Option(help="Take this rule back; calls ask again.", metavar="NUMBER")] = None,
    every: Annotated[bool, typer.Option("--all", help="Also those that were taken back.")] = False,
    by: By = "",
    as_json: Json = False,
    *,
    connection: ConnectionOptions,
) -> int:
    """List or revoke rules."""
    from loom_cli.commands.show.tables import show_rules
    from loom_cli.opening import existing_store
    from loom_dsl.errors import NotFoundError

    with existing_store(connection.settings()) as opened_store:
        if revoke is not None:
            name = by or user_name()
            if not await opened_store.write(lambda tx: tx.revoke_rule(revoke, name)):
                raise NotFoundError(f"no rule {revoke} holds; `loom rules` lists those that do")
            print(f"rule {revoke} is taken back: such calls ask again" if not as_json else json.dumps({"id": revoke}))
            return DONE
        found = await opened_store.read(lambda tx: tx.all_rules(revoked=every))
    if as_json:
        for rule in found:
            print(json.dumps(asdict(rule)))
    else:
        show_rules(found)
    return DONE
