"""Opening the store and the server for a command, and finding what a user names."""

import os
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from loom_cli.errors import say
from loom_client.server.liveness import LOST
from loom_client.settings import Settings
from loom_client.user import user_name
from loom_dsl.errors import ConflictError, NotFoundError
from loom_store.files import tell_bus_errors
from loom_store.store import Store

if TYPE_CHECKING:
    from loom_client.client import Loom
    from loom_dsl.permissions.roles import Right, Roles


MAX_NAMES = 500
CONNECT_SECONDS, SERVER_SECONDS = 1.0, 4.0
"""A list waits at most so long for the server; without an answer it shows what the store has."""


@asynccontextmanager
async def opened(settings: Settings, *, create: bool = False, patient: bool = False) -> "AsyncIterator[Loom]":
    """Connect to the store and to the server.

    Args:
        settings: Where they are.
        create: Make the store when there is none.
        patient: Wait for a server that does not answer, as whoever waits for a job does.

    Raises:
        ConfigurationError: No server answers, or the namespace does not exist there.
        LoomError: The store cannot be used.
    """
    from loom_client.client import Loom  # only here: lists need the store alone, and are quick without the rest
    from loom_client.connection import temporal
    from loom_client.server.reconnect import tell_outages

    tell_outages(say)
    with Store.open(settings.store_path(), create=create) as store:
        _tell_bus_errors(store)
        yield Loom(await temporal(settings, store, patient=patient), store, settings)


@asynccontextmanager
async def opened_for(settings: Settings, job: str) -> "AsyncIterator[tuple[Loom, dict[str, Any]]]":
    """Open what it takes to follow a job: of one that has ended, the store alone; else a server that may yet come.

    Args:
        settings: Where they are.
        job: The job's id.

    Raises:
        NotFoundError: There is no such job.
        ConfigurationError: The server does not let us in, or the namespace does not exist there.
        LoomError: The store cannot be used.
    """
    with existing_store(settings) as store:
        row = await find_job(store, job)
        if row["ended_at"] and row["status"] != LOST:
            from loom_client.client import Loom
            from loom_client.connection import offline

            yield Loom(await offline(settings, store), store, settings), row
            return
    async with opened(settings, patient=True) as loom:
        yield loom, row


def existing_store(settings: Settings) -> Store:
    """Open the store alone: what lists show needs no server.

    Raises:
        LoomError: There is none, or it cannot be used.
    """
    store = Store.open(settings.store_path(), create=False)
    _tell_bus_errors(store)
    return store


def _tell_bus_errors(store: Store) -> None:
    if store.path is not None:
        tell_bus_errors(store.path)


async def reconciled(store: Store, settings: Settings, rows: Sequence[Mapping[str, Any]]) -> bool | None:
    """Look on the server for the jobs that only it can tell of, and write down what became of them.

    Args:
        store: Where the jobs are.
        settings: The server; where it does not answer at once, nothing is looked up.
        rows: The jobs.

    Returns:
        Whether anything may have changed; None: the server does not answer, so what the store has may be old.
    """
    import asyncio

    from loom_client.server.liveness import in_doubt
    from loom_dsl.errors import ConfigurationError

    doubtful = [row for row in rows if in_doubt(row)]
    if not doubtful:
        return False if all(row["ended_at"] for row in rows) or await _is_there(settings.address) else None
    from temporalio.service import RPCError

    from loom_client.connection import temporal
    from loom_client.server.reconcile import reconcile

    try:
        async with asyncio.timeout(SERVER_SECONDS):
            for namespace in {row["namespace"] for row in doubtful}:
                quick = min(settings.connect_seconds, CONNECT_SECONDS)
                there = settings.model_copy(update={"namespace": namespace, "connect_seconds": quick})
                await reconcile(await temporal(there, store), store, doubtful)
    except (ConfigurationError, RPCError, TimeoutError):
        return None
    return True


async def _is_there(address: str) -> bool:
    """Whether anything takes a connection at ``host:port``: much quicker than to ask it, and as telling where not."""
    import asyncio

    host, _, port = address.rpartition(":")
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            _, writer = await asyncio.open_connection(host.strip("[]"), int(port))
    except (OSError, ValueError, TimeoutError):
        return False
    writer.close()
    return True


async def find_job(store: Store, name: str) -> dict[str, Any]:
    """Give a job's row.

    Raises:
        NotFoundError: There is no such job; names the near ones.
    """
    row = await store.read(lambda tx: tx.job(name))
    if row is not None:
        return row
    known = [found["job"] for found in await store.read(lambda tx: tx.jobs(limit=MAX_NAMES))]
    raise NotFoundError(f"there is no job {name!r} in the store {store.place}; {near(name, known, 'jobs')}")


async def check_going(settings: Settings, name: str, what: str) -> None:
    """Make sure that a job goes on, before the server is asked for anything.

    Args:
        settings: Where the store is.
        name: The job's id.
        what: What it gives: an answer, or a result.

    Raises:
        NotFoundError: There is no such job; names the near ones.
        ConflictError: It has ended; says how to get what it gave.
    """
    with existing_store(settings) as store:
        row = await find_job(store, name)
    if row["ended_at"]:
        raise ConflictError(f"job {name} has already ended ({row['status']}); its {what}: `loom result {name}`")


def near(name: str, known: Iterable[str], what: str) -> str:
    """Say which known names are near a wrong one, or which are the latest."""
    import difflib

    names = list(known)
    if not names:
        return f"there are no {what} yet"
    close = difflib.get_close_matches(name, names, 3, 0.6) or [other for other in names if name and name in other][:3]
    if close:
        return f"did you mean {' or '.join(close)}?"
    return f"the latest {what} are {', '.join(names[:3])}"


# Who sits here may do what, where the environment names the deployment's policy and it has roles.
#
# The names are what people say of themselves, so this keeps from mistakes; the gateway's tokens keep out others.


def check_start(what: str) -> None:
    """Refuse to start a job of this agent or graph for whom no role allows it.

    Raises:
        UserError: None does.
    """
    from loom_dsl.errors import UserError
    from loom_dsl.permissions.roles import may_start

    roles, by = _roles(), user_name()
    if roles and not may_start(roles, by, what):
        raise UserError(f"{by} has no role that starts {what}; the deployment's policy (LOOM_POLICY) says who")


def check_right(by: str, right: "Right") -> None:
    """Refuse what no role allows a person.

    Raises:
        UserError: None does.
    """
    from loom_dsl.errors import UserError
    from loom_dsl.permissions.roles import may

    roles = _roles()
    if roles and not may(roles, by, right):
        raise UserError(f"{by} has no role with `{right}: true`; the deployment's policy (LOOM_POLICY) says who may")


def _roles() -> "Roles":
    if not os.environ.get("LOOM_POLICY", "").strip():
        return {}
    from loom_tools.policy_files import deployment_policy

    policy = deployment_policy(os.environ)
    return policy.roles if policy else {}
