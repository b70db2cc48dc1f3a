"""Whatever bytes a stranger sends, a value comes out or the reason why not."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_dsl.machine.payloads import read_payload
from loom_dsl.text.canonical import canonical_json

MAX_BYTES = 1_000


@pytest.mark.parametrize(
    ("data", "value"),
    [(b"{}", {}), (b'{"a": [1, 2.5, null, "\xc3\xa9"]}', {"a": [1, 2.5, None, "é"]}), (b'"\\u00e9"', "é"),
     (b" 5 ", 5), (b"null", None), (b"true", True), (b'"\\ud83d\\ude00"', "😀"), (b'{"a":1,"a":2}', {"a": 2}),
     (b"\xef\xbb\xbf{}", {})],
)  # fmt: skip
@pytest.mark.parametrize("encoding", ["json/plain", "json/protobuf"])
def test_json_is_read(data: bytes, value: Any, encoding: str) -> None:
    assert read_payload(data, encoding, MAX_BYTES) == (value, "")


def test_the_null_of_temporal_is_null() -> None:
    assert read_payload(b"", "binary/null", MAX_BYTES) == (None, "")


@pytest.mark.parametrize(
    ("data", "encoding", "problem"),
    [
        (b"{}", "", "encoding is ''"),
        (b"{}", "binary/plain", "encoding is 'binary/plain'; send json/plain"),
        (b"{}", "binary/encrypted" + "x" * 500, "send json/plain"),
        (b"x" * (MAX_BYTES + 1), "json/plain", f"has {MAX_BYTES + 1} bytes; the limit is {MAX_BYTES}"),
        (b"", "json/plain", "not JSON"),
        (b"{", "json/plain", "not JSON"),
        (b"{} {}", "json/plain", "not JSON"),
        (b"{'a': 1}", "json/plain", "not JSON"),
        (b"NaN", "json/plain", "not JSON"),
        (b"[1e999]", "json/plain", "not JSON"),
        (b"-Infinity", "json/plain", "not JSON"),
        (b'"\xff"', "json/plain", "not JSON"),
        (b'"\\ud800"', "json/plain", "not JSON"),
        (b'{"\\udfff": 1}', "json/plain", "not JSON"),
        (b'"\x00"', "json/plain", "not JSON"),
        ('{"a":1}'.encode("utf-16"), "json/plain", "not JSON"),
        ('{"a":1}'.encode("utf-32"), "json/plain", "not JSON"),
    ],
)
def test_what_cannot_be_read_is_told(data: bytes, encoding: str, problem: str) -> None:
    value, told = read_payload(data, encoding, MAX_BYTES)
    assert value is None
    assert problem in told
    assert len(told) < 200


@pytest.mark.parametrize("data", [b"[" * 100_000, b'{"a":' * 50_000, b"9" * 100_000])
def test_what_is_nested_or_long_beyond_sense_is_told(data: bytes) -> None:
    assert read_payload(data, "json/plain", 1_000_000)[1] == "the payload is not JSON in UTF-8"


@given(st.binary(max_size=200), st.sampled_from(["json/plain", "binary/null", "x"]))
def test_no_bytes_make_it_fail(data: bytes, encoding: str) -> None:
    value, problem = read_payload(data, encoding, 150)
    assert value is None or not problem
    canonical_json(value).encode()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)


@given(JSON)
def test_every_json_value_comes_through(value: Any) -> None:
    assert read_payload(json.dumps(value).encode(), "json/plain", 10**6) == (value, "")
