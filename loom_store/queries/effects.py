"""The ledger of effects: the intent is written before a tool runs, the outcome after it."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, get_args

from sqlalchemy import bindparam, insert, select, update

from loom_dsl.errors import ConflictError, NotFoundError
from loom_dsl.text.canonical import canonical_json
from loom_store.queries.base import full_key, key_hash, shorten_key, storable
from loom_store.queries.blobs import BlobQueries, pack_text, raw_digest, unpack_text
from loom_store.rows import Effect, EffectStatus, from_millis, to_millis
from loom_store.tables import effects, jobs

_NOTICE: Final = "/~notice/"
_SELECT = select(effects, jobs.c.name).join(jobs, jobs.c.id == effects.c.job)
_BY_KEY = _SELECT.where(effects.c.key_hash == bindparam("hash"))
_BY_JOB = _SELECT.where(effects.c.job == bindparam("job_id")).order_by(effects.c.id)
_ADD = insert(effects)
_ONE = update(effects).where(effects.c.id == bindparam("effect_id"))
_SETTLE = _ONE.values({name: bindparam("new_" + name) for name in ("status", "result", "note", "images", "settled_at")})
_START = _ONE.values(started_at=bindparam("new_started_at"))
_RELEASE = _ONE.values(holder=None, held_until=None)
_REOPEN = _ONE.values(
    {name: bindparam("new_" + name) for name in ("begun_at", "holder", "held_until")}
    | {"status": "pending", "note": None, "settled_at": None, "started_at": None}
)
_COUNT = _ONE.values(attempts=effects.c.attempts + 1)
_HOLD = _ONE.values(holder=bindparam("new_holder"), held_until=bindparam("new_until"))
_RECONCILED = _ONE.values(reconciled=bindparam("new_reconciled"))
_JOBS_WITH = (
    select(jobs.c.name)
    .join(effects, jobs.c.id == effects.c.job)
    .where(effects.c.status.in_(bindparam("statuses", expanding=True)))
    .group_by(jobs.c.id, jobs.c.name)
    .order_by(jobs.c.id)
)

# From a status to those that may follow it. An outcome once known stays; an unknown one may become known.
_MAY_BECOME: Final[dict[EffectStatus, frozenset[EffectStatus]]] = {
    "pending": frozenset({"settled", "failed", "unknown", "cancelled"}),
    "unknown": frozenset({"settled", "failed", "cancelled"}),
    "settled": frozenset(),
    "failed": frozenset(),
    "cancelled": frozenset(),
}


def undo_key(effect: Effect) -> str:
    """Name the taking back of an effect, which is an effect itself. No call's key looks so: a turn is a number."""
    return f"{effect.job}/~undo/{effect.turn}/{effect.call_id}"


def notice_key(job: str, name: str) -> str:
    """Name the telling of somebody that a job waits. No call's key looks so, and no list of effects has it."""
    return f"{job}{_NOTICE}{name}"


