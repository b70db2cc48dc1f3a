"""The state of a machine: plain data, small, and JSON on the way through continue-as-new.

Keys are short and defaults are left out, because every byte of a workflow's input is stored twice a run.
"""

import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, TypeVar

from loom_dsl.agent.turn import TurnState
from loom_dsl.machine.outbox import Outbox
from loom_dsl.machine.records import KEYS, KINDS, MapRecord, Record, RetryRecord, without_defaults

READY, RUNNING, WAITING, OWNING = "ready", "running", "waiting", "owning"
LISTENING, TIMING, JOINING, CHILD = "listening", "timing", "joining", "child"
BACKING_OFF, HALTED = "backing_off", "halted"
_DIGITS = re.compile(r"(\d+)")
R = TypeVar("R", bound=Record)


@dataclass(slots=True)
class Token:
    """Where execution stands.

    Attributes:
        at: The execution's name; before the node is entered, the frame and the node (``frame/node``).
        frame: Key of its frame.
        node: Id of the node.
        status: READY (to be entered), RUNNING (an activity is in flight), WAITING (for a decision), OWNING (for graphs
            that it started), LISTENING (for an event), TIMING, JOINING (for other tokens), CHILD (for a child job),
            BACKING_OFF (for the time of its activity's next try), HALTED (until a person has put something right).
        source: Node whose output is ``result`` here, or empty.
        value: The result itself where it is no node's output (a caught failure, a passed deadline).
        doomed: The token goes away when its activity reports.
        via: Node that it came from.
        race: `at` of the race that it is an arm of, or empty.
        record: What the node's kind keeps; see `machine.records`.
        deadline: When its time is over, in seconds since the epoch.
        retry: What is known of tries that were answered with failures; see `tokens.retry`.
        failed: Code and message of why the node fails whose graphs have to report first.
        gave: The node gave its result, and failed after that.
        full: How often the node may be entered, which it was already.
        anew: Its deadline begins anew when the job goes on.
        order: Where its work stands in the order written; follows from the plan, so it is not carried to another run.
    """

    at: str
    frame: str
    node: str
    status: str = READY
    source: str = ""
    value: Any = None
    doomed: bool = False
    via: str = ""
    race: str = ""
    record: Record | None = None
    deadline: float | None = None
    retry: RetryRecord | None = None
    failed: tuple[str, str] | None = None
    gave: bool = False
    full: int | None = None
    anew: bool = False
    order: tuple[int, ...] = ()

    def kept(self, kind: type[R]) -> R:
        """The record, where the kind of the node and the status say what it is."""
        assert isinstance(self.record, kind)
        return self.record

    @property
    def is_over(self) -> bool:
        """Whether the node has failed or had enough, and only graphs that do not count any more have to end."""
        record = self.record
        return self.failed is not None or (isinstance(record, MapRecord) and (record.closing or record.left))

    def reset(self, status: str, record: Record | None = None) -> None:
        """Take another status, with another record, and nothing else of what was kept before."""
        self.status, self.record = status, record
        self.deadline = self.retry = self.failed = None

    def to_json(self) -> dict[str, Any]:
        """The token without defaults."""
        status = "" if self.status == READY else self.status
        full = {
            "s": status, "f": self.frame, "src": self.source, "x": self.doomed, "via": self.via, "race": self.race,
            "fail": list(self.failed or ()), "gave": self.gave, "full": self.full, "anew": self.anew,
        }  # fmt: skip
        small: dict[str, Any] = {"at": self.at, "n": self.node, **{key: value for key, value in full.items() if value}}
        if self.value is not None:  # an empty list or false is a result too
            small["val"] = self.value
        if self.deadline is not None:
            small["due"] = self.deadline
        if self.retry is not None:
            small["r"] = self.retry.to_json()
        if self.record is not None:
            small[KEYS[type(self.record)]] = without_defaults(self.record)
        return small

    @classmethod
    def from_json(cls, raw: dict[str, Any]) -> "Token":
        """Read what `to_json` wrote."""
        return cls(
            at=raw["at"],
            frame=raw.get("f", ""),
            node=raw["n"],
            status=raw.get("s", READY),
            source=raw.get("src", ""),
            value=raw.get("val"),
            doomed=bool(raw.get("x")),
            via=raw.get("via", ""),
            race=raw.get("race", ""),
            record=next((kind(**raw[key]) for key, kind in KINDS.items() if key in raw), None),
            deadline=raw.get("due"),
            retry=RetryRecord.from_json(raw["r"], raw["at"]) if "r" in raw else None,
            failed=(raw["fail"][0], raw["fail"][1]) if "fail" in raw else None,
            gave=bool(raw.get("gave")),
            full=raw.get("full"),
            anew=bool(raw.get("anew")),
        )


