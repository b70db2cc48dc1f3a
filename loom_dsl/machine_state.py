"""The state of a machine: plain data, small, and JSON on the way through continue-as-new.

Keys are short and defaults are left out, because every byte of a workflow's input is stored twice a run.
"""

import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from loom_dsl.outbox import Outbox
from loom_dsl.turn import TurnState

READY, RUNNING, WAITING, MAPPING = "ready", "running", "waiting", "mapping"
_DIGITS = re.compile(r"(\d+)")


@dataclass(slots=True)
class Token:
    """Where execution stands.

    Attributes:
        at: The execution's name; before the node is entered, the frame and the node (``frame/node``).
        frame: Key of its frame.
        node: Id of the node.
        status: READY (to be entered), RUNNING (an activity is in flight), WAITING (for a decision), MAPPING.
        source: Node whose output is ``result`` here, or empty.
        value: The result itself where it is no node's output (a caught failure, a passed deadline).
        doomed: The token goes away when its activity reports.
        data: What the node's kind keeps: an approval's id and deadline, a map's items and results.
    """

    at: str
    frame: str
    node: str
    status: str = READY
    source: str = ""
    value: Any = None
    doomed: bool = False
    data: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The token without defaults."""
        full = {"s": self.status, "f": self.frame, "src": self.source, "x": self.doomed}
        small: dict[str, Any] = {"at": self.at, "n": self.node, **{key: value for key, value in full.items() if value}}
        if self.value is not None:  # an empty list or false is a result too
            small["val"] = self.value
        return {**small, "d": self.data} if self.data else small

    @classmethod
    def from_json(cls, raw: dict[str, Any]) -> "Token":
        """Read what `to_json` wrote."""
        return cls(
            raw["at"],
            raw.get("f", ""),
            raw["n"],
            raw.get("s", READY),
            raw.get("src", ""),
            raw.get("val"),
            bool(raw.get("x")),
            raw.get("d", {}),
        )


@dataclass(slots=True)
class Frame:
    """One execution of a graph: the root, or an item of a map.

    Attributes:
        graph: Name of the graph.
        outputs: Last output by node.
        visits: Entries by node.
        parent: `at` of the map token that owns the frame, or empty.
        index: The item's position.
    """

    graph: str
    outputs: dict[str, Any] = field(default_factory=dict)
    visits: dict[str, int] = field(default_factory=dict)
    parent: str = ""
    index: int = 0

    def to_json(self) -> dict[str, Any]:
        """The frame without defaults."""
        full = {"o": self.outputs, "v": self.visits, "p": self.parent, "i": self.index}
        return {"g": self.graph, **{key: value for key, value in full.items() if value}}

    @classmethod
    def from_json(cls, raw: dict[str, Any]) -> "Frame":
        """Read what `to_json` wrote."""
        return cls(raw["g"], raw.get("o", {}), raw.get("v", {}), raw.get("p", ""), raw.get("i", 0))


@dataclass(slots=True)
class MachineState:
    """Everything that survives continue-as-new.

    Attributes:
        turn: The TurnState of an agent's turn, or None in a graph without turns.
        tokens: By `at`.
        frames: By key; the root's key is empty.
        run_state: Name of the run's state (mission B1).
        inbox: Injected messages: ``{"id", "text" or "ref", "idle"}``.
        seen: Ids of control signals that were applied, newest last, at most 100.
        paused: ``{"by", "at"}`` or None.
        abort: ``{"by", "reason"}`` or None.
        ending: A result that waits for the last events to be stored: ``["finish", result]``, or ``["fail", code,
            message, details]``.
        decided: Ids of approvals that are decided, newest last, at most 100, of this turn.
        outbox: Events on their way to the store.
        flushes: How many flush activities have been issued in this turn.
        phase: The lane that a token was last in.
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
    decided: list[str] = field(default_factory=list)
    outbox: Outbox = field(default_factory=Outbox)
    flushes: int = 0
    phase: str = ""
    last: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """The state as JSON, without defaults."""
        raw: dict[str, Any] = {"out": self.outbox.to_json(), "st": self.run_state, "t": round(self.last, 3)}
        if self.turn is not None:
            raw["turn"] = self.turn.to_dict()
        plain = {
            "in": self.input,
            "box": self.inbox,
            "seen": self.seen,
            "pause": self.paused,
            "abort": self.abort,
            "end": self.ending,
            "dec": self.decided,
            "fl": self.flushes,
            "ph": self.phase,
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
            decided=raw.get("dec", []),
            outbox=Outbox.from_json(raw.get("out", {})),
            flushes=raw.get("fl", 0),
            phase=raw.get("ph", ""),
            last=raw.get("t", 0.0),
        )

    def in_order(self) -> list[Token]:
        """The tokens in one order that does not depend on what finished first."""
        return sorted(self.tokens.values(), key=lambda token: natural(token.at))


@lru_cache(maxsize=8192)
def natural(text: str) -> tuple[Any, ...]:
    """Sort key under which item 2 comes before item 10."""
    return tuple(int(part) if part.isdecimal() else part for part in _DIGITS.split(text))
