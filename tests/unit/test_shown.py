"""What other systems are given to show hides nothing, and says what it leaves out."""

import json

from loom_dsl.observe.webhooks import MAX_SHOWN, shown

ASKED = {"tool": "send", "summary": "send to аnn\u202etxt\x1b[2K", "risk": "high", "arguments": "a" * 64}
DATA = {"job": "job-1", "agent": "scribe", "approval_id": "ap_1", "request": ASKED}


def test_what_hides_or_looks_like_something_else_is_an_escape_in_title_and_text() -> None:
    found = shown({**DATA, "content": {"to": "аnn", "text": "a\u202eb\u2028c" + " " * 3000 + "x"}})
    assert found["title"] == "send to \\u0430nn\\u202etxt\\x1b[2K"
    assert found["text"].splitlines()[:2] == [
        "Job job-1 of scribe asks: send to \\u0430nn\\u202etxt\\x1b[2K", "tool: send",
    ]  # fmt: skip
    assert '"to": "\\u0430nn"' in found["text"]
    assert "a\\u202eb\\u2028c␠×3000x" in found["text"]
    assert found["left_out"] == 0


def test_what_is_left_out_is_said_with_the_way_to_see_it() -> None:
    content = {"text": "word " * 2_000}
    found = shown({**DATA, "content": content})
    assert len(found["text"]) <= MAX_SHOWN
    kept, _, last = found["text"].rpartition("\n")
    assert last == f"… {found['left_out']} more characters are not shown here: loom approvals ap_1"
    whole = shown({**DATA, "content": content}, most=100_000)["text"]
    assert whole == kept + whole[-found["left_out"] :]
    assert json.dumps(content, indent=2) in whole


def test_arguments_that_are_not_told_and_a_question_without_a_summary_are_said_so() -> None:
    assert shown(DATA)["text"].endswith("\nThe arguments are not in this message.")
    bare = shown({**DATA, "request": {}})
    assert (bare["title"], bare["text"]) == ("a question", "Job job-1 of scribe asks: a question")
    assert shown({**DATA, "request": "a text"})["title"] == "a question"
    assert len(shown({**DATA, "request": {"summary": "s" * 300}})["title"]) == 120