@dataclass(slots=True)
class Frame:
    """One execution of a graph: the root, an item of a map, a round of a loop, a graph inside a graph.

    Attributes:
        graph: Name of the graph.
        outputs: Last output by node.
        visits: Entries by node.
        parent: `at` of the token that owns the frame, or empty.
        index: The item's position, or the round's number.
        joins: Of joins that have fired and wait for the rest: the nodes from which tokens have come.
        has_input: Whether it has an input of its own; otherwise that is the parent's.
        input: What it was started with.
        state: Its variables; None: they are the parent's.
        result: That of the end that was reached last.
        over: It has ended, and waits for what was cancelled.
        dropped: It was taken away, so that its end is nobody's result.
        kept: Outputs that the job has stored because it failed; counted in the root.
    """

    graph: str
    outputs: dict[str, Any] = field(default_factory=dict)
    visits: dict[str, int] = field(default_factory=dict)
    parent: str = ""
    index: int = 0
    joins: dict[str, list[str]] = field(default_factory=dict)
    has_input: bool = False
    input: Any = None
    state: dict[str, Any] | None = None
    result: Any = None
    over: bool = False
    dropped: bool = False
    kept: int = 0

    def to_json(self) -> dict[str, Any]:
        """The frame without defaults."""
        full = {
            "o": self.outputs, "v": self.visits, "p": self.parent, "i": self.index, "j": self.joins, "x": self.over,
            "drop": self.dropped, "kept": self.kept,
        }  # fmt: skip
        small: dict[str, Any] = {"g": self.graph, **{key: value for key, value in full.items() if value}}
        if self.has_input:
            small["in"] = self.input
        return small | {key: value for key, value in (("st", self.state), ("r", self.result)) if value is not None}

    @classmethod
    def from_json(cls, raw: dict[str, Any]) -> "Frame":
        """Read what `to_json` wrote."""
        return cls(
            graph=raw["g"],
            outputs=raw.get("o", {}),
            visits=raw.get("v", {}),
            parent=raw.get("p", ""),
            index=raw.get("i", 0),
            joins=raw.get("j", {}),
            has_input="in" in raw,
            input=raw.get("in"),
            state=raw.get("st"),
            result=raw.get("r"),
            over=bool(raw.get("x")),
            dropped=bool(raw.get("drop")),
            kept=raw.get("kept", 0),
        )


