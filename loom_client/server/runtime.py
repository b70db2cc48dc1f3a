"""What clients of this process run on: the SDK's threads, which are ended before the interpreter is.

The SDK answers each call from a thread of its own, which takes the interpreter's lock to do so. When the interpreter
ends meanwhile, which is likely in a short program, that thread aborts the process or waits for ever, and the process
with it (https://github.com/temporalio/sdk-python/issues/300). Nothing of the SDK ends its threads but the end of the
last object that refers to them. So what refers to them lets go at the beginning of the interpreter's end, as long as
these threads can still take the lock: they finish what they do, and are waited for.
"""

import atexit
import os
import weakref

from temporalio.client import Client
from temporalio.runtime import LoggingConfig, Runtime, TelemetryConfig
from temporalio.service import ServiceClient

_current: list[Runtime] = []
_clients: "weakref.WeakSet[ServiceClient]" = weakref.WeakSet()


def quiet_runtime() -> Runtime:
    """Give what clients of this process run on: the SDK's own, without its line for every try of every call."""
    if not _current:
        # A try that failed is told by the SDK on standard output, where programs read what we print.
        targets = ("temporalio_common", "temporalio_sdk_core", "temporalio_sdk", "temporal_sdk_bridge")
        wanted = ",".join(["error", "temporalio_client=off", *(f"{target}=warn" for target in targets)])
        _current.append(Runtime(telemetry=TelemetryConfig(logging=LoggingConfig(wanted))))
        atexit.register(_end, os.getpid())
    return _current[0]


def ends_with_interpreter(client: Client) -> Client:
    """Let a client that runs on `quiet_runtime` go when the interpreter ends; whoever still has it cannot call then."""
    _clients.add(client.service_client)
    return client


def _end(process: int) -> None:
    """End the SDK's threads, unless they are those of a process that this one was forked from."""
    if os.getpid() != process:
        return
    for service in list(_clients):
        # A traceback, or a global name, may keep any of these: so each lets go of what is the SDK's native part.
        bridge = getattr(service, "_bridge_client", None)
        if bridge is not None:
            _let_go(bridge, "_ref", "_runtime")
        _let_go(service, "_bridge_client", "_runtime")
        service.config.runtime = None
    _clients.clear()
    for runtime in _current:
        _let_go(runtime._core_runtime, "_ref")
    _current.clear()


def _let_go(holder: object, *names: str) -> None:
    for name in names:
        if hasattr(holder, name):
            setattr(holder, name, None)
