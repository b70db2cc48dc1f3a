"""How payloads are written: a plan travels as its hash and is claimed from the store on the other side.

Were it in the input itself, it would be stored twice with every continue-as-new. The hash is checked when
the text is claimed, so a workflow sees the plan as part of its input, the same on every replay.
"""

import dataclasses
import json
from collections.abc import Sequence
from typing import Any

from temporalio.api.common.v1 import Payload
from temporalio.api.failure.v1 import Failure
from temporalio.converter import (
    CompositePayloadConverter,
    DataConverter,
    DefaultFailureConverter,
    DefaultPayloadConverter,
    EncodingPayloadConverter,
    PayloadCodec,
    PayloadConverter,
)

from loom_dsl.errors import BlobMissing
from loom_dsl.graph.plan import PlanText
from loom_dsl.text.canonical import digest
from loom_store.store import Store

PLAN, CLAIM = "json/loom-plan", "loom/plan-claim"


class _PlanConverter(EncodingPayloadConverter):
    @property
    def encoding(self) -> str:
        return PLAN

    def to_payload(self, value: Any) -> Payload | None:
        if not isinstance(value, PlanText):
            return None
        return Payload(metadata={"encoding": PLAN.encode()}, data=value.text.encode())

    def from_payload(self, payload: Payload, type_hint: type | None = None) -> Any:
        return PlanText(payload.data.decode())


class PlanNotHere(RuntimeError):
    """The store does not hold a job's plan. Not a LoomError: it must not end the job, only keep this worker from it."""


class _UnredeemedConverter(EncodingPayloadConverter):
    @property
    def encoding(self) -> str:
        return CLAIM

    def to_payload(self, value: Any) -> Payload | None:
        return None

    def from_payload(self, payload: Payload, type_hint: type | None = None) -> Any:
        claim = payload.data[:200].decode("utf-8", "replace")
        raise PlanNotHere(
            f"this worker's store does not hold the plan {claim}; start the worker with the store of the job's client"
        )


class LoomPayloadConverter(CompositePayloadConverter):
    """The default JSON converter, and plans."""

    def __init__(self) -> None:
        super().__init__(
            _PlanConverter(), _UnredeemedConverter(), *DefaultPayloadConverter.default_encoding_payload_converters
        )


class PlanClaims(PayloadCodec):
    """Puts a plan's text into the store and its hash on the wire, and the other way round."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._kept: dict[str, bytes] = {}

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Replace plans by claims."""
        return [await self._claim(p) if p.metadata.get("encoding") == PLAN.encode() else p for p in payloads]

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Replace claims by plans.

        A claim that cannot be redeemed stays as it is. Anybody can write one into a signal, which then is refused like
        any other; as the input of a job it cannot be converted, so the job waits for a worker that has the plan.
        """
        return [await self._redeem(p) if p.metadata.get("encoding") == CLAIM.encode() else p for p in payloads]

    async def _claim(self, payload: Payload) -> Payload:
        name, data = digest(payload.data), payload.data
        if name not in self._kept:
            await self._store.write(lambda tx: tx.put_blob(data))
            self._keep(name, data)
        return Payload(metadata={"encoding": CLAIM.encode()}, data=json.dumps({"plan": name}).encode())

    async def _redeem(self, payload: Payload) -> Payload:
        try:
            name = str(json.loads(payload.data)["plan"])
            if name not in self._kept:
                data = await self._store.read(lambda tx: tx.get_blob(name))
                if digest(data) != name:
                    return payload
                self._keep(name, data)
        except (ValueError, KeyError, TypeError, RecursionError, BlobMissing):
            return payload
        return Payload(metadata={"encoding": PLAN.encode()}, data=self._kept[name])

    def _keep(self, name: str, data: bytes) -> None:
        if len(self._kept) > 200:
            self._kept.clear()
        self._kept[name] = data


class QuietFailureConverter(DefaultFailureConverter):
    """Keeps tracebacks out of the history: they can hold values of variables, and paths."""

    def to_failure(self, exception: BaseException, payload_converter: PayloadConverter, failure: Failure) -> None:
        """Write the failure without any stack trace."""
        super().to_failure(exception, payload_converter, failure)
        part: Failure | None = failure
        while part is not None:
            part.stack_trace = ""
            part = part.cause if part.HasField("cause") else None


def data_converter(store: Store) -> DataConverter:
    """The converter that Loom's clients and workers share."""
    return dataclasses.replace(
        DataConverter.default,
        payload_converter_class=LoomPayloadConverter,
        failure_converter_class=QuietFailureConverter,
        payload_codec=PlanClaims(store),
    )
