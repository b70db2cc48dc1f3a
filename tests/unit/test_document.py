import subprocess
import sys
import time
from collections.abc import Callable
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field

from loom_dsl.agent.definition import load_agent
from loom_dsl.documents.document import MAX_DOCUMENT, load_document, load_yaml
from loom_dsl.documents.validation import validate_model
from loom_dsl.errors import Diagnostic, DocumentError
from loom_dsl.observe.webhooks import read_webhooks

HEAD = "loom: 1\nkind: agent\n"
AGENT = """\
loom: 1
kind: agent
name: researcher
model: gpt-4.1-mini
instructions: |
  You read a code base.
  Then you write what you found.
tools: [glob, "my_tools:lookup"]
permissions: {allow: [glob], ask: ["write_file(reports/**)"], default: ask}
limits: &l {max_iterations: 50, max_run_duration: 2h}
parameters: {temperature: 0.2, stop: ['é', "\\n"]}
"""


def refusals(text: str | bytes, **options: Any) -> list[Diagnostic]:
    with pytest.raises(DocumentError) as caught:
        load_document(text, "a.yaml", **options)
    return caught.value.diagnostics


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("on", "on"),
        ("no", "no"),
        ("true", True),
        ("False", False),
        ("null", None),
        ("~", None),
        ("", None),
        ("12", 12),
        ("-3", -3),
        ("1.50", 1.5),
        ("1e3", 1000.0),
        ("007", "007"),
        ("0o17", "0o17"),
        ("0x1F", "0x1F"),
        ("1_000", "1_000"),
        ("1:30", "1:30"),
        ("2024-01-02", "2024-01-02"),
        ("'12'", "12"),
        ('"\\u00e9"', "é"),
        ("!!str 12", "12"),
        ("[1, two, [3]]", [1, "two", [3]]),
        ("{a: 1, true: 2, 3: c}", {"a": 1, "true": 2, "3": "c"}),
    ],
)
def test_scalars_mean_what_json_can_say(written: str, value: object) -> None:
    found = load_document(f"{HEAD}x: {written}\n", "a.yaml").data["x"]

    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("text", "code", "line", "column", "words"),
    [
        ("", "L001", 1, 1, "empty"),
        ("- a\n- b\n", "L001", 1, 1, "a list, not a mapping"),
        ("just words", "L001", 1, 1, "a text, not a mapping"),
        (HEAD + "x: [1, 2\n", "L001", 4, 1, "expected ',' or ']'"),
        (HEAD + "x:\n\t- a\n", "L001", 4, 1, "a tab is used for indentation"),
        (HEAD + "x: b: c\n", "L001", 3, 5, "mapping values are not allowed"),
        (HEAD + "x: @home\n", "L001", 3, 4, "cannot start any token"),
        (HEAD + "x: \x01\n", "L001", 3, 4, "special characters are not allowed"),
        (HEAD + "x: 'open\n", "L001", None, None, "quoted scalar"),
        (HEAD + "x: *nowhere\n", "L001", 3, 4, "no anchor `&nowhere`"),
        (HEAD + "x: !!python/object:os.system {}\n", "L001", 3, 4, "tag"),
        (HEAD + "x: !!int '3'\n", "L001", 3, 4, "tag"),
        (HEAD + "x: &a {p: 1}\ny:\n  <<: *a\n", "L001", 5, 3, "merge keys"),
        (HEAD + "? {a: 1}\n: 2\n", "L001", 3, 3, "name must be text"),
        (HEAD + "x: {{input.repo}}\n", "L001", 3, 5, 'write an expression as a text: "${input.x}"'),
        (HEAD + "---\na: 1\n", "L001", 3, 1, "second document"),
        (HEAD + 'x: "\\ud800"\n', "L001", 3, 4, "surrogate"),
        (HEAD + "x: 99999999999999999999\n", "L004", 3, 4, "64 bits"),
        (HEAD + f"x: {'9' * 5000}\n", "L004", 3, 4, "64 bits"),
        (HEAD + "x: 1e999\n", "L004", 3, 4, "too large"),
        (HEAD + "x: 1\ny: 2\nx: 3\n", "L005", 5, 1, "first on line 3, again on line 5"),
        (HEAD + "x: {a: 1, 'a': 2}\n", "L005", 3, 11, "duplicate field `a`"),
        ("kind: agent\n", "L006", 1, 1, "missing `loom: 1`"),
        ("loom: 1\n", "L006", 1, 1, "missing `kind`"),
        ("kind: agent\nloom: 2\n", "L006", 2, 7, "unknown version 2"),
        ("kind: agent\nloom: '1'\n", "L006", 2, 7, "unknown version '1'"),
        ("kind: agent\nloom: true\n", "L006", 2, 7, "unknown version true"),
        ("kind: agnet\nloom: 1\n", "L006", 1, 7, "unknown kind 'agnet'"),
        ("kind: [agent]\nloom: 1\n", "L006", 1, 7, "unknown kind"),
        (HEAD.encode() + b"x: caf\xe9\n", "L007", 3, 7, "byte 0xe9 is not UTF-8"),
        ((HEAD + "x: 1\n").encode("utf-16"), "L007", None, None, "UTF-16"),
        (HEAD + "#" * MAX_DOCUMENT, "L007", None, None, "over 1,000,000 bytes"),
        ((HEAD + "#" * MAX_DOCUMENT).encode(), "L007", None, None, "over 1,000,000 bytes"),
        (HEAD + "# " + "é" * (MAX_DOCUMENT // 2), "L007", None, None, "over 1,000,000 bytes"),
        (HEAD + "x: " + "[" * 70 + "]" * 70, "L007", 3, 68, "deeper than 64"),
        (HEAD + "x: &a [*a]\n", "L007", 3, 4, "nest the document deeper"),
    ],
)
def test_a_bad_document_is_refused_with_code_and_place(
    text: str | bytes, code: str, line: int | None, column: int | None, words: str
) -> None:
    found = refusals(text)[0]

    assert (found.code, found.file) == (code, "a.yaml")
    assert words in str(found)
    if line:
        assert (found.line, found.column) == (line, column)


def test_an_expression_between_braces_without_quotes_is_told_to_want_them() -> None:
    for line in ("x: {end: ${nodes.a}}", "x: [1, ${nodes.a}]"):
        with pytest.raises(DocumentError) as caught:
            load_document(HEAD + line + "\n", "f.yaml")
        assert caught.value.diagnostics[0].fix == 'between braces an expression stands in quotes: "${...}"'


def test_a_billion_laughs_are_refused_at_once() -> None:
    layers = "".join(f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 10)}]\n" for n in range(1, 10))
    started = time.process_time()

    found = refusals(f"{HEAD}l0: &l0 [ha, ha]\n{layers}")[0]

    assert (found.code, "over 50,000 values" in found.message) == ("L007", True)
    assert time.process_time() - started < 2


