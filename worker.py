"""The composition root of the serving side: what `loom worker` starts, and ``python worker.py``.

Imports whatever serves; of the calling side nothing: only the command line imports it.
"""

import asyncio
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from pydantic import Field
from temporalio.client import Client
from temporalio.runtime import Runtime as Telemetry
from temporalio.service import RPCError, TLSConfig
from temporalio.worker import UnsandboxedWorkflowRunner, Worker
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

import activities
import workflows
from activities.interceptor import Failures
from activities.jobs.signatures import keys_of
from activities.lifecycle.deaths import DEATH_RULES, DeathRules
from activities.lifecycle.presence import Attendance, present
from activities.lifecycle.shutdown import GRACE, UnderWay
from activities.observe.metrics import Metrics, exporting
from activities.registration import activities_of
from activities.runtime import Runtime
from activities.webhooks.delivery import Deliveries, Links, no_links
from activities.webhooks.relay import Relay
from activities.webhooks.sender import Senders
from loom_dsl.errors import ConfigurationError, LoomError
from loom_dsl.queues import job_queue, presence_queue, webhook_queue
from loom_store.files import tell_bus_errors
from loom_store.location import passwords_in
from loom_store.server.access import access_of, explain
from loom_store.server.payloads import data_converter
from loom_store.server.settings import ConnectionSettings, read_settings
from loom_store.store import Store
from loom_tools.approver_keys import ApproverKeys
from loom_tools.exit import end_process
from loom_tools.mcp.servers import Servers
from loom_tools.registry import ToolRegistry
from loom_tools.sandbox.settings import mode_of
from loom_tools.secrets import AllowedSecrets
from workflows.graph import GraphWorkflow
from workflows.webhooks import WebhookWorkflow

PASSED_THROUGH = ("loom_dsl", "pydantic", "pydantic_core", "annotated_types", "typing_extensions")
BEAT = timedelta(milliseconds=500)
MAX_DELIVERIES = 20
"""Messages that are sent to an endpoint at once."""
LOCKED_UP_SECONDS = 60.0
"""Seconds of one step after which a workflow counts as locked up."""


def check_packages() -> None:
    """Make sure that `workflows` and `activities` are ours: other distributions own these names too.

    Raises:
        ConfigurationError: Another package shadows one of them.
    """
    home = Path(__file__).resolve().parent
    for package in (workflows, activities):
        place = Path(str(package.__file__)).resolve().parent
        if place.parent != home:
            raise ConfigurationError(
                f"the package `{package.__name__}` is taken from {place}, which is not Loom's; "
                "install Loom into an environment of its own, or start the worker from another directory"
            )


def patient(worker: Worker) -> Worker:
    """Let a machine be busy: give a workflow `LOCKED_UP_SECONDS` for a step before it counts as locked up.

    The SDK gives it two, and throws an exception into its thread, wherever that is. On a busy machine it may be in the
    loop's own callbacks; then the run can never be put away, the job goes on in no worker while this one lives, and
    this one never ends. The SDK has no option for it but the debugger's, which has all workflows wait for each other.
    """
    inner = getattr(worker, "_workflow_worker", None)
    if inner is not None:
        inner._deadlock_timeout_seconds = LOCKED_UP_SECONDS
    return worker


def make_worker(
    client: Client,
    runtime: Runtime,
    task_queue: str,
    *,
    metrics: Metrics | None = None,
    sandboxed: bool = False,
    max_cached_workflows: int = 1000,
    max_concurrent_activities: int = 100,
    grace: float = 10.0,
) -> Worker:
    """Build a worker that serves ``loom.graph`` and every activity.

    Args:
        client: Connected with `loom_store.server.payloads.data_converter`.
        runtime: What the activities work with.
        task_queue: The base name of the queue that work is taken from; only jobs of the runtime's store are on it.
        metrics: Where it is counted what activities do.
        sandboxed: Whether workflow code runs in Temporal's sandbox. The only workflow here is Loom's own, which the
            tests run in the sandbox and the import contracts keep from I/O; without it a turn costs a sixth less.
        max_cached_workflows: Jobs kept in memory; 0 replays at every task, which tests use.
        max_concurrent_activities: Activities at once.
        grace: Seconds that activities go on for once it is shut down.
    """
    restrictions = SandboxRestrictions.default.with_passthrough_modules(*PASSED_THROUGH)
    worker = Worker(
        client,
        task_queue=job_queue(task_queue, runtime.store.id),
        workflows=[GraphWorkflow],
        activities=list(activities_of(runtime, metrics).values()),
        interceptors=[Failures(runtime.jobs, runtime.steps, runtime.delays), UnderWay(runtime.stopping)],
        workflow_runner=SandboxedWorkflowRunner(restrictions) if sandboxed else UnsandboxedWorkflowRunner(),
        max_cached_workflows=max_cached_workflows,
        max_concurrent_activities=max_concurrent_activities,
        # An abort travels with a heartbeat's answer; the SDK's default throttle of 30 s would hold it back.
        max_heartbeat_throttle_interval=BEAT,
        default_heartbeat_throttle_interval=BEAT,
        # A killed worker's tasks come back after this, instead of after 10 s.
        sticky_queue_schedule_to_start_timeout=timedelta(seconds=1),
        graceful_shutdown_timeout=timedelta(seconds=grace),
    )
    return patient(worker)


