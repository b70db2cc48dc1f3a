"""The table of what happens to a decision: every stage is reached, every end is one, and what it lacks is a fault."""

from itertools import product

import pytest

from loom_dsl.errors import IllegalTransition
from loom_dsl.machine.decision_states import TRANSITIONS, CheckVerdict, Question, Stage, mermaid, next_stage

WAYS = {
    (stage, question, verdict): new
    for stage, questions in TRANSITIONS.items()
    for question, ways in questions.items()
    for verdict, new in ways.items()
}
ENDS = {Stage.RECORDED, Stage.DECIDED, Stage.REPEATED, Stage.REFUSED, Stage.DISMISSED}


def test_every_stage_is_in_the_table_and_what_settles_a_decision_ends_there() -> None:
    assert set(TRANSITIONS) == set(Stage)
    assert {stage for stage, questions in TRANSITIONS.items() if not questions} == ENDS


def test_every_stage_can_be_reached_and_an_end_from_every_stage() -> None:
    assert {Stage.ARRIVED, *WAYS.values()} == set(Stage)
    ending = set(ENDS)
    for _ in Stage:
        ending |= {stage for (stage, _, _), new in WAYS.items() if new in ending}
    assert ending == set(Stage)


def test_every_verdict_and_every_state_of_a_question_makes_a_difference_somewhere() -> None:
    assert {verdict for _, _, verdict in WAYS} == set(CheckVerdict)
    assert {question for _, question, _ in WAYS} == set(Question)


def test_no_decision_is_verified_or_counts_when_its_question_is_gone() -> None:
    gone = {new for (_, question, _), new in WAYS.items() if question is Question.GONE}
    assert not gone & {Stage.VOTING, Stage.RECORDED, Stage.DECIDED, Stage.VERIFYING, Stage.LOOKING_UP}


def test_only_a_decision_whose_turn_it_is_counts() -> None:
    assert {stage for (stage, _, _), new in WAYS.items() if new in (Stage.RECORDED, Stage.DECIDED)} == {Stage.VOTING}
    assert {verdict for (_, _, verdict), new in WAYS.items() if new is Stage.VOTING} == {CheckVerdict.TURN}


@pytest.mark.parametrize(("stage", "question", "verdict"), list(product(Stage, Question, CheckVerdict)))
def test_the_table_rules_and_what_it_lacks_is_a_fault(stage: Stage, question: Question, verdict: CheckVerdict) -> None:
    if (stage, question, verdict) in WAYS:
        assert next_stage(stage, question, verdict) is WAYS[stage, question, verdict]
        return
    with pytest.raises(IllegalTransition, match=f"a decision that is {stage}, about a question that is {question}"):
        next_stage(stage, question, verdict)


def test_the_picture_has_every_way_of_the_table_and_no_other() -> None:
    lines = mermaid().splitlines()
    drawn = {tuple(line.partition(":")[0].split(" --> ")) for line in map(str.strip, lines[2:]) if "[*]" not in line}
    assert drawn == {(str(stage), str(new)) for (stage, _, _), new in WAYS.items()}
    assert {line.split()[0] for line in map(str.strip, lines) if line.strip().endswith("[*]")} == {
        str(end) for end in ENDS
    }
    assert "    queued --> voting: turn while open or overdue" in lines
    assert "    queued --> refused: refused" in lines