@dataclass(slots=True)
class MachineState:
    """Everything that survives continue-as-new.

    Attributes:
        turn: The TurnState of an agent's turn, or None in a graph without turns.
        tokens: By `at`.
        frames: By key; the root's key is empty.
        run_state: Name of the run's state (mission B1).
        inbox: Injected messages: ``{"id", "text" or "ref", "idle", "by", "own"}``; `own`: from who started the job.
        seen: Ids of control signals that were applied, newest last, at most 100.
        paused: ``{"by", "at"}`` or None.
        abort: ``{"by", "reason"}`` or None.
        ending: A result that waits for the last events to be stored: ``["finish", result]``, or ``["fail", code,
            message, details]``.
        concluded: Whether a graph's result is on its way to the store, with the last events or after them.
        decided: Ids of approvals that are decided, newest last, at most 100, of this turn.
        counted: Decisions that were not refused, as ``verdict/name``, newest last, at most 100.
        outbox: Events on their way to the store.
        flushes: How many flush activities have been issued in this turn.
        events: Events from outside that no token has taken yet: ``{"name", "key", "data"}``.
        locks: Who was last admitted under each mutex, by its name.
        undo: What is to be taken back if the job fails, oldest first: ``{"at", "activity", "with", "sure"}``.
        undone: What became of it, in the order in which it was done.
        remembered: Rules that approvers allowed for the rest of a job without turns; a turn has its own.
        starter: Who started the job, or empty.
        phase: The lane that a token was last in.
        failed_at: What is kept of a graph that fails, so that another job can go on there; see `machine.checkpoint`.
        last: Time of the last input, seconds since the epoch.
    """

    turn: TurnState | None = None
    tokens: dict[str, Token] = field(default_factory=dict)
    frames: dict[str, Frame] = field(default_factory=dict)
    input: Any = None
    run_state: str = "idle"
    inbox: list[dict[str, Any]] = field(default_factory=list)
    seen: list[str] = field(default_factory=list)
    paused: dict[str, Any] | None = None
    abort: dict[str, Any] | None = None
    ending: list[Any] | None = None
    concluded: bool = False
    decided: list[str] = field(default_factory=list)
    counted: list[str] = field(default_factory=list)
    outbox: Outbox = field(default_factory=Outbox)
    flushes: int = 0
    events: list[dict[str, Any]] = field(default_factory=list)
    locks: dict[str, str] = field(default_factory=dict)
    undo: list[dict[str, Any]] = field(default_factory=list)
    undone: list[dict[str, Any]] = field(default_factory=list)
    remembered: list[str] = field(default_factory=list)
    starter: str = ""
    phase: str = ""
    failed_at: dict[str, dict[str, Any]] = field(default_factory=dict)
    last: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """The state as JSON, without defaults."""
        raw: dict[str, Any] = {"out": self.outbox.to_json(), "st": self.run_state, "t": round(self.last, 3)}
        if self.turn is not None:
            raw["turn"] = self.turn.to_dict()
        if self.input is not None:  # nothing in it is an input, too
            raw["in"] = self.input
        plain = {
            "box": self.inbox,
            "seen": self.seen,
            "pause": self.paused,
            "abort": self.abort,
            "end": self.ending,
            "cc": self.concluded,
            "dec": self.decided,
            "cnt": self.counted,
            "fl": self.flushes,
            "ph": self.phase,
            "ev": self.events,
            "lk": self.locks,
            "un": self.undo,
            "done": self.undone,
            "rem": self.remembered,
            "by": self.starter,
            "fa": self.failed_at,
            "tok": [token.to_json() for token in self.tokens.values()],
            "fr": {key: frame.to_json() for key, frame in self.frames.items()},
        }
        return {**raw, **{key: value for key, value in plain.items() if value}}

    @classmethod
    def from_json(cls, raw: dict[str, Any]) -> "MachineState":
        """Read what `to_json` wrote.

        Raises:
            pydantic.ValidationError: The TurnState is not one.
        """
        tokens = [Token.from_json(token) for token in raw.get("tok", [])]
        return cls(
            turn=TurnState.from_dict(raw["turn"]) if "turn" in raw else None,
            tokens={token.at: token for token in tokens},
            frames={key: Frame.from_json(frame) for key, frame in raw.get("fr", {}).items()},
            input=raw.get("in"),
            run_state=raw.get("st", "idle"),
            inbox=raw.get("box", []),
            seen=raw.get("seen", []),
            paused=raw.get("pause"),
            abort=raw.get("abort"),
            ending=raw.get("end"),
            concluded=bool(raw.get("cc")),
            decided=raw.get("dec", []),
            counted=raw.get("cnt", []),
            outbox=Outbox.from_json(raw.get("out", {})),
            flushes=raw.get("fl", 0),
            events=raw.get("ev", []),
            locks=raw.get("lk", {}),
            undo=raw.get("un", []),
            undone=raw.get("done", []),
            remembered=raw.get("rem", []),
            starter=raw.get("by", ""),
            phase=raw.get("ph", ""),
            failed_at=raw.get("fa", {}),
            last=raw.get("t", 0.0),
        )

    def in_order(self) -> list[Token]:
        """The tokens in the order in which the graph is written, which does not depend on what finished first."""
        return sorted(self.tokens.values(), key=place_of)


def place_of(token: Token) -> tuple[Any, ...]:
    """Sort key of a token; its name where no plan has said where its work stands."""
    return token.order, natural(token.at)


@lru_cache(maxsize=8192)
def natural(text: str) -> tuple[Any, ...]:
    """Sort key under which item 2 comes before item 10."""
    return tuple(int(part) if part.isdecimal() else part for part in _DIGITS.split(text))
