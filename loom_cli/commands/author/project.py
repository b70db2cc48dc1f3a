"""Commands about a project's files, its store and its machine: init, validate, prune, doctor."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from loom_cli.errors import DONE, FAILED, MISTAKE, guarded
from loom_cli.options import ConnectionOptions, Json, Tools, connection_options

if TYPE_CHECKING:
    from loom_cli.doctor.check import Check
    from loom_cli.project.retention import Pruning
    from loom_cli.render.terminal import Terminal
    from loom_dsl.errors import Diagnostic


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command("init")(guarded(init))
    app.command("validate")(guarded(validate))
    app.command("prune")(guarded(prune))
    app.command("doctor")(guarded(doctor))


def init(
    directory: Annotated[
        Path, typer.Argument(help="Where; it is made when it is not there.", metavar="[DIR]")
    ] = Path(),
) -> int:
    """Begin a project: an agent, a tool, and a scripted model to try them with."""
    from loom_cli.project.templates import begin

    for place in begin(directory):
        print(place)
    where = "" if directory == Path() else f"in {directory}, "
    print(f"Next: {where}follow README.md, or ask `loom doctor` whether this machine is ready.")
    return DONE


def validate(
    files: Annotated[
        list[Path],
        typer.Argument(help="Agents, graphs, scripts of the fake model; or directories of them.", metavar="FILE…"),
    ],
    tools: Tools = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print SARIF 2.1.0, which editors, code hosts and programs read.")
    ] = False,
) -> int:
    """Check documents and tell everything that is wrong with them; 2 when something is (warnings are not)."""
    import os

    from loom_cli.project.validate import check_file, documents_among, load_tools
    from loom_cli.render.terminal import terminal_for
    from loom_dsl.text.printable import visible

    paper = terminal_for()
    known, findings = load_tools(tools or [])
    if not json:
        _print_findings(paper, findings)
    for file in documents_among(files):
        name, found = check_file(file, known, os.environ)
        findings += found
        if not json:
            _print_findings(paper, found)
            if all(one.severity == "note" for one in found):
                print(paper.styled(visible(f"{file}: ok  {name}"), "green"))
    if json:
        from loom_dsl.authoring.sarif import sarif

        _print_json(sarif(findings))
    elif count := sum(found.severity != "note" for found in findings):
        paper.line(f"{count} {'finding' if count == 1 else 'findings'}", "bold")
    return MISTAKE if any(found.severity == "error" for found in findings) else DONE


def _print_findings(paper: "Terminal", findings: "list[Diagnostic]") -> None:
    from loom_dsl.text.printable import visible

    for found in findings:  # one line each at any width, so that editors and grep can read them
        print(paper.styled(visible(str(found)), "red" if found.severity == "error" else "yellow"))


@connection_options("store", "namespace")
def prune(
    older_than: Annotated[str, typer.Option(help="Age of what goes, since the job ended.", metavar="AGE")] = "30d",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count only.")] = False,
    compact: Annotated[bool, typer.Option("--compact", help="Give the room back to the disk, too.")] = False,
    *,
    connection: ConnectionOptions,
    json: Json = False,
) -> int:
    """Remove jobs that ended long ago from the store, and what only they used."""
    from loom_cli.project.retention import prune as remove
    from loom_cli.render.terminal import terminal_for
    from loom_dsl.errors import UserError
    from loom_dsl.fields import parse_duration

    try:
        age = parse_duration(older_than)
    except ValueError as error:
        raise UserError(f"--older-than {older_than}: {error}") from None
    done = remove(connection.settings().store_path(), age, dry_run=dry_run, compact=compact)
    if json:
        _print_json({"store": done.store, "before": done.before.isoformat(), "dry_run": dry_run, **_fields(done)})
    else:
        _print_pruning(terminal_for(), done, dry_run)
    return DONE


def _fields(done: "Pruning") -> dict[str, int | None]:
    from dataclasses import asdict

    return {**asdict(done.pruned), "file_bytes": done.file_bytes}


def _print_pruning(paper: "Terminal", done: "Pruning", dry_run: bool) -> None:
    from loom_cli.render.text import plural, size

    gone, local = done.pruned, done.before.astimezone()
    verb = "would go" if dry_run else "went"
    entries = "1 entry" if gone.entries == 1 else f"{gone.entries:,} entries"
    batches = "1 batch" if gone.events == 1 else f"{gone.events:,} batches"
    paper.line(f"{done.store}: of what ended before {local:%Y-%m-%d %H:%M} {verb}", hang=2)
    paper.line(f"  {plural(gone.jobs, 'job')}, {plural(gone.sessions, 'session')} with {entries}", hang=2)
    paper.line(f"  {batches} of events, {plural(gone.effects, 'effect')}, {plural(gone.approvals, 'approval')}", hang=2)
    left = "" if done.file_bytes is None else f"; the file has {size(done.file_bytes)}B"
    paper.line(f"  {plural(gone.blobs, 'content')} of {size(gone.blob_bytes)}B{left}")
    if dry_run:
        paper.line("  nothing was removed; leave --dry-run out to remove it", "dim", hang=2)


@connection_options()
def doctor(
    *,
    connection: ConnectionOptions,
    json: Json = False,
) -> int:
    """Look for what is missing or set up wrongly, and say how to mend it; 1 when Loom cannot work like this."""
    from loom_cli.doctor import examine
    from loom_cli.doctor.check import Status
    from loom_cli.render.terminal import terminal_for

    settings = connection.settings()
    paper, checks = terminal_for(), []
    for check in examine(settings):
        checks.append(check)
        if not json:
            _print_check(paper, check)
    failed = sum(check.status is Status.FAIL for check in checks)
    if json:
        _print_json(checks)
    else:
        paper.line(f"{failed} of {len(checks)} checks failed" if failed else "Loom can work here.", "bold")
    return FAILED if failed else DONE


_STYLES = {"ok": "green", "warn": "yellow", "fail": "red"}


def _print_check(paper: "Terminal", check: "Check") -> None:
    paper.line(f"{check.status:<4}  {check.what}: {check.found}", _STYLES[check.status], hang=6)
    if check.fix:
        paper.line(f"      {paper.glyph('→', '->')} {check.fix}", hang=8)
    paper.flush()


def _print_json(value: object) -> None:
    import dataclasses
    import json

    def plain(item: object) -> object:
        assert dataclasses.is_dataclass(item)
        assert not isinstance(item, type)
        return dataclasses.asdict(item)

    print(json.dumps(value, default=plain, indent=2, ensure_ascii=False))
