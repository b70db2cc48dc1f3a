import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_dsl.agent.turn import turn_id
from loom_dsl.observe.events import FIELDS, Event, EventType, decode, encode, event, kind_of

SCALARS = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=8)
KEYS = st.sampled_from(["content", "name", "t", "n", "v", "at", "d", "p", "type", "data"]) | st.text(max_size=6)


@given(
    event_type=st.sampled_from(EventType),
    turn=st.integers(0, 10_000),
    at=st.none() | st.floats(0, 4e9),
    parent=st.none() | st.text(min_size=1, max_size=8),
    data=st.dictionaries(KEYS, SCALARS | st.dictionaries(KEYS, SCALARS, max_size=2), max_size=4),
)
def test_an_event_stored_and_read_again_is_the_same(
    event_type: EventType, turn: int, at: float | None, parent: str | None, data: dict[str, Any]
) -> None:
    written = event(event_type, "job", turn, at=at, parent_turn_id=parent).model_copy(update={"data": data})
    stored = json.loads(json.dumps(encode(written)))

    derived = {} if event_type is not EventType.RECURSION else decode("job", 7, {"t": "recursion", "n": turn}).data
    if derived and parent is not None:
        derived["from_turn"] = parent
    assert decode("job", 7, stored) == written.model_copy(update={"offset": 7, "data": {**derived, **data}})


def test_the_stored_form_leaves_out_what_follows_from_job_and_turn() -> None:
    assert encode(event(EventType.LLM_DELTA, "job", 3, content="Hi")) == {"t": "llm_delta", "n": 3, "content": "Hi"}


def test_turn_and_parent_are_derived_on_reading() -> None:
    read = decode("job", 5, {"t": "phase_start", "n": 2, "name": "model"})

    assert (read.turn_id, read.parent_turn_id, read.depth) == (turn_id("job", 2), turn_id("job", 1), 2)
    assert decode("job", 5, {"t": "phase_start", "n": 0}).parent_turn_id is None


def test_the_first_turn_of_a_sub_agent_keeps_its_foreign_parent() -> None:
    stored = encode(event(EventType.ITERATION_START, "child", 0, parent_turn_id="t-of-another-job", iteration=0))

    assert stored["p"] == "t-of-another-job"
    assert decode("child", 1, stored).parent_turn_id == "t-of-another-job"


@pytest.mark.parametrize(
    ("event_type", "kind"),
    [
        ("llm_delta", "model_delta"),
        ("stream_start", "model_delta"),
        ("stream_reset", "model_delta"),
        ("llm_finish", "assistant_message"),
        ("tool_result", "tool_result"),
        ("error", "error"),
        ("state", "status"),
        ("agent_finish", "status"),
        ("aborted", "status"),
        ("something_of_a_later_release", "status"),
    ],
)
def test_every_type_has_a_coarse_kind(event_type: str, kind: str) -> None:
    assert kind_of(event_type) == kind
    assert Event(type=event_type).kind == kind


def test_an_event_of_a_later_release_is_read_with_all_it_says() -> None:
    read = decode("job", 9, {"t": "teleported", "n": 1, "v": 4, "to": "mars"})

    assert (read.type, read.is_known, read.schema_version, read.data) == ("teleported", False, 4, {"to": "mars"})
    assert encode(read) == {"t": "teleported", "n": 1, "v": 4, "to": "mars"}


def test_a_row_with_the_long_name_of_the_type_is_read() -> None:
    assert decode("job", 1, {"type": "stream_reset", "stream": "s"}).type == EventType.STREAM_RESET


@given(st.dictionaries(KEYS, SCALARS | st.lists(SCALARS, max_size=2) | st.dictionaries(KEYS, SCALARS, max_size=2)))
def test_reading_never_fails_whatever_is_stored(raw: dict[str, Any]) -> None:
    assert decode("job", 1, raw).kind in ("model_delta", "assistant_message", "tool_result", "status", "error")


def test_the_vocabulary_of_the_documents_is_complete() -> None:
    documents = """iteration_start max_iterations_reached execution_cancelled phase_start phase_end retrieval_start
        retrieval_complete compression_applied llm_start llm_delta llm_finish tool_calls_start tool_calls_complete
        tool_result recursion agent_finish error stream_start approval_requested approval_decided progress warning
        aborted"""

    assert set(documents.split()) <= {member.value for member in EventType}
    assert FIELDS[EventType.RECURSION] == ("from_turn", "to_turn", "depth")
    assert FIELDS[EventType.AGENT_FINISH] == ("content", "turn_counter", "total_llm_calls")