@asynccontextmanager
async def delivering(
    client: Client, store: Store, task_queue: str, senders: Senders, secrets: Mapping[str, str], links: Links = no_links
) -> AsyncIterator[None]:
    """Tell webhooks while this is open, apart from the work of jobs: on a queue and with activities of its own.

    Args:
        client: Of the worker's namespace.
        store: Where messages wait.
        task_queue: The base name of the worker's queue.
        senders: Who is told; what waits for others is left to workers that have them, and told of in the log.
        secrets: Names and values that no message has.
        links: Makes the links of messages that ask somebody.
    """
    relay = Relay(client, store, task_queue, tuple(senders.by_name))
    store.subscribe(senders.endpoints, relay.wake)
    deliveries = Deliveries(store, senders, secrets, links)
    workers = [_deliverer(client, webhook_queue(task_queue, store.id, name), deliveries) for name in senders.by_name]
    async with AsyncExitStack() as stack:
        for made in workers:
            await stack.enter_async_context(made)
        relaying = asyncio.create_task(relay.run())
        try:
            yield
        finally:
            relaying.cancel()
            store.subscribe((), lambda job, endpoint: None)
            await asyncio.gather(*(made.shutdown() for made in workers))  # together: each waits for what it sends


def _deliverer(client: Client, task_queue: str, deliveries: Deliveries) -> Worker:
    """Build the worker that tells one endpoint."""
    worker = Worker(
        client,
        task_queue=task_queue,
        workflows=[WebhookWorkflow],
        activities=deliveries.all,
        workflow_runner=UnsandboxedWorkflowRunner(),
        max_concurrent_activities=MAX_DELIVERIES,
        max_concurrent_workflow_task_polls=2,
        max_concurrent_activity_task_polls=2,
        # The SDK's default would send a beat in four seconds, of the five after which another worker takes over.
        max_heartbeat_throttle_interval=BEAT,
        default_heartbeat_throttle_interval=BEAT,
        sticky_queue_schedule_to_start_timeout=timedelta(seconds=1),
        graceful_shutdown_timeout=timedelta(seconds=2),
    )
    return patient(worker)


def _presence(client: Client, store: Store, task_queue: str) -> Worker:
    """Build what tells, to whoever knows the base name alone, that here is a worker, and of which store."""
    return Worker(
        client,
        task_queue=presence_queue(task_queue),
        activities=[present],
        identity=f"{client.identity}#{store.id}",
        max_concurrent_activities=1,
        max_concurrent_activity_task_polls=1,
    )


