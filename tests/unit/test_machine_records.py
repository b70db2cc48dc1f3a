"""What a token keeps comes back from JSON as it was."""

import json

import pytest

from loom_dsl.machine.commands import RunActivity
from loom_dsl.machine.records import KEYS, ApprovalRecord, JoinRecord, LoopRecord, MapRecord, Record, RetryRecord
from loom_dsl.machine.state import Token


@pytest.mark.parametrize(
    "record",
    [
        MapRecord(items=[1, 2], results=[None, None]),
        MapRecord(items=[1, 2], results=[None, None], first=0.0, done=[0], past=[]),
        LoopRecord(round=0, last=0.0),
        LoopRecord(round=2, last={"a": [1]}),
        JoinRecord(False),
        ApprovalRecord(id="ap_1", since=0.0, request={"summary": "s"}, votes=[{"by": "ann"}], fired=True),
    ],
)
def test_a_record_comes_back_with_the_very_values(record: Record) -> None:
    token = Token(frame="", at="a#1", node="a", status="running", record=record)
    written = json.dumps(token.to_json())
    read = Token.from_json(json.loads(written))
    assert repr(read) == repr(token), "0.0 is not 0"
    assert KEYS[type(record)] in json.loads(written)


def test_a_call_that_is_tried_again_comes_back_whole() -> None:
    call = RunActivity(at="a#1", activity="f", arguments={"n": 0.0}, timeout=5.0)
    record = RetryRecord(cause="x", message="m", since=1.0, attempts=2, call=call)
    read = RetryRecord.from_json(json.loads(json.dumps(record.to_json())), "a#1")
    assert read.call is not None
    assert read.call == call
