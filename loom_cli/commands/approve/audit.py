"""``loom audit``: the trail of who was asked and who decided, for those who must be able to rely on it."""

import json
from dataclasses import asdict, replace
from typing import Annotated

import typer

from loom_cli.errors import DONE, FAILED, guarded, say
from loom_cli.options import ConnectionOptions, Json, Keys, connection_options, named_by


def register(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(help="Who was asked and who decided.", no_args_is_help=True, rich_markup_mode=None)
    group.command("verify", help="Check that the trail is as it was written; 1 when it is not.")(verify)
    group.command("export", help="Print the trail, one JSON object a line.")(export)
    app.add_typer(group, name="audit")


@guarded
@connection_options("store")
async def verify(
    head: Annotated[
        str, typer.Option(help="A hash that was the last one; the trail must still have it.", metavar="HASH")
    ] = "",
    approver_keys: Keys = None,
    as_json: Json = False,
    *,
    connection: ConnectionOptions,
) -> int:
    """Verify."""
    from activities.jobs.signatures import keys_of
    from loom_cli.opening import existing_store
    from loom_cli.render.text import plural
    from loom_client.edited_arguments import evidence
    from loom_dsl.approvals.decision import is_digest
    from loom_dsl.errors import UserError

    if head and not is_digest(head):
        raise UserError(f"--head {head[:80]!r} is not a hash; give 64 hexadecimal digits, as this command prints them")
    keys = keys_of(approver_keys, {}, named_by("--approver-keys", approver_keys))
    with existing_store(connection.settings()) as opened_store:
        report = await opened_store.read(lambda tx: tx.verify_audit(head))
        entries = [] if keys is None else await opened_store.read(lambda tx: tx.audit_entries())
    signed = dict(evidence(entries, keys.read())) if keys is not None and not report.problem else {}
    wrong = [f"entry {number}: {why}" for number, why in signed.items() if why]
    report = replace(report, problem=report.problem or "; ".join(wrong))
    if as_json:
        print(json.dumps({**asdict(report), **({} if keys is None else {"signatures": len(signed)})}))
    elif not report.problem:
        proven = "" if keys is None else f", {plural(len(signed), 'signature', 'signatures')} of those keys"
        print(f"{plural(report.entries, 'entry', 'entries')}, none changed{proven}; the last hash is {report.head}")
    if report.problem and not as_json:
        say(f"the audit trail was changed: {report.problem}")
    return FAILED if report.problem else DONE


@guarded
@connection_options("store")
async def export(
    job: Annotated[str | None, typer.Option(help="Only what concerns this job.", metavar="JOB")] = None,
    after: Annotated[int, typer.Option(min=0, help="Only entries after this number.", metavar="NUMBER")] = 0,
    *,
    connection: ConnectionOptions,
) -> int:
    """Export."""
    from loom_cli.opening import existing_store

    with existing_store(connection.settings()) as opened_store:
        entries = await opened_store.read(lambda tx: tx.audit_entries(job, after))
    for entry in entries:
        print(json.dumps(asdict(entry), ensure_ascii=False))
    return DONE
