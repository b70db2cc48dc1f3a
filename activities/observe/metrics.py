"""Metrics of a worker: those of Temporal's SDK, and Loom's own beside them, at an address that Prometheus reads."""

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from temporalio import activity
from temporalio.common import MetricMeter
from temporalio.runtime import PrometheusConfig, TelemetryConfig
from temporalio.runtime import Runtime as Telemetry

from activities.record.job_store import JobStore
from loom_dsl.errors import ConfigurationError, LoomError
from loom_dsl.observe.metrics import (
    ASKED,
    BUCKETS,
    COST,
    DECIDED,
    METRICS,
    STAGE_SECONDS,
    STAGES,
    TOKENS,
    TOOL_CALLS,
    UNKNOWN,
    Names,
    choice_label,
    stage_outcome,
    tool_label,
)

MODEL_CALLS = frozenset({"loom.model.call", "loom.llm.call", "loom.context.compress"})
STAGE_OF = {f"loom.tool.{stage}": stage for stage in STAGES}
MEASURED = MODEL_CALLS | STAGE_OF.keys()
"""The activities of which something is measured."""
HIGHEST_PORT = 65_535
Work = Callable[[dict[str, Any]], Awaitable[Any]]


def exporting(address: str) -> Telemetry:
    """Serve metrics under `/metrics` until this process ends; what is connected with the answer is counted there.

    Args:
        address: ``HOST:PORT``, or a port of 127.0.0.1.

    Raises:
        ConfigurationError: It is no address, or cannot be listened on.
    """
    wrong = f"--metrics {address} (LOOM_METRICS):"
    host, _, port = address.rpartition(":")
    if not (port.isdecimal() and 0 < int(port) <= HIGHEST_PORT):
        raise ConfigurationError(f"{wrong} write HOST:PORT, or a port of 127.0.0.1, such as 9464")
    try:
        bind = _numeric(host.strip("[]") or "127.0.0.1", int(port))
        prometheus = PrometheusConfig(bind, histogram_bucket_overrides={STAGE_SECONDS: BUCKETS})
        return Telemetry(telemetry=TelemetryConfig(metrics=prometheus))
    except (OSError, ValueError) as error:
        why = str(error).removeprefix("Failed starting Prometheus exporter: ")
        raise ConfigurationError(f"{wrong} cannot listen there: {why}; give another address or port") from None


def _numeric(host: str, port: int) -> str:
    """Look a name up: the SDK takes numbers only."""
    family, *_, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    return f"[{place[0]}]:{port}" if family == socket.AF_INET6 else f"{place[0]}:{port}"


class Metrics:
    """Loom's own metrics of one worker.

    Args:
        meter: Where they are kept.
        namespace: An attribute of each.
        task_queue: Another.
    """

    def __init__(self, meter: MetricMeter, namespace: str, task_queue: str) -> None:
        own = meter.with_additional_attributes({"namespace": namespace, "task_queue": task_queue})
        said = {name: metric.meaning for name, metric in METRICS.items()}
        self._seconds = own.create_histogram_float(STAGE_SECONDS, said[STAGE_SECONDS])
        self._counters = {
            name: own.create_counter(name, said[name]) for name in METRICS if METRICS[name].kind == "counter"
        }
        self._tools, self._models = Names(), Names()

    def heard(self, event: Mapping[str, Any]) -> None:
        """Count what an event of a job says, from whatever thread."""
        if event["t"] == "approval_requested":
            self._counters[ASKED].add(1)
        elif event["t"] == "approval_decided":
            self._counters[DECIDED].add(1, {"choice": choice_label(event.get("choice"))})

    def measured(self, name: str, work: Work, jobs: JobStore) -> Work:
        """Give an activity that does another one's work, and counts it.

        Args:
            name: The activity's, one of `MEASURED`.
            work: What it does.
            jobs: Knows what agents declare.
        """
        inner = self._timed(STAGE_OF[name], work, jobs) if name in STAGE_OF else self._counted(work, jobs)
        return activity.defn(name=name)(inner)

    def _timed(self, stage: str, work: Work, jobs: JobStore) -> Work:
        async def timed(envelope: dict[str, Any]) -> Any:
            # A stretch is a local activity itself.
            carrier = "local" if activity.info().is_local else "remote"
            started, outcome = time.perf_counter(), "error"
            try:
                result = await work(envelope)
                outcome = stage_outcome(stage, result)
            except asyncio.CancelledError:
                outcome = "cancelled"
                raise
            finally:
                seconds = time.perf_counter() - started
                self._seconds.record(seconds, {"stage": stage, "carrier": carrier, "outcome": outcome})
            if stage == "format":
                tool = self._tools.bounded(await _tool_of(envelope, jobs))
                self._counters[TOOL_CALLS].add(1, {"tool": tool, "status": result["status"]})
            return result

        return timed

    def _counted(self, work: Work, jobs: JobStore) -> Work:
        async def counted(envelope: dict[str, Any]) -> Any:
            result = await work(envelope)
            asked = envelope["with"].get("model")  # of a graph's node; an agent's is in its file
            model = asked or (await jobs.facts(activity.info().workflow_id or "")).agent.model
            self._used(self._models.bounded(str(model)), result)
            return result

        return counted

    def _used(self, model: str, result: Mapping[str, Any]) -> None:
        usage = result["usage"]
        for kind in ("prompt", "completion", "cached"):
            self._counters[TOKENS].add(usage.get(f"{kind}_tokens", 0), {"model": model, "kind": kind})
        if result["cost"]:
            self._counters[COST].add(result["cost"], {"model": model})


async def _tool_of(envelope: Mapping[str, Any], jobs: JobStore) -> str:
    item = envelope["with"]["call"]
    try:
        facts = await jobs.facts(activity.info().workflow_id or "")
    except LoomError:
        return UNKNOWN
    return tool_label(item["name"], facts.offered(item))
