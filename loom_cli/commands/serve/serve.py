"""``loom dev``, ``worker`` and ``fake-model``: the commands that stay until they are stopped."""

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from loom_cli.errors import guarded, outcome, say
from loom_cli.options import (
    ConnectionOptions,
    Keys,
    Tools,
    connection_options,
    named_by,
)
from loom_tools.exit import end_process

if TYPE_CHECKING:
    from activities.webhooks.delivery import Links
    from loom_cli.commands.serve.dev import WorkerOptions
    from loom_client.settings import Settings


Root = Annotated[
    Path | None, typer.Option(help="Jobs may only work in directories below this one; the current one by default.")
]
OnApproval = Annotated[
    str,
    typer.Option(help="Told when a job waits for an approval: a command that reads JSON, or a URL.", metavar="CMD|URL"),
]
_SECRET = "Variable whose value is masked everywhere and lent to tools, and may be sent to HOST; may be repeated."
Secrets = Annotated[
    list[str] | None,
    typer.Option("--secret", help=_SECRET, metavar="NAME[@HOST]"),
]

Mcp = Annotated[
    Path | None,
    typer.Option(help="MCP servers whose tools agents may name (LOOM_MCP).", metavar="FILE", envvar="LOOM_MCP"),
]
Webhooks = Annotated[
    Path | None,
    typer.Option(
        help="Addresses that are told of approvals and jobs (LOOM_WEBHOOKS).", metavar="FILE", envvar="LOOM_WEBHOOKS"
    ),
]
Measure = Annotated[
    str,
    typer.Option(
        "--metrics",
        help="Where Prometheus finds the metrics; a port alone is of 127.0.0.1 (LOOM_METRICS).",
        metavar="[HOST:]PORT",
        envvar="LOOM_METRICS",
    ),
]
Grace = Annotated[
    float,
    typer.Option(
        min=0,
        help="How long steps may go on once the worker is told to stop (LOOM_GRACE).",
        metavar="SECONDS",
        envvar="LOOM_GRACE",
    ),
]
MaxActivities = Annotated[int, typer.Option(min=1, help="How many model calls and tools run at once.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("dev", help="Start a Temporal server for development, and a worker.")(dev)
    app.command("worker", help="Do the work of jobs until stopped.")(worker)
    app.command("fake-model", help="Serve a scripted model at an OpenAI-compatible address.")(fake_model)


@guarded
@connection_options("task_queue", "store")
async def dev(  # noqa: PLR0913, PLR0917 - each is an option of the command
    with_worker: Annotated[bool, typer.Option("--worker/--no-worker", help="Also start a worker.")] = True,
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="gRPC port; 0 takes a free one.")] = None,
    ui_port: Annotated[int | None, typer.Option(min=0, max=65535, help="Port of Temporal's web console.")] = None,
    http_port: Annotated[int | None, typer.Option(min=0, max=65535, help="Port of the HTTP API.")] = None,
    db: Annotated[Path | None, typer.Option(help="The server's SQLite file.", metavar="FILE")] = None,
    headless: Annotated[bool, typer.Option("--headless", help="Without the web console.")] = False,
    tools: Tools = None,
    root: Root = None,
    on_approval: OnApproval = "",
    secret: Secrets = None,
    mcp: Mcp = None,
    webhooks: Webhooks = None,
    approver_keys: Keys = None,
    metrics: Measure = "",
    grace: Grace = 25.0,
    *,
    connection: ConnectionOptions,
) -> int:
    """Serve for development."""
    from loom_cli.commands.serve.dev import WorkerOptions, develop
    from loom_cli.dev.server import DevServer

    server = DevServer(port=port, ui_port=ui_port, http_port=http_port, db=db, headless=headless)
    # The address is the server's own, so a LOOM_ADDRESS for another one is not looked at.
    settings = replace(connection, address="127.0.0.1:7233", namespace="default").settings()
    files = (mcp, webhooks, approver_keys)
    options = WorkerOptions(
        tuple(tools or ()), root or Path.cwd(), on_approval, tuple(secret or ()), *files, metrics, grace
    )
    return await develop(server, settings, options if with_worker else None)


@connection_options()
def worker(  # noqa: PLR0913 - each is an option of the command
    *,
    connection: ConnectionOptions,
    root: Root = None,
    tools: Tools = None,
    on_approval: OnApproval = "",
    secret: Secrets = None,
    mcp: Mcp = None,
    webhooks: Webhooks = None,
    approver_keys: Keys = None,
    metrics: Measure = "",
    grace: Grace = 25.0,
    max_activities: MaxActivities = 100,
) -> None:
    """Work."""

    def work() -> int:
        import asyncio

        from loom_cli.commands.serve.dev import WorkerOptions
        from loom_dsl.errors import ConfigurationError

        settings = connection.settings()
        place = (root or Path.cwd()).resolve()
        if not place.is_dir():
            raise ConfigurationError(f"--root {root}: there is no such directory")
        files = (mcp, webhooks, approver_keys)
        options = WorkerOptions(tuple(tools or ()), place, on_approval, tuple(secret or ()), *files, metrics, grace)
        asyncio.run(_serve(settings, options, max_activities))
        return 0

    code = outcome(work)
    # Not the interpreter's own ending, whoever called: a process that ran a worker sometimes aborts in it.
    end_process(code)


