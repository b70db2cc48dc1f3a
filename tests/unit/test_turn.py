import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from loom_dsl.agent.turn import MAX_TURN_STATE, ExecutionContext, TurnState, Usage, recursion_events, turn_id
from loom_dsl.errors import PlanError

COUNTS = st.integers(min_value=0, max_value=2**53)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
STATES = st.builds(
    TurnState,
    job=st.text(max_size=20),
    turn_counter=COUNTS,
    turn_id=st.text(max_size=20),
    parent_turn_id=st.none() | st.text(max_size=20),
    max_iterations=COUNTS,
    compacted=st.booleans(),
    metadata=st.dictionaries(st.text(max_size=5), JSON, max_size=3),
    session_id=st.text(max_size=20),
    entries=COUNTS,
    model_calls=COUNTS,
    tool_calls=COUNTS,
    tool_rounds=COUNTS,
    usage=st.builds(Usage, prompt_tokens=COUNTS, completion_tokens=COUNTS, cached_tokens=COUNTS),
    cost_microusd=COUNTS,
    active_ms=COUNTS,
    remembered=st.lists(st.text(max_size=20), max_size=3).map(tuple),
)


def typical_state() -> TurnState:
    state = TurnState.initial("job-7f3a9c21d4b8", session_id="ses-7f3a9c21d4b8", entries=2)
    for number in range(1, 30):
        state = state.next_turn(
            entries=2 + 3 * number,
            model_calls=number,
            tool_calls=2 * number,
            tool_rounds=number,
            usage=Usage(prompt_tokens=20_000 * number, completion_tokens=700 * number, cached_tokens=9_000 * number),
            cost_microusd=12_345 * number,
            active_ms=4_321 * number,
        )
    return state.remember(["write_file(reports/**)"])


@given(STATES)
def test_a_state_written_as_json_and_read_again_is_the_same(state: TurnState) -> None:
    written = state.to_dict()

    assert TurnState.from_dict(json.loads(json.dumps(written))) == state
    assert TurnState.from_dict(written).to_dict() == written


def test_the_next_turn_is_one_deeper_and_points_at_this_one() -> None:
    first = TurnState.initial("j", metadata={"a": [1]}, max_iterations=3)
    second = first.next_turn(compacted=True, entries=4)
    third = second.next()

    assert (first.turn_counter, first.parent_turn_id, first.is_initial) == (0, None, True)
    assert (second.turn_counter, second.parent_turn_id, second.is_initial) == (1, first.turn_id, False)
    assert (second.compacted, second.entries, second.metadata) == (True, 4, {"a": [1]})
    assert (third.compacted, third.parent_turn_id, third.entries) == (False, second.turn_id, 4)
    assert len({first.turn_id, second.turn_id, third.turn_id}) == 3


@pytest.mark.parametrize(("counter", "final"), [(0, False), (2, False), (3, True), (4, True)])
def test_a_turn_is_final_when_its_number_reaches_the_limit(counter: int, final: bool) -> None:
    state = TurnState(turn_id="t", turn_counter=counter, max_iterations=3)

    assert state.is_final is final


def test_a_turn_has_the_same_name_whenever_it_is_derived() -> None:
    assert TurnState.initial("j").next().turn_id == turn_id("j", 1) == "t90489de253292805"
    assert turn_id("j", 1) != turn_id("k", 1)
    assert len(turn_id("j", 1)) == 17


def test_metadata_is_added_to_a_new_state_and_shared_with_nobody() -> None:
    given_list: list[object] = [1]
    state = TurnState.initial("j", metadata={"seen": given_list})  # type: ignore[dict-item]
    given_list.append(2)
    more = state.with_metadata(note="x")

    assert state.metadata == {"seen": [1]}
    assert more.metadata == {"seen": [1], "note": "x"}
    assert more.turn_id == state.turn_id


def test_a_state_cannot_be_changed_in_place() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        TurnState.initial("j").turn_counter = 5  # type: ignore[misc]


def test_a_typical_state_takes_at_most_600_bytes() -> None:
    assert len(json.dumps(typical_state().to_dict(), separators=(",", ":"))) <= 600


