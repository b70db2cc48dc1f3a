"""What the store holds of any job and question, the client's records can say."""

from pathlib import Path
from typing import Any, cast

import pytest
from pydantic import ValidationError
from temporalio.client import Client

from loom_client.client import Loom
from loom_client.settings import Settings
from loom_dsl.errors import LoomError
from loom_dsl.machine.status import JobStatus
from loom_store.rows import ApprovalRow, as_text
from loom_store.store import Store


@pytest.mark.parametrize("given", [None, {"cost": 3}, 7, "a text"])
async def test_a_question_of_any_form_can_be_listed(tmp_path: Path, given: object) -> None:
    """A graph's question is whatever its author has put together: its texts may be none."""
    with Store.open(tmp_path / "loom.db") as store:
        texts: Any = dict.fromkeys(("tool", "summary", "reason", "requester", "call_id"), given)
        row = ApprovalRow(id="ap_1", job="one", arguments_digest="", created_at=0.0, **texts)
        await store.write(lambda tx: tx.upsert_approval(row))
        (listed,) = await Loom(cast(Client, None), store, Settings()).approvals()
    assert (listed.summary, listed.requester) == (as_text(given), as_text(given))


@pytest.mark.parametrize("turn", [{"schema_version": 999}, {"an_unknown_field": 1}])
def test_a_turn_of_another_release_is_refused_in_words(turn: dict[str, Any]) -> None:
    with pytest.raises((LoomError, ValidationError)) as caught:
        JobStatus.model_validate({"state": "model_running", "turn": turn})
    assert isinstance(caught.value, LoomError), caught.value
