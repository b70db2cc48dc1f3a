"""A decision that has come and is not settled: what it says, what brought it, its name, what a check found."""

from dataclasses import dataclass, field

from loom_dsl.approvals.decision import Decision
from loom_dsl.machine.commands import SignalReceived
from loom_dsl.machine.decision_states import CheckVerdict, Stage
from loom_dsl.text.canonical import canonical_json, digest

Refusal = tuple[str, str]
"""A verdict for programs, and why."""


@dataclass(frozen=True, slots=True)
class Found:
    """What a check found about a decision.

    Attributes:
        verdict: By which the table says what follows.
        answer: What whoever sent it is told, where the verdict settles it: a word for programs, and why.
        decided: What all have decided, where that is it.
    """

    verdict: CheckVerdict
    answer: Refusal = ("", "")
    decided: Decision | None = None


def name_of(decision: Decision) -> str:
    """Name a decision by its sender's name for it and all that it says; empty where the sender has given none.

    A signed one has its nonce and its signature; its `id` is not signed, so it says nothing.
    """
    signature = decision.signature
    if signature is None and not decision.id:
        return ""
    return digest_of(decision, decision.id if signature is None else signature.model_dump())[:24]


def digest_of(decision: Decision, own: object) -> str:
    """Digest what a decision says, with what its sender adds; empty where it is nested too deeply."""
    said = [decision.approval_id, decision.choice, decision.message, decision.edited_arguments]
    try:
        return digest(canonical_json([own, *said, decision.remember, decision.digest, decision.by]))
    except RecursionError:  # as deep as what can be read; it is judged each time
        return ""


@dataclass(slots=True, eq=False)
class PendingDecision:
    """A decision that has come and is not settled.

    Attributes:
        decision: What it says.
        signal: What it came with.
        sent: When it came, in seconds since 1970, as far as it is known.
        stage: Where it stands.
        again: What brought the very same decision once more: updates, which are answered, and at most one signal.
        name: What is the same when the very same decision comes again; empty where its sender has given it no name.
    """

    decision: Decision
    signal: SignalReceived
    sent: float
    stage: Stage = Stage.ARRIVED
    again: list[SignalReceived] = field(default_factory=list)
    name: str = field(init=False)

    def __post_init__(self) -> None:
        self.name = name_of(self.decision)

    def repeat(self, signal: SignalReceived) -> None:
        """The very same decision came once more."""
        if signal.answer_to is not None or all(known.answer_to is not None for known in (self.signal, *self.again)):
            self.again.append(signal)

    def takes_signal(self) -> bool:
        """Go on with the signal that brought an update's decision once more, if there is one."""
        sent = next((signal for signal in self.again if signal.answer_to is None), None)
        if sent is None or self.signal.answer_to is None:
            return False
        self.again = [self.signal, *(signal for signal in self.again if signal is not sent)]
        self.signal = sent
        return True
