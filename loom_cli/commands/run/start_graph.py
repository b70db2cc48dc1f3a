"""Starting a graph's job from the command line, and ``loom event``."""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from loom_cli.commands.control.steer import tell_answer
from loom_cli.errors import guarded, say_findings
from loom_cli.options import By, ConnectionOptions, JobName, Json, connection_options
from loom_client.user import user_name
from loom_dsl.text.canonical import read_json, read_json_or_text

if TYPE_CHECKING:
    from loom_client.client import Loom
    from loom_dsl.documents.document import Document
    from loom_dsl.graph.plan import Plan
    from loom_dsl.graph.state import InputField


MAX_FILE = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class GraphRequest:
    """What `loom run` was told about a graph.

    Attributes:
        values: ``name=value`` texts of ``--input``.
        file: A file with input values, or None.
    """

    graph: Path
    values: Sequence[str] = ()
    file: Path | None = None
    workdir: Path | None = None
    job: str | None = None
    tools: tuple[str, ...] = ()
    document: "Document | None" = None
    """What is in the file, where it was read already."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("event", help="Send an event to the node of a graph's job that waits for it.")(event)


def read_once(path: Path) -> "Document | None":
    """Read the file that is to be run; None where it cannot be read: reading it as an agent's says what is wrong."""
    from loom_dsl.documents.document import load_yaml
    from loom_dsl.errors import DocumentError

    try:
        return load_yaml(path.read_bytes(), str(path))
    except (OSError, DocumentError):
        return None


def is_graph(document: "Document | None") -> bool:
    """Whether a document is a graph's. One that is none of Loom's is not."""
    from loom_dsl.documents.document import of_kind
    from loom_dsl.errors import DocumentError

    try:
        return document is not None and bool(of_kind(document).data["kind"] == "graph")
    except DocumentError:
        return False


def needed(
    agent: Path, document: "Document | None", task: str | None, values: Sequence[str] | None, file: Path | None
) -> str:
    """Give an agent's task.

    Raises:
        DocumentError: The file is no document at all, so it may as well have been meant as a graph.
        NotFoundError: It cannot be read.
        UserError: There is no task, or there is an input, which only graphs take.
    """
    from loom_cli.project.files import near_file, read_document
    from loom_dsl.documents.document import load_yaml, of_kind
    from loom_dsl.errors import NotFoundError, UserError

    if task is None and agent.is_file():
        of_kind(document or load_yaml(read_document(agent), str(agent)))

    if not agent.exists() and (task is None or values or file is not None):
        hint = near_file(agent) or "give an agent's or a graph's, or begin one with `loom new`"
        raise NotFoundError(f"there is no file {agent}; {hint}")
    if values or file is not None:
        raise UserError("--input and --input-file are for graphs; say what the agent is to do as TASK")
    if task is None:
        raise UserError("say what the agent is to do: loom run FILE.yaml TASK")
    return task


def refuse_for_graphs(**given: object) -> None:
    """Refuse what only agents take.

    Raises:
        UserError: One of these is given.
    """
    from loom_dsl.errors import UserError

    told = [name for name, value in given.items() if value is not None]
    if told == ["task"]:
        raise UserError("a graph takes no task; give the values of its `input` with --input NAME=VALUE")
    if told:
        names = ", ".join(f"--{name.replace('_', '-')}" for name in told if name != "task")
        raise UserError(f"{names}: this is for agents, and the file is a graph's")


def load_graph(request: GraphRequest) -> "tuple[Plan, dict[str, Any]]":
    """Compile the graph, say what is doubtful about it, and read its input.

    Raises:
        UserError: Something is wrong with one of them; says what, and where.
    """
    from loom_client.start.submission import plan_of
    from loom_dsl.graph.graph import checked_input

    plan = plan_of(request.document or request.graph, lambda found: say_findings([found]))
    body = plan.bodies[plan.root]
    given = _read_values(request.file) if request.file is not None else {}
    for text in request.values:
        name, value = _named(text)
        given[name] = _typed(name, value, body.input.get(name))
    return plan, checked_input(plan.root, body, given)


async def start_graph(loom: "Loom", request: GraphRequest, plan: "Plan", given: Mapping[str, Any]) -> str:
    """Start the job, or find it when its id has been started before; its id.

    Raises:
        UserError: It cannot be started.
    """
    from loom_cli.commands.run.start_agent import chosen_id, told_of_other
    from loom_dsl.errors import JobExists

    name = await chosen_id(loom.store, request.job, "result")
    try:
        await loom.start_graph(plan, input=given, workdir=request.workdir, job=name)
    except JobExists as error:
        raise told_of_other(error, name) from None
    return name


@guarded
@connection_options()
async def event(
    job: JobName,
    name: Annotated[str, typer.Argument(help="The event's name, as the node has it.", metavar="NAME")],
    key: Annotated[str | None, typer.Option(help="For a node that waits for this key; JSON, or text.")] = None,
    data: Annotated[
        str | None, typer.Option(help="What the node gives as its result; JSON, or - for standard input.")
    ] = None,
    by: By = "",
    as_json: Json = False,
    *,
    connection: ConnectionOptions,
) -> int:
    """Send an event."""
    from loom_cli.opening import check_going, opened

    value = None if data is None else _json("--data", sys.stdin.read() if data == "-" else data)
    settings = connection.settings()
    await check_going(settings, job, "result")
    async with opened(settings) as loom:
        chosen = None if key is None else read_json_or_text(key)
        said = await loom.graph_job(job).event(name, value, key=chosen, by=by or user_name())
    return tell_answer(job, said, f"job {job}: {said.message or said.verdict}", as_json)


def _named(text: str) -> tuple[str, str]:
    from loom_dsl.errors import UserError

    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise UserError(f"--input {text}: write name=value, such as --input pr=7")
    return name.strip(), value


def _typed(name: str, text: str, field: "InputField | None") -> Any:
    """Read a value as the type that the graph declares: text as it is, everything else as JSON."""
    from loom_dsl.errors import UserError
    from loom_dsl.graph.graph import TYPE_NAMES

    if field is None or field.type == "any":
        return read_json_or_text(text)
    if field.type == "str":
        return text
    try:
        return read_json(text)
    except ValueError:
        form = {"list": ", in JSON: '[1, \"two\"]'", "dict": ", in JSON: '{\"a\": 1}'"}.get(field.type, "")
        shown = json.dumps(text[:60], ensure_ascii=False)
        raise UserError(f"--input {name}: `{name}` is {shown}, and must be {TYPE_NAMES[field.type]}{form}") from None


def _json(option: str, text: str) -> Any:
    from loom_dsl.errors import UserError

    try:
        return read_json(text)
    except ValueError as error:
        raise UserError(f"{option} is not JSON ({error}); text stands in quotes: '\"text\"'") from None


def _read_values(path: Path) -> dict[str, Any]:
    from loom_dsl.documents.document import load_yaml
    from loom_dsl.errors import NotFoundError, UserError

    try:
        with path.open("rb") as file:
            raw = file.read(MAX_FILE + 1)
    except OSError as error:
        raise NotFoundError(f"--input-file {path} cannot be read: {error.strerror or error}") from None
    if len(raw) > MAX_FILE:
        raise UserError(f"--input-file {path} is larger than {MAX_FILE // 1024 // 1024} MiB")
    return dict(load_yaml(raw, str(path)).data)
