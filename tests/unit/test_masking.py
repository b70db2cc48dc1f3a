"""What looks like a secret is found in texts that others wrote, and nothing is written down beside the masking."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from activities.chat.reply import ToolCall
from activities.model.tool_calls import kept_calls
from activities.observe.events import store_events
from activities.record.activity_call import ActivityCall
from loom_store.store import Store
from loom_store.transaction import Transaction
from loom_tools.masking import redact, redact_values
from loom_tools.secret_scanner import SecretScanner

CORPUS = [json.loads(line) for line in Path("tests/fixtures/secrets/gitleaks.jsonl").read_text().splitlines()]
"""Of the corpus of gitleaks (MIT, tests/fixtures/secrets/LICENSE): two examples of each rule drawn with seed 13, and
all that are harmless, but those that stand among the secrets, too."""
GITHUB = "ghp_x7Kq2mVb9TzL4pRw8sNc1yHf6JdG3aQeU5oi"


def _share(secret: bool) -> float:
    texts = [each["text"] for each in CORPUS if each["secret"] is secret]
    return sum(redact(text) != text for text in texts) / len(texts)


def test_the_secrets_of_a_corpus_are_found_and_its_harmless_texts_stay() -> None:
    assert _share(secret=True) >= 0.97
    assert _share(secret=False) <= 0.05


@pytest.mark.parametrize("each", CORPUS[::5], ids=lambda each: each["rule"])
def test_masking_a_text_of_the_corpus_twice_is_masking_it_once(each: dict[str, Any]) -> None:
    once = redact(each["text"])
    assert redact(once) == once


@pytest.mark.parametrize(
    "before",
    ["", "é", "日本語 ", "\ufeff", "\x00\x00", "a\x00b\x00", "\ud800 ", "😀" * 9, "x\n" * 20_000, "é\n" * 16_383, "ÿþ"],
    ids=repr,
)
def test_a_token_is_masked_where_it_stands_whatever_is_before_it(before: str) -> None:
    assert redact(f"{before} {GITHUB} é") == f"{before} [redacted:github-token] é"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ('X_TOKEN ?= "V"', 'X_TOKEN ?= "M"'),
        ('X_TOKEN ::= "V"', 'X_TOKEN ::= "M"'),
        ('System.setProperty("X_TOKEN", "V")', 'System.setProperty("X_TOKEN", "M")'),
        ("xToken := `V`", "xToken := `M`"),
        ('$xToken .= "V"', '$xToken .= "M"'),
        ("<xToken>V</xToken>", "<xToken>M</xToken>"),
        ("<xToken>\n    V\n</xToken>", "<xToken>\n    M\n</xToken>"),
        ('<add key="ApiKey" value="V" />', '<add key="ApiKey" value="M" />'),
        ('{"name": "X_TOKEN", "value": "V"}', '{"name": "X_TOKEN", "value": "M"}'),
        ("- name: X_TOKEN\n  value: V", "- name: X_TOKEN\n  value: M"),
        ("x_token: |\n  V", "x_token: |\n  M"),
        ('val xToken: String = "V"', 'val xToken: String = "M"'),
        ('string xToken = "V";', 'string xToken = "M";'),
        ("x-api-key: V", "x-api-key: M"),
        ("tool --token V --user me", "tool --token M --user me"),
        ("https://example.com/a?access_token=V&b=c", "https://example.com/a?access_token=M&b=c"),
        ("Server=db;User=me;Password=V;", "Server=db;User=me;Password=M;"),
        ('{"config": "X_TOKEN=V\\nB=true"}', '{"config": "X_TOKEN=M\\nB=true"}'),
        ("config['secret_key'] = 'V'", "config['secret_key'] = 'M'"),
        ("kind: Secret\ndata:\n  extra: VVVV", "kind: Secret\ndata:\n  extra: M"),
    ],
)
def test_a_value_is_masked_beside_its_name_however_both_are_written(text: str, shown: str) -> None:
    assert redact(text.replace("V", "p29rmj8l0ibk38qgph0n087f")) == shown.replace("M", "[redacted:named]")


def test_values_beside_telling_keys_of_json_are_masked() -> None:
    given = {"user": "me", "password": "hunter22x", "more": [{"api_key": 'a1"b2c3d4e5f6', "n": 5}], "note": GITHUB}
    named, token = "[redacted:named]", "[redacted:github-token]"
    assert redact_values(given) == {
        "user": "me",
        "password": named,
        "more": [{"api_key": named, "n": 5}],
        "note": token,
    }


def test_a_text_is_not_let_through_because_the_rules_are_not_loaded() -> None:
    scanner = SecretScanner()
    assert not scanner.is_loaded
    assert [found.kind for found in scanner.find(GITHUB) if found.rank == 0] == ["github-token"]


# Nothing is told beside the masking: whoever made up a name, an id or a choice.


def _create(tx: Transaction) -> None:
    tx.create_session("session")
    place = {"workdir": "/", "namespace": "default", "task_queue": "loom"}
    tx.create_job("job", session="session", agent="a", plan=tx.put_blob(b"{}"), task="", created_at=1.0, **place)


KNOWN = {"SHELF": "s3cr3t/Value-of-a-shelf"}
SECRETS = [KNOWN["SHELF"], GITHUB]


@pytest.mark.parametrize("secret", SECRETS)
def test_a_secret_in_a_tools_name_or_a_calls_id_leaves_the_model_no_further(secret: str) -> None:
    kept = json.dumps(kept_calls([ToolCall(id=f"call {secret}", name=f"run {secret}", arguments="{}", index=0)], KNOWN))
    assert secret not in kept
    assert secret.replace("/", "_") not in kept


@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize("field", ["approval_id", "by", "choice", "message", "tool", "node", "key", "event", "made up"])
async def test_a_secret_in_any_field_of_an_event_reaches_neither_events_nor_trail(
    tmp_path: Path, field: str, secret: str
) -> None:
    refused = {"t": "warning", "n": 1, "code": "signal_refused", "message": "refused", field: f"is {secret}"}
    asked = {"t": "approval_requested", "n": 1, "approval_id": "ap_1", "tool": "t", "at": 1.0, field: secret}
    control = {"t": "control", "n": 1, "op": "pause", "by": "me", "more": [{secret: field}], field: secret}
    events = [refused, asked | {"call_id": "c", "request": {"summary": secret, "arguments": ""}}, control]
    with Store.open(tmp_path / "store.db") as store:
        store.mask_with(partial(redact, known=KNOWN))
        call = ActivityCall("job", 1, "at", "session", {}, [[1, events]])
        await store.write(_create)
        for _ in range(2):  # told again, it is known again
            await store.write(lambda tx: store_events(tx, call))
        told = await store.read(lambda tx: [event for _, event in tx.read_events("job")])
        trail = await store.read(lambda tx: [entry.data for entry in tx.audit_entries()])
        questions = await store.read(lambda tx: tx.approvals())
    assert len(told) == 3
    assert len(trail) == 3
    assert secret not in json.dumps([told, trail, questions], default=str)
