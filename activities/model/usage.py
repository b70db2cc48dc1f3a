"""What attempts at a model call used that were lost after they had begun to answer."""

from collections import defaultdict

from activities.record.activity_call import ActivityCall
from loom_dsl.agent.context import estimate_tokens
from loom_dsl.observe.events import EventType
from loom_store.transaction import Transaction


def stream_of(call: ActivityCall) -> str:
    """Name the stream of a model call's text."""
    return f"{call.turn}/{call.at}"


def start_of(call: ActivityCall) -> str:
    """Name the batch of events with which a model call begins."""
    return f"{stream_of(call)}/start"


def lost_before(tx: Transaction, call: ActivityCall, prompt_tokens: int) -> dict[str, int]:
    """Estimate the tokens of the attempts before this one of which watchers have seen text; nothing where none was.

    A lost attempt tells no usage: it has read what the kept one reads, and written at least what was seen.

    Args:
        tx: Of the store that has the text.
        call: The kept attempt.
        prompt_tokens: What the kept attempt has read.
    """
    if call.attempt == 1:
        return {}
    texts: dict[int, list[str]] = defaultdict(list)
    after, stream = tx.append_events(call.job, start_of(call), [])[0], stream_of(call)
    for _, event in tx.each_event(call.job, after):
        if event.get("type") == EventType.LLM_DELTA and event["stream"] == stream:
            texts[event["attempt"]].append(event["content"])
    lost = ["".join(pieces) for attempt, pieces in texts.items() if attempt < call.attempt]
    if not lost:
        return {}
    written = sum(estimate_tokens(text) for text in lost)
    return {"prompt_tokens": prompt_tokens * len(lost), "completion_tokens": written}