async def _serve(settings: "Settings", options: "WorkerOptions", max_activities: int) -> None:
    import asyncio

    from temporalio.runtime import Runtime

    from activities.jobs.signatures import keys_of
    from activities.observe.metrics import exporting
    from loom_cli.commands.serve.dev import tell_of_changes
    from loom_cli.commands.serve.log import log_halt
    from loom_cli.opening import opened
    from loom_client.server.reconnect import tell_of_server
    from loom_client.server.runtime import quiet_runtime
    from loom_store.server.access import access_of
    from loom_tools.mcp.servers import Servers
    from loom_tools.secrets import AllowedSecrets
    from worker import serve

    _check_options(options)
    tools, mcp = options.tools, options.mcp
    telemetry = exporting(options.metrics) if options.metrics else None
    # A wrong file is told before the server is waited for.
    Servers.load(mcp, AllowedSecrets.of(options.secrets, os.environ), named_by("--mcp", mcp))
    links = _links_of(settings, options)
    keys = keys_of(options.keys, os.environ, named_by("--approver-keys", options.keys))
    if os.getcwd() not in sys.path:  # after Loom's own modules are loaded, so that no file here takes their place
        sys.path.insert(0, os.getcwd())
    Runtime.set_default(quiet_runtime(), error_if_already_set=False)
    async with opened(settings, create=True) as loom:
        client = loom.client  # the server answers; what is wrong with it or with the store was said clearly
    access = access_of(settings)
    own = f", tools {', '.join(tools)}" if tools else ""
    telling = [asyncio.create_task(tell_of_changes(tools)), asyncio.create_task(tell_of_server(client))]
    try:
        await serve(
            address=settings.address,
            namespace=settings.namespace,
            task_queue=settings.task_queue,
            store=settings.store_path(),
            root=options.root,
            tools=tools,
            on_approval=options.on_approval,
            secret_names=options.secrets,
            ready=f"worker ready: queue {settings.task_queue}, namespace {settings.namespace} at {settings.address}, "
            f"store {settings.shown_store()}, root {options.root}{own}",
            tls=access.tls,
            api_key=access.api_key,
            mcp=mcp,
            approver_keys=keys,
            max_concurrent_activities=max_activities,
            webhooks=options.webhooks,
            links=links,
            telemetry=telemetry,
            grace=options.grace,
            tell=say,
            heard=log_halt,
        )
    finally:
        for task in telling:
            task.cancel()
    say("worker stopped")


def _check_options(options: "WorkerOptions") -> None:
    """Look at what can be wrong before anything is loaded, and let the log speak as the commands do."""
    from activities.webhooks.notify import check_target
    from loom_cli.commands.serve.log import configure_log
    from loom_dsl.errors import ConfigurationError
    from loom_tools.sandbox.settings import mode_of
    from loom_tools.secrets import parse_secret
    from worker import check_packages

    check_packages()
    mode_of(os.environ)
    configure_log()
    secrets = options.secrets
    missing = [name for name in (parse_secret(text).name for text in secrets) if not os.environ.get(name)]
    if missing:
        raise ConfigurationError(f"--secret {', '.join(missing)}: not set in the environment of this worker")
    check_target(options.on_approval)


def _links_of(settings: "Settings", options: "WorkerOptions") -> "Links":
    """Give what makes the links of messages, where an endpoint of the webhooks' file wants some."""
    from activities.webhooks.delivery import no_links
    from activities.webhooks.sender import Senders

    senders = Senders.load(options.webhooks, os.environ, named_by("--webhooks", options.webhooks))
    if not any(endpoint.links for endpoint in senders.endpoints):
        return no_links
    from loom_gateway.link_issuer import link_maker  # only here: the gateway is no part of a worker

    return link_maker(settings, os.environ)


@guarded
def fake_model(
    script: Annotated[Path, typer.Option(help="What the model says.", metavar="FILE")],
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 0,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
) -> int:
    """Serve a script."""
    from loom_cli.dev.fake_model.server import load_script, serve

    loaded = load_script(script)
    say("the address below is for the worker: OPENAI_BASE_URL=..., with any OPENAI_API_KEY; Ctrl-C ends it")
    serve(loaded, host, port)
    return 0