async def serve(  # noqa: PLR0913 - the settings of a worker
    *,
    address: str,
    namespace: str,
    task_queue: str,
    store: str | Path,
    root: Path,
    tools: Sequence[str] = (),
    on_approval: str = "",
    secret_names: Sequence[str] = (),
    ready: str = "",
    tls: TLSConfig | bool = False,
    api_key: str | None = None,
    mcp: Path | None = None,
    approver_keys: ApproverKeys | None = None,
    deaths: DeathRules = DEATH_RULES,
    max_concurrent_activities: int = 100,
    webhooks: Path | None = None,
    links: Links = no_links,
    telemetry: Telemetry | None = None,
    grace: float = GRACE,
    tell: Callable[[str], None] = lambda _: None,
    heard: Callable[[Mapping[str, Any]], None] | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT, then let steps go on for `grace` seconds; a second signal ends them at once.

    What is left of them is told in a line. Where something does not end, the process does. `heard` takes each event of
    the jobs once it is stored, on the store's thread.

    Raises:
        ConfigurationError: A setting is wrong.
        StoreLost: The store's file was deleted or replaced meanwhile.
        LoomError: The store or a tool module cannot be used.
    """
    check_packages()
    registry = ToolRegistry.load(modules=list(tools))
    with Store.open(store) as opened:
        tell_bus_errors(opened.path)
        client = await Client.connect(
            address,
            namespace=namespace,
            data_converter=data_converter(opened),
            tls=tls,
            api_key=api_key,
            runtime=telemetry,
        )
        metrics = Metrics(telemetry.metric_meter, namespace, task_queue) if telemetry is not None else None
        if metrics is not None:
            opened.listen(metrics.heard)
        if heard is not None:
            opened.listen(heard)
        allowed = AllowedSecrets.of(secret_names, os.environ)
        senders = Senders.load(webhooks, os.environ)
        secrets = _masked(allowed, senders, store)
        servers = Servers.load(mcp, allowed)
        stop, at_once = _stop_asked()
        about = {
            **_own_facts(opened, namespace, task_queue),
            "tools": list(tools),
            "root": str(root),
            "secrets": sorted(allowed.values),
            "mcp": sorted(servers.settings),
            "webhooks": sorted(senders.by_name),
        }
        attendance = Attendance(opened, about, stop)
        async with (
            Runtime(
                opened,
                registry,
                root,
                on_approval,
                secrets,
                allowed=allowed,
                mcp=servers,
                approver_keys=approver_keys,
                deaths=deaths,
            ) as runtime,
            attendance.kept(),  # before it asks for work, and until all that runs has ended
            delivering(client, opened, task_queue, senders, secrets, links),
            make_worker(
                client,
                runtime,
                task_queue,
                metrics=metrics,
                max_concurrent_activities=max_concurrent_activities,
                grace=grace,
            ) as worker,
            patient(_presence(client, opened, task_queue)),
        ):
            if ready:
                print(ready, flush=True)
            telling = asyncio.create_task(servers.tell(tell))
            await stop.wait()
            telling.cancel()
            if attendance.lost is not None:
                at_once.set()  # nothing that comes of what runs could be written down
            elif going := runtime.stopping.going(grace):
                tell(going)
            ended = await runtime.stopping.run(worker.shutdown, grace, at_once)
            if left := runtime.stopping.left():
                tell(left)
            if not ended:
                end_process(0)
        attendance.check()


def _own_facts(store: Store, namespace: str, task_queue: str) -> dict[str, Any]:
    """Give what a worker tells of itself that nobody chose for it."""
    try:
        release = version("loom-dsl")
    except PackageNotFoundError:
        release = ""
    place = {"queue": task_queue, "namespace": namespace, "store": store.place}
    return {**place, "host": socket.gethostname(), "pid": os.getpid(), "release": release}


def _masked(allowed: AllowedSecrets, senders: Senders, store: str | Path) -> dict[str, str]:
    """Give what is masked everywhere: the secrets of tools and webhooks, keys of models, the store's password."""
    keys = {name: value for name, value in os.environ.items() if name.endswith("_API_KEY") and value}
    own = {f"LOOM_STORE_{number}": value for number, value in enumerate(passwords_in(store))}
    return {**own, **allowed.values, **keys, **senders.secrets}


def _stop_asked() -> tuple[asyncio.Event, asyncio.Event]:
    """Give the events of a signal to stop, and of a second one, which is to end everything at once."""
    stop, at_once = asyncio.Event(), asyncio.Event()

    def stopped() -> None:
        (at_once if stop.is_set() else stop).set()

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped)
    return stop, at_once


class WorkerSettings(ConnectionSettings):
    """What `python worker.py` serves with: the variables that `loom worker` reads too. It takes no options."""

    mcp: Path | None = None
    """File of the MCP servers whose tools agents may name."""
    webhooks: Path | None = None
    """File of the addresses that are told of approvals and jobs."""
    approver_keys: Path | None = None
    """File of the public keys of those who sign decisions."""
    metrics: str = ""
    """Where Prometheus finds the metrics, ``[HOST:]PORT``; empty: nowhere."""
    grace: float = Field(default=GRACE, ge=0)
    """Seconds that steps may go on for once the worker is told to stop."""


async def serve_from_environment() -> None:
    """Serve with the settings of the environment, for jobs below the current directory.

    Raises:
        LoomError: A setting is wrong, or no server answers.
    """
    settings = read_settings(WorkerSettings)
    mode_of(os.environ)
    if any(endpoint.links for endpoint in Senders.load(settings.webhooks, os.environ).endpoints):
        raise ConfigurationError("the webhooks' `links` come from the gateway's settings; start `loom worker` for them")
    keys, access, root = keys_of(settings.approver_keys, os.environ), access_of(settings), Path.cwd()
    telemetry = exporting(settings.metrics) if settings.metrics else None
    try:
        await Client.connect(settings.address, namespace=settings.namespace, tls=access.tls, api_key=access.api_key)
    except (RuntimeError, RPCError) as error:
        raise ConfigurationError(explain(settings, error)) from None
    await serve(
        address=settings.address,
        namespace=settings.namespace,
        task_queue=settings.task_queue,
        store=settings.store_path(),
        root=root,
        ready=f"worker ready: queue {settings.task_queue}, namespace {settings.namespace} at {settings.address}, "
        f"store {settings.shown_store()}, root {root}",
        tls=access.tls,
        api_key=access.api_key,
        mcp=settings.mcp,
        approver_keys=keys,
        webhooks=settings.webhooks,
        telemetry=telemetry,
        grace=settings.grace,
        tell=_say,
    )


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def main() -> None:
    """Be the worker, and end the process."""
    code = 0
    if sys.argv[1:]:
        _say("error: python worker.py takes no options, its settings are those of the environment; see `loom worker`")
        end_process(2)
    try:
        asyncio.run(serve_from_environment())
    except LoomError as error:
        _say(f"error: {error.message}")
        code = error.exit_code
    end_process(code)


if __name__ == "__main__":
    main()
