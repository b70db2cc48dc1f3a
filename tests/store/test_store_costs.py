"""What a turn costs in the store: bytes, measured exactly, and time, printed (`pytest -s`)."""

import random
import statistics
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from loom_store.rows import NewEntry
from loom_store.store import Store
from loom_store.transaction import Transaction
from tests.support.stores import sizes

JOB = "loom-researcher-20260101-000001"
SESSION = "session-20260101-000001"
WORDS = ("the", "store", "keeps", "what", "a", "job", "has", "said", "and", "done", "while", "workers", "come", "go")


def four_batches(turn: int) -> list[list[dict[str, Any]]]:
    """The events of one turn with one tool call: 24 in four flushes, as the machine makes them."""
    chance = random.Random(turn)
    call = f"call_{chance.getrandbits(96):024x}"

    def at(kind: str, **data: Any) -> dict[str, Any]:
        return {"t": kind, "n": turn, **data}

    def phase(name: str) -> tuple[dict[str, Any], dict[str, Any]]:
        return at("phase_start", name=name), at("phase_end", name=name)

    usage = {"prompt_tokens": chance.randint(1000, 9999), "completion_tokens": chance.randint(10, 99)}
    to_model = at("state", state="model_running", **{"from": "tool_running"})
    to_tool = at("state", state="tool_running", **{"from": "model_running"})
    result = at(
        "tool_result",
        tool_call_id=call,
        status="success",
        content={"$blob": f"{chance.getrandbits(256):064x}"},
        ms=chance.randint(1, 99),
    )
    return [
        [at("iteration_start", iteration=turn), *phase("guard"), *phase("assemble"), to_model],
        [
            phase("model")[0],
            at("llm_start", model="gpt-4.1-mini"),
            at("stream_start", stream=f"{turn}/model#1"),
            at("llm_finish", content={"$blob": f"{chance.getrandbits(256):064x}"}, usage=usage),
            phase("model")[1],
            to_tool,
        ],
        [
            phase("calls")[0],
            at("tool_calls_start", tool_count=1, tool_names=["read_file"]),
            at("tool_start", tool_call_id=call, tool="read_file"),
            result,
            at("tool_calls_complete", results_count=1),
            phase("calls")[1],
        ],
        [
            *phase("feedback"),
            *phase("recurse"),
            at("recursion", from_turn=f"{JOB}.{turn}", to_turn=f"{JOB}.{turn + 1}", depth=turn + 1),
            to_model,
        ],
    ]


def two_entries(turn: int) -> list[NewEntry]:
    chance = random.Random(turn)
    call = f"call_{chance.getrandbits(96):024x}"
    function = {"name": "read_file", "arguments": f'{{"path": "{chance.choice(WORDS)}/{chance.randint(0, 999)}.py"}}'}
    asks = {"role": "assistant", "tool_calls": [{"id": call, "type": "function", "function": function}]}
    answers = {"role": "tool", "tool_call_id": call, "name": "read_file", "status": "success"}
    content = " ".join(chance.choices(WORDS, k=24))
    return [
        NewEntry(kind="message", head=asks, job=JOB, turn=turn),
        NewEntry(kind="message", head=answers, content=content, job=JOB, turn=turn),
    ]


def write_turn(store: Store, turn: int) -> None:
    for n, batch in enumerate(four_batches(turn)):
        store.write_sync(lambda tx, n=n, batch=batch: tx.append_events(JOB, f"{JOB}/{turn}/flush/{n}", batch))
    store.write_sync(lambda tx: tx.append_entries(SESSION, f"{JOB}/{turn}/feedback#1/0", two_entries(turn)))


def test_a_turn_takes_at_most_1700_bytes_and_a_late_one_no_more_than_an_early_one(tmp_path: Path) -> None:
    with Store.open(tmp_path / "loom.db", synchronous="normal") as store:
        store.write_sync(lambda tx: tx.create_session(SESSION))
        totals = [sizes(store).total]
        for turn in range(1, 601):
            write_turn(store, turn)
            if turn % 200 == 0:
                totals.append(sizes(store).total)
        report = sizes(store)
    early, middle, late = ((after - before) / 200 for before, after in pairwise(totals))
    print(f"\nbytes per turn: {early:.0f}, {middle:.0f}, {late:.0f};", {k: v // 600 for k, v in report.tables.items()})
    assert late <= 1700
    assert late <= 1.1 * early


@pytest.mark.parametrize("synchronous", ["full", "normal"])
def test_the_usual_transactions_take_milliseconds(tmp_path: Path, synchronous: str) -> None:
    """Prints medians; the bound only catches a mistake of another order, for machines and their disks differ."""
    rounds = 100
    with Store.open(tmp_path / "loom.db", synchronous=synchronous) as store:
        store.write_sync(lambda tx: tx.create_session(SESSION))

        def both(tx: Transaction, turn: int) -> None:
            tx.append_events(JOB, f"{JOB}/{turn}/both", four_batches(turn)[2])
            tx.append_entries(SESSION, f"{JOB}/{turn}/both", two_entries(turn))
            tx.settle_effect(f"{JOB}/{turn}/call", "settled", tx.put_blob(b"result %d" % turn))

        def intent(tx: Transaction, turn: int) -> None:
            key = f"{JOB}/{turn}/call"
            tx.begin_effect(key, job=JOB, turn=turn, call_id="call", tool="write_file", arguments_digest="0" * 64)

        def read(tx: Transaction, turn: int) -> None:
            for entry in tx.read_entries(SESSION, 0, 200):
                if entry.content_digest is not None:
                    tx.get_blob(entry.content_digest)

        medians = {
            "6 events": median(rounds, store, lambda tx, n: tx.append_events(JOB, f"{n}", four_batches(n)[1])),
            "2 entries": median(rounds, store, lambda tx, n: tx.append_entries(SESSION, f"{n}", two_entries(n))),
            "intent": median(rounds, store, intent),
            "events, entries, settle": median(rounds, store, both),
            "200 entries, cached": median(rounds, store, read),
        }
    print(f"\n{synchronous}: median µs", {name: round(value * 1e6) for name, value in medians.items()})
    assert max(medians.values()) < 5


def median(rounds: int, store: Store, work: Callable[[Transaction, int], object]) -> float:
    def timed(n: int) -> float:
        began = time.perf_counter()
        store.write_sync(lambda tx: work(tx, n))
        return time.perf_counter() - began

    return statistics.median(timed(n) for n in range(rounds))
