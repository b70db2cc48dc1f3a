"""What happens to a decision that has come: a table of where it stands, how its question stands and what a check says.

Everything that says what may follow what is in the table: `decisions` makes the checks and does what a stage is for,
and the picture in the documentation is drawn from here. A change that the table does not have is a fault in Loom.
"""

from collections.abc import Iterator, Mapping
from enum import StrEnum

from loom_dsl.errors import IllegalTransition


class Question(StrEnum):
    """How the question stands that a decision is about."""

    OPEN = "open"
    """It takes decisions."""
    OVERDUE = "overdue"
    """Its deadline is past by the workflow's clock: it takes only what was sent before that."""
    GONE = "gone"
    """It is decided, has expired, was taken away, or never was."""


class Stage(StrEnum):
    """Where a decision stands."""

    ARRIVED = "arrived"
    """It has come, and nothing is known of it."""
    LOOKING_UP = "looking_up"
    """The server is asked when it was sent."""
    VERIFYING = "verifying"
    """Its signature is held against the keys."""
    QUEUED = "queued"
    """Nothing is left to be found out; it waits for those that came before it."""
    VOTING = "voting"
    """It is its turn: it is counted with those that say the same."""
    RECORDED = "recorded"
    """It counts, and more people have to answer alike."""
    DECIDED = "decided"
    """It counts, and the question is decided."""
    REPEATED = "repeated"
    """It says what one that counted has said; whoever sent it is told so."""
    REFUSED = "refused"
    """It does not count: an event says why, and whoever sent it is told."""
    DISMISSED = "dismissed"
    """It came to nothing with its question; whoever waits for an answer is told."""


class CheckVerdict(StrEnum):
    """What a check says."""

    REFUSED = "refused"
    """It cannot count, whoever else decides what."""
    REPEATED = "repeated"
    """One that says the same has counted."""
    CLOSED = "closed"
    """The question was closed while something was being found out."""
    LATE = "late"
    """It came after the deadline."""
    UNDATED = "undated"
    """It is seen after the deadline, and may have been sent before it."""
    CROWDED = "crowded"
    """Too many about the same question are being looked at already."""
    SIGNED = "signed"
    """It has a signature, which is still to be verified."""
    VERIFIED = "verified"
    """Its signature holds."""
    UNVERIFIABLE = "unverifiable"
    """It could not be found out whether its signature holds."""
    BEHIND = "behind"
    """Others that came before it are not settled."""
    TURN = "turn"
    """It is its turn, and it may count."""
    RECORDED = "recorded"
    """It is one of several that are needed."""
    DECIDED = "decided"
    """Enough have answered alike."""


_ADMITTED: Mapping[CheckVerdict, Stage] = {
    CheckVerdict.REFUSED: Stage.REFUSED,
    CheckVerdict.TURN: Stage.VOTING,
    CheckVerdict.BEHIND: Stage.QUEUED,
    CheckVerdict.SIGNED: Stage.VERIFYING,
    CheckVerdict.CROWDED: Stage.REFUSED,
}
_VERIFIED: Mapping[CheckVerdict, Stage] = {
    CheckVerdict.VERIFIED: Stage.QUEUED,
    CheckVerdict.REFUSED: Stage.REFUSED,
    CheckVerdict.UNVERIFIABLE: Stage.REFUSED,
    # What is too late as an update may be in time as the signal that brought the same, so it is verified once more.
    CheckVerdict.SIGNED: Stage.VERIFYING,
    CheckVerdict.CROWDED: Stage.REFUSED,
}
_ITS_TURN: Mapping[CheckVerdict, Stage] = {CheckVerdict.TURN: Stage.VOTING, CheckVerdict.REFUSED: Stage.REFUSED}
_VOTED: Mapping[CheckVerdict, Stage] = {
    CheckVerdict.RECORDED: Stage.RECORDED,
    CheckVerdict.DECIDED: Stage.DECIDED,
    CheckVerdict.REPEATED: Stage.REPEATED,
    CheckVerdict.REFUSED: Stage.REFUSED,
}
_TOO_LATE_TO_SAY: Mapping[CheckVerdict, Stage] = {
    CheckVerdict.REPEATED: Stage.REPEATED,
    CheckVerdict.REFUSED: Stage.REFUSED,
}

TRANSITIONS: Mapping[Stage, Mapping[Question, Mapping[CheckVerdict, Stage]]] = {
    Stage.ARRIVED: {
        Question.OPEN: _ADMITTED,
        Question.OVERDUE: {
            CheckVerdict.REFUSED: Stage.REFUSED,
            CheckVerdict.LATE: Stage.REFUSED,
            CheckVerdict.UNDATED: Stage.LOOKING_UP,
            CheckVerdict.CROWDED: Stage.REFUSED,
        },
        Question.GONE: _TOO_LATE_TO_SAY,
    },
    Stage.LOOKING_UP: {
        Question.OVERDUE: {**_ADMITTED, CheckVerdict.LATE: Stage.REFUSED, CheckVerdict.CLOSED: Stage.REFUSED},
        Question.GONE: {CheckVerdict.CLOSED: Stage.DISMISSED},
    },
    Stage.VERIFYING: {
        Question.OPEN: _VERIFIED,
        Question.OVERDUE: _VERIFIED,
        Question.GONE: {
            CheckVerdict.VERIFIED: Stage.QUEUED,
            CheckVerdict.UNVERIFIABLE: Stage.QUEUED,
            CheckVerdict.REFUSED: Stage.REFUSED,
        },
    },
    Stage.QUEUED: {Question.OPEN: _ITS_TURN, Question.OVERDUE: _ITS_TURN, Question.GONE: _TOO_LATE_TO_SAY},
    Stage.VOTING: {Question.OPEN: _VOTED, Question.OVERDUE: _VOTED},
    Stage.RECORDED: {},
    Stage.DECIDED: {},
    Stage.REPEATED: {},
    Stage.REFUSED: {},
    Stage.DISMISSED: {},
}
"""Where a decision stands, how its question stands and what a check says, to where the decision stands then."""


def next_stage(stage: Stage, question: Question, verdict: CheckVerdict) -> Stage:
    """Give the stage that follows.

    Raises:
        IllegalTransition: The table has no such way.
    """
    try:
        return TRANSITIONS[stage][question][verdict]
    except KeyError:
        message = f"a decision that is {stage}, about a question that is {question}, cannot be found {verdict}"
        raise IllegalTransition(message) from None


def mermaid() -> str:
    """Draw the table as a Mermaid state diagram."""
    lines = ["stateDiagram-v2", f"    [*] --> {Stage.ARRIVED}"]
    for old in Stage:
        lines += [f"    {old} --> {new}: {label}" for new in Stage for label in _labels(old, new)]
        if not TRANSITIONS[old]:
            lines.append(f"    {old} --> [*]")
    return "\n".join(lines) + "\n"


def _labels(old: Stage, new: Stage) -> Iterator[str]:
    """Say which verdicts lead from one stage to another, and with how the question stands where that matters."""
    questions: dict[tuple[CheckVerdict, ...], list[Question]] = {}
    for question, ways in TRANSITIONS[old].items():
        if verdicts := tuple(verdict for verdict, stage in ways.items() if stage is new):
            questions.setdefault(verdicts, []).append(question)
    for verdicts, found in questions.items():
        anyway = len(found) == len(TRANSITIONS[old])
        yield " or ".join(verdicts) + ("" if anyway else f" while {' or '.join(found)}")