def test_a_megabyte_of_brackets_is_refused_at_once() -> None:
    started = time.process_time()

    assert refusals(HEAD + "x: " + "[" * 900_000)[0].code == "L007"
    assert time.process_time() - started < 2


def test_aliases_within_the_limits_are_written_out() -> None:
    data = load_document(HEAD + "x: &a {p: [1]}\ny: *a\nz: [*a, *a]\n", "a.yaml").data

    assert data["y"] == {"p": [1]}
    assert data["z"] == [{"p": [1]}, {"p": [1]}]


@pytest.mark.parametrize(
    "text", ["\ufeff" + HEAD, ("\ufeff" + HEAD).encode(), HEAD.encode(), HEAD.replace("\n", "\r\n")]
)
def test_a_byte_order_mark_and_windows_line_ends_are_accepted(text: str | bytes) -> None:
    assert load_document(text, "a.yaml").data == {"loom": 1, "kind": "agent"}


def test_every_value_and_key_has_its_place() -> None:
    document = load_document(HEAD + "a:\n  b: [1, {c: 2}]\n", "a.yaml")

    assert document.position(("a", "b", 1, "c")) == (4, 14)
    assert document.position(("a", "b", 1, "c"), key=True) == (4, 11)
    assert document.position(("a", "b", 0)) == (4, 7)
    assert document.position(("a", "nothing", "there")) == document.position(("a",)) == (4, 3)
    assert document.position() == (1, 1)
    assert document.at(("a", "b", 1, "c")) == 2


def test_a_document_of_another_kind_is_refused() -> None:
    assert "`kind: graph`" in refusals(HEAD, kinds=("graph",))[0].fix


def test_yaml_without_a_header_is_read_when_asked_for() -> None:
    assert load_yaml("services:\n  temporal: {ports: ['1:2']}\n", "dev.yml").data == {
        "services": {"temporal": {"ports": ["1:2"]}}
    }


class Fox(BaseModel):
    model_config = ConfigDict(extra="forbid")
    kind: Literal["fox"]
    cunning: int


