"""What the reference says about signatures is what Loom signs: another program can be written by it."""

import json

from loom_client.signing import SigningKey
from loom_dsl.approvals.decision import Decision
from loom_dsl.approvals.signature import signed_text
from tests.docs.markdown import ROOT, blocks

PRIVATE = "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60"


def test_the_example_of_a_signature_is_what_loom_makes() -> None:
    page = ROOT / "docs" / "reference" / "decisions.md"
    found = list(blocks(page))
    (text,) = (block.text.rstrip("\n") for block in found if "signed" in block.words)
    (payload,) = (json.loads(block.text) for block in found if '"signature"' in block.text and block.language == "json")
    assert PRIVATE in page.read_text(encoding="utf-8")
    assert signed_text(Decision.model_validate(payload), "write_file", "agent hello").decode() == text
    given = payload.pop("signature")
    key = SigningKey("maria", bytes.fromhex(PRIVATE))
    facts = {"job": "ask-1", "tool": "write_file", "requester": "agent hello"}
    again = key.sign(payload, **facts, now=given["issued_at"], nonce=given["nonce"])
    assert again["signature"] == given
