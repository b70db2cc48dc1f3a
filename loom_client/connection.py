"""Connecting: a Temporal client and the store, opened together."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import temporalio.service
from temporalio.client import Client
from tenacity import AsyncRetrying, retry_if_exception, stop_after_delay, stop_never, wait_exponential

from loom_client.client import Loom
from loom_client.server.namespace import look_up_namespace
from loom_client.server.reconnect import outages_of
from loom_client.server.runtime import ends_with_interpreter, quiet_runtime
from loom_client.settings import Settings
from loom_dsl.errors import ConfigurationError, ServerAway
from loom_store.server.access import Access, access_of, explain, is_final
from loom_store.server.payloads import data_converter
from loom_store.store import Store

_FAILURES = (RuntimeError, temporalio.service.RPCError)
_NOT_LET_IN = (temporalio.service.RPCStatusCode.PERMISSION_DENIED, temporalio.service.RPCStatusCode.UNAUTHENTICATED)


@asynccontextmanager
async def connect(settings: Settings | None = None, **overrides: Any) -> AsyncIterator[Loom]:
    """Connect to Loom.

    Args:
        settings: Where everything is; from the environment when absent.
        overrides: Single settings, such as ``address="127.0.0.1:7233"``.

    Yields:
        The connection; the store is closed when the block ends.

    Raises:
        ConfigurationError: No server answers, or the namespace does not exist there.
        LoomError: The store cannot be used.
    """
    chosen = (settings or Settings()).model_copy(update=overrides)
    with Store.open(chosen.store_path()) as store:
        yield Loom(await temporal(chosen, store), store, chosen)


async def temporal(settings: Settings, store: Store, *, patient: bool = False) -> Client:
    """Connect to the Temporal server, trying for a few seconds.

    Args:
        settings: Where it is.
        store: Keeps what is too large for it.
        patient: Try until it answers, and tell of it; `connect_seconds` counts only where somebody has set it.

    Raises:
        ConfigurationError: No server answers, it cannot be trusted or does not let us in, or it has no such namespace.
        ServerAway: None answered although this is `patient`, in the time that was set.
    """
    access, outages = access_of(settings), outages_of(settings.address)
    endless = patient and "connect_seconds" not in settings.model_fields_set

    def goes_on(error: BaseException) -> bool:
        again = isinstance(error, _FAILURES) and not is_final(error)
        if again and patient:
            outages.begins()
        return again

    try:
        async for attempt in AsyncRetrying(
            stop=stop_never if endless else stop_after_delay(settings.connect_seconds),
            wait=wait_exponential(multiplier=0.1, max=1),
            retry=retry_if_exception(goes_on),
            reraise=True,
        ):
            with attempt:
                client = await _connected(settings, store, access)
    except _FAILURES as error:
        away = patient and not is_final(error)
        raise (ServerAway if away else ConfigurationError)(explain(settings, error)) from None
    outages.ends()
    return client


async def _connected(settings: Settings, store: Store, access: Access) -> Client:
    client = await Client.connect(
        settings.address,
        namespace=settings.namespace,
        data_converter=data_converter(store),
        tls=access.tls,
        api_key=access.api_key,
        runtime=quiet_runtime(),
    )
    await _check_namespace(ends_with_interpreter(client), settings)
    return client


async def offline(settings: Settings, store: Store) -> Client:
    """Give a client that asks no server as long as nobody asks it: for what the store alone knows."""
    client = await Client.connect(
        settings.address,
        namespace=settings.namespace,
        data_converter=data_converter(store),
        lazy=True,
        runtime=quiet_runtime(),
    )
    return ends_with_interpreter(client)


async def _check_namespace(client: Client, settings: Settings) -> None:
    try:
        await look_up_namespace(client)
    except temporalio.service.RPCError as error:
        if error.status in _NOT_LET_IN:
            raise ConfigurationError(explain(settings, RuntimeError("PermissionDenied"))) from None
        if error.status is not temporalio.service.RPCStatusCode.NOT_FOUND:
            raise
        raise ConfigurationError(
            f"the Temporal server at {client.service_client.config.target_host} has no namespace "
            f"{client.namespace!r}; create it with `temporal operator namespace create -n {client.namespace}`, "
            "or set LOOM_NAMESPACE (--namespace)"
        ) from None