class Owl(BaseModel):
    model_config = ConfigDict(extra="forbid")
    kind: Literal["owl"]
    wisdom: int


class Forest(BaseModel):
    model_config = ConfigDict(extra="forbid")
    trees: int = 0
    animals: dict[str, Annotated[Fox | Owl, Field(discriminator="kind")]] = {}
    paths: tuple[Owl, ...] = ()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("treees: 3\n", "a.yaml:3:1: L002 unknown field `treees`; did you mean `trees`?"),
        ("zzz: 3\n", "a.yaml:3:1: L002 unknown field `zzz` (known fields: animals, paths, trees)"),
        ("trees: many\n", "a.yaml:3:8: L004 `trees`: should be a whole number, not 'many'"),
        ("trees: [1]\n", "a.yaml:3:8: L004 `trees`: should be a whole number, not a list"),
        ("animals: 4\n", "a.yaml:3:10: L004 `animals`: should be a mapping, not 4"),
        ("animals: {x: {kind: fox}}\n", "a.yaml:3:14: L003 missing field `cunning` in `animals.x` (add it)"),
        (
            "animals: {x: {kind: owl, wisdm: 1, wisdom: 2}}\n",
            "a.yaml:3:26: L002 unknown field `wisdm`; did you mean `wisdom`?",
        ),
        ("paths: [{kind: owl, wisdom: a}]\n", "a.yaml:3:29: L004 `paths[0].wisdom`: should be a whole number, not 'a'"),
    ],
)
def test_what_does_not_fit_the_model_is_said_with_its_place(text: str, expected: str) -> None:
    with pytest.raises(DocumentError) as caught:
        validate_model(load_document(HEAD + text, "a.yaml"), Forest)

    assert str(caught.value) == expected


def test_all_findings_come_at_once_in_the_order_of_the_document() -> None:
    with pytest.raises(DocumentError) as caught:
        validate_model(load_document(HEAD + "tres: 1\ntrees: x\npaths: 3\n", "a.yaml"), Forest)

    assert [(d.code, d.line) for d in caught.value.diagnostics] == [("L002", 3), ("L004", 4), ("L004", 5)]


def test_a_list_whose_member_is_wrong_is_not_also_called_too_short() -> None:
    with pytest.raises(DocumentError) as caught:
        read_webhooks("loom: 1\nkind: webhooks\nendpoints:\n  - {name: a, url: 'htp://x', secret: A}\n", "w.yaml")
    assert [(found.line, found.code) for found in caught.value.diagnostics] == [(4, "L004")]
    with pytest.raises(DocumentError, match="`endpoints`: should have at least 1 members"):
        read_webhooks("loom: 1\nkind: webhooks\nendpoints: []\n", "w.yaml")


def test_the_reader_of_yaml_is_imported_only_by_those_who_read() -> None:
    code = "import sys, loom_dsl.agent.definition; sys.exit(any(name.startswith('ruamel') for name in sys.modules))"

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


EDITS = st.lists(
    st.tuples(
        st.integers(0, len(AGENT)),
        st.integers(0, 12),
        st.sampled_from(
            [
                "",
                "\t",
                "\n",
                ": ",
                "- ",
                "&l ",
                "*l",
                "!!int ",
                "[",
                "}",
                "'",
                '"',
                "\x00",
                "\\x",
                "%YAML 9\n",
                "? ",
                "|",
                "--- ",
                "<<",
                "${env:X}",
                "${",
            ]
        )
        | st.text(max_size=4),
    ),
    min_size=1,
    max_size=4,
)


CODES = {"L001", "L002", "L003", "L004", "L005", "L006", "L007", "L008"}


def complaints(read: Callable[[], object]) -> list[Diagnostic]:
    try:
        read()
    except DocumentError as error:
        return error.diagnostics or [Diagnostic("L000", "refused without a reason")]
    return []


@given(EDITS)
def test_a_damaged_document_is_read_or_refused_but_nothing_else(edits: list[tuple[int, int, str]]) -> None:
    text = AGENT
    for start, length, replacement in edits:
        text = text[:start] + replacement + text[start + length :]
    assert {found.code for found in complaints(lambda: load_agent(text, "a.yaml", {"X": "1"}))} <= CODES


@given(st.binary(max_size=60) | st.text(max_size=60))
def test_any_bytes_are_read_or_refused_but_nothing_else(text: bytes | str) -> None:
    assert {found.code for found in complaints(lambda: load_yaml(text, "a.yaml"))} <= CODES