class EffectQueries(BlobQueries):
    """The part of a transaction that deals with effects."""

    def begin_effect(  # noqa: PLR0913 - the columns of a row
        self,
        key: str,
        *,
        job: str,
        turn: int,
        call_id: str,
        tool: str,
        arguments_digest: str,
        summary: str = "",
        held: tuple[str, float] | None = None,
        idempotent: bool = False,
    ) -> Effect:
        """Write down that a tool is about to run, or find that it was written down before, and count the attempt.

        One that was cancelled, because it never began, is begun anew.

        Args:
            key: Its idempotency key.
            job: The job's id.
            turn: Number of the turn.
            call_id: The model's id of the call.
            tool: The tool's name.
            arguments_digest: Digest of the call's arguments.
            summary: What the call is about, in a line, without secrets.
            held: The process in which the tool is to run, and the seconds for which to believe so.
            idempotent: Whether it may be repeated.

        Returns:
            The effect. Its `created` says whether to run the tool: when False, look at its status.

        Raises:
            ConflictError: The key stands for a call of another tool or with other arguments.
        """
        found = self._find_effect(key)
        if found is not None:
            effect = self._effect(found)
            if (effect.tool, effect.arguments_digest) != (storable(tool), arguments_digest):
                raise ConflictError(
                    f"the effect key {key!r} stands for {effect.tool} with arguments {effect.arguments_digest[:12]}, "
                    f"not for {tool} with {arguments_digest[:12]}; give every call a key of its own"
                )
            self._execute(_COUNT, {"effect_id": found.id})
            effect = replace(effect, attempts=effect.attempts + 1)
            return self._reopen(found.id, effect, held) if effect.status == "cancelled" else effect
        effect = Effect(
            key=storable(key),
            job=job,
            turn=turn,
            call_id=storable(call_id),
            tool=storable(tool),
            arguments_digest=arguments_digest,
            status="pending",
            result_digest=None,
            note=None,
            begun_at=from_millis(self._millis()),
            settled_at=None,
            summary=storable(summary),
            holder=held[0] if held else None,
            held_until=self._until(held),
            renewed=held is not None,
            idempotent=idempotent,
            created=True,
        )
        self._write_intent(effect)
        return effect

    def start_effect(self, key: str, holder: str) -> bool:
        """Write down that the tool's function is called now; until then the effect cannot have happened.

        Args:
            key: Its idempotency key.
            holder: The process that is to call it.

        Returns:
            Whether it may: False when the effect has an outcome, or another process has taken it over.
        """
        row = self._find_effect(key)
        if row is None or row.status != "pending" or row.holder != holder:
            return False
        self._execute(_START, {"effect_id": row.id, "new_started_at": self._millis()})
        return True

    def settle_effect(
        self,
        key: str,
        status: EffectStatus,
        result_digest: str | None = None,
        note: str | None = None,
        images: Sequence[Mapping[str, Any]] = (),
        *,
        release: bool = True,
    ) -> None:
        """Write down how an effect ended, and what it gave. The same outcome again changes nothing.

        Args:
            key: Its idempotency key.
            status: How it ended.
            result_digest: Digest of what it gave.
            note: What there is to say about it.
            images: What stands for the images that it gave.
            release: Whether nobody is said to hold it any more; else `release_effect` follows.

        Raises:
            NotFoundError: Nothing was begun with this key.
            ConflictError: Another outcome is written down.
            ValueError: That is not an outcome.
        """
        if status not in get_args(EffectStatus) or status == "pending":
            raise ValueError(f"an effect ends as settled, failed, unknown or cancelled, not as {status!r}")
        row = self._find_effect(key)
        if row is None:
            raise NotFoundError(f"no effect was begun with the key {key!r}")
        now = self._effect(row)
        if (now.status, now.result_digest) == (status, result_digest):
            return
        if status not in _MAY_BECOME[now.status]:
            raise ConflictError(f"the effect {key!r} is {now.status} already and cannot become {status}")
        self._write_outcome(row.id, status, result_digest, note, images)
        if release:
            self._execute(_RELEASE, {"effect_id": row.id})

    def release_effect(self, key: str) -> None:
        """Say that nobody holds an effect any more. Its outcome, if it has one, is on the disk when this is."""
        row = self._find_effect(key)
        if row is not None:
            self._execute(_RELEASE, {"effect_id": row.id})

    def list_effect(self, effect: Effect) -> None:
        """Write down an effect that may be repeated, with its outcome; the latest attempt's counts.

        Args:
            effect: As it ended. What it says of attempts is not looked at: they are counted here.
        """
        if self._find_effect(effect.key) is None:
            self._write_intent(effect)
        else:
            self.count_attempt(effect.key)
        row = self._find_effect(effect.key)
        self._write_outcome(row.id, effect.status, effect.result_digest, effect.note, effect.images)

    def hold_effect(self, key: str, holder: str, seconds: float) -> None:
        """Say that the tool runs, in that process, and for how long to believe so; nothing once the effect ended."""
        row = self._find_effect(key)
        if row is not None and row.status == "pending":
            until = self._millis() + round(seconds * 1000)
            self._execute(_HOLD, {"effect_id": row.id, "new_holder": holder, "new_until": until})

    def count_attempt(self, key: str) -> None:
        """Count one more attempt at an effect."""
        row = self._find_effect(key)
        if row is not None:
            self._execute(_COUNT, {"effect_id": row.id})

    def reconcile_effect(self, key: str, outcome: str) -> None:
        """Write down what the tool said when it was asked what became of an attempt."""
        row = self._find_effect(key)
        if row is not None:
            self._execute(_RECONCILED, {"effect_id": row.id, "new_reconciled": outcome})

    def effect(self, key: str) -> Effect | None:
        """Give the effect of that key, if it was begun."""
        row = self._find_effect(key)
        return None if row is None else self._effect(row)

    def effects(self, job: str) -> list[Effect]:
        """List a job's effects in the order in which they were written down, without the notices of approvals."""
        job_id = self._find_job(job)
        rows = () if job_id is None else self._execute(_BY_JOB, {"job_id": job_id})
        return [self._effect(row) for row in rows if not row.key.startswith(_NOTICE)]

    def jobs_with_effects(self, statuses: Sequence[str]) -> list[str]:
        """Name the jobs that have effects of one of these statuses, the oldest job first."""
        return list(self._execute(_JOBS_WITH, {"statuses": list(statuses)}).scalars())

    def _effect(self, row: Any) -> Effect:
        return _effect(row, self._millis())

    def _until(self, held: tuple[str, float] | None) -> str | None:
        return from_millis(self._millis() + round(held[1] * 1000)) if held else None

    def _reopen(self, effect_id: int, effect: Effect, held: tuple[str, float] | None) -> Effect:
        effect = replace(
            effect,
            status="pending",
            note=None,
            begun_at=from_millis(self._millis()),
            settled_at=None,
            started_at=None,
            holder=held[0] if held else None,
            held_until=self._until(held),
            renewed=held is not None,
            created=True,
        )
        new = {
            "effect_id": effect_id,
            "new_begun_at": to_millis(effect.begun_at),
            "new_holder": effect.holder,
            "new_held_until": None if effect.held_until is None else to_millis(effect.held_until),
        }
        self._execute(_REOPEN, new)
        return effect

    def _write_outcome(
        self,
        effect_id: int,
        status: EffectStatus,
        result_digest: str | None,
        note: str | None,
        images: Sequence[Mapping[str, Any]],
    ) -> None:
        new = {
            "effect_id": effect_id,
            "new_status": status,
            "new_result": None if result_digest is None else raw_digest(result_digest),
            "new_note": None if note is None else pack_text(note),
            "new_images": canonical_json(list(images)) if images else None,
            "new_settled_at": self._millis(),
        }
        self._execute(_SETTLE, new)

    def _write_intent(self, effect: Effect) -> None:
        row = {
            "key_hash": key_hash(effect.key),
            "key": shorten_key(effect.key, effect.job),
            "job": self._job_id(effect.job),
            "turn": effect.turn,
            "call_id": effect.call_id,
            "tool": effect.tool,
            "arguments": raw_digest(effect.arguments_digest),
            "status": effect.status,
            "begun_at": to_millis(effect.begun_at),
            "summary": pack_text(effect.summary) if effect.summary else None,
            "holder": effect.holder,
            "held_until": None if effect.held_until is None else to_millis(effect.held_until),
            "started_at": None if effect.started_at is None else to_millis(effect.started_at),
            "idempotent": effect.idempotent,
        }
        self._execute(_ADD, row)

    def _find_effect(self, key: str) -> Any:
        key = storable(key)
        # The number finds the row, the text proves it: two keys may share a number.
        rows = self._execute(_BY_KEY, {"hash": key_hash(key)}).all()
        return next((row for row in rows if full_key(row.key, row.name) == key), None)


def _effect(row: Any, now: int) -> Effect:
    return Effect(
        key=full_key(row.key, row.name),
        job=row.name,
        turn=row.turn,
        call_id=row.call_id,
        tool=row.tool,
        arguments_digest=row.arguments.hex(),
        status=row.status,
        result_digest=None if row.result is None else row.result.hex(),
        note=None if row.note is None else unpack_text(row.note),
        begun_at=from_millis(row.begun_at),
        settled_at=None if row.settled_at is None else from_millis(row.settled_at),
        summary="" if row.summary is None else unpack_text(row.summary),
        attempts=row.attempts,
        reconciled=row.reconciled,
        holder=row.holder,
        held_until=None if row.held_until is None else from_millis(row.held_until),
        renewed=row.held_until is not None and row.held_until > now,
        images=() if row.images is None else tuple(json.loads(row.images)),
        started_at=None if row.started_at is None else from_millis(row.started_at),
        idempotent=bool(row.idempotent),
    )