def test_an_initial_state_writes_no_default() -> None:
    assert TurnState.initial("j").to_dict() == {"schema_version": 1, "job": "j", "turn_id": turn_id("j", 0)}


def test_a_state_in_the_form_of_the_design_documents_is_read() -> None:
    old = {
        "turn_counter": 2,
        "turn_id": "b",
        "max_iterations": 10,
        "compacted": True,
        "parent_turn_id": "a",
        "metadata": {},
    }
    state = TurnState.from_dict(old)

    assert (state.turn_counter, state.turn_id, state.parent_turn_id, state.compacted) == (2, "b", "a", True)
    assert state.schema_version == 1


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"schema_version": 2, "turn_id": "t"}, "schema 2, written by a newer release"),
        ({"schema_version": "1", "turn_id": "t"}, "schema_version must be a whole number"),
        ({"schema_version": 1}, "turn_id"),
        ({"schema_version": 1, "turn_id": "t", "turn_counter": -1}, "turn_counter"),
        ({"turn_counter": "two"}, "turn_counter"),
        ({"schema_version": 1, "turn_id": "t", "colour": "red"}, "colour"),
    ],
)
def test_what_is_not_a_state_is_refused_with_the_reason(data: dict[str, object], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        TurnState.from_dict(data)


@pytest.mark.parametrize("change", [{"colour": "red"}, {"entries": -1}])
def test_a_change_that_does_not_fit_names_the_field(change: dict[str, object]) -> None:
    with pytest.raises(PlanError, match=next(iter(change))):
        TurnState.initial("j").next_turn(**change)


def test_metadata_that_would_outgrow_the_state_is_refused() -> None:
    with pytest.raises(PlanError, match="keep large values"):
        TurnState.initial("j").with_metadata(text="x" * MAX_TURN_STATE)


def test_rules_are_remembered_once() -> None:
    assert TurnState.initial("j").remember(["a", "b"]).remember(["b", "c"]).remembered == ("a", "b", "c")


def test_a_fork_counts_on_from_the_turn_that_it_was_forked_at() -> None:
    fork = TurnState.initial("other", first=3, parent_turn_id=turn_id("job", 2), max_iterations=5)

    assert (fork.turn_counter, fork.turn_id, fork.parent_turn_id) == (3, turn_id("other", 3), turn_id("job", 2))
    assert (fork.is_initial, fork.is_final, fork.next().next().is_final) == (False, False, True)
    assert fork.next().parent_turn_id == fork.turn_id


def test_recursion_events_follow_the_chain_of_turns() -> None:
    first = TurnState.initial("j")
    second = first.next()
    third = second.next()

    assert recursion_events("j", 0) == []
    assert recursion_events("j", 2) == [
        {"from_turn": first.turn_id, "to_turn": second.turn_id, "depth": 1},
        {"from_turn": second.turn_id, "to_turn": third.turn_id, "depth": 2},
    ]
    assert recursion_events("j", 2, start=1) == recursion_events("j", 2)[1:]


@given(*[st.builds(Usage, prompt_tokens=COUNTS, completion_tokens=COUNTS, cached_tokens=COUNTS)] * 3)
def test_usage_adds_up_in_any_grouping(a: Usage, b: Usage, c: Usage) -> None:
    assert (a + b) + c == a + (b + c)
    assert (a + b).total_tokens == a.total_tokens + b.total_tokens


def test_a_context_asks_its_probe_and_serialises_without_it() -> None:
    answers = iter([False, True])
    context = ExecutionContext.for_job("j", "/srv/project", cancelled=lambda: next(answers))

    assert [context.is_cancelled(), context.is_cancelled()] == [False, True]
    assert ExecutionContext.model_validate(context.model_dump()).is_cancelled() is False


def test_a_correlation_id_is_derived_unless_it_is_given() -> None:
    derived = [ExecutionContext.for_job(job, "/srv").correlation_id for job in ("j", "j", "k")]

    assert derived[0] == derived[1] != derived[2]
    assert ExecutionContext.for_job("j", "/srv", "trace-1").correlation_id == "trace-1"
