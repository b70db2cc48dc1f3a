"""What people see of a compression: the log, and what each turn took."""

import logging

import pytest

from loom_cli.commands.show.recursion import chain, recursion_tree
from loom_store.transaction import Transaction
from tests.durability.conftest import Opener
from tests.durability.test_compression import LOOKS, SMALL, WINDOW, cases

pytestmark = pytest.mark.server
LOGGER = "loom.agent"


async def test_the_turns_of_a_job_have_all_its_tokens_also_those_of_its_notes(house: Opener) -> None:
    opened = await house(LOOKS, cases=cases())
    async with opened.inside():
        job = await opened.start(opened.agent(limits=SMALL))
        result = await job.result()

    def read(tx: Transaction) -> tuple[list[int], list[int]]:
        row = tx.job(job.id)
        assert row is not None
        turns = recursion_tree(tx, row)["turns"]
        tokens = [turn["usage"]["prompt_tokens"] for turn in chain(tx, row)]
        return tokens, [len(turn["compressions"]) for turn in turns]

    tokens, compressions = await opened.loom.store.read(read)
    assert sum(tokens) == result.usage.prompt_tokens
    assert compressions == [0] * (len(compressions) - 1) + [1]
    assert tokens[-1] > 7_000  # one of the calls for notes used as many


async def test_the_log_tells_a_turn_that_is_compressed_in_order_and_that_it_begins_once(
    house: Opener, caplog: pytest.LogCaptureFixture
) -> None:
    opened = await house(LOOKS, cases=cases(), window=WINDOW)
    with caplog.at_level(logging.INFO, logger=LOGGER):
        async with opened.inside():
            job = await opened.start()
            await job.result()
    lines = [record.getMessage().removeprefix(f"job {job.id} ") for record in caplog.records if record.name == LOGGER]
    depth = next(line for line in lines if "was compressed" in line).split(":")[0]
    told = [line.removeprefix(f"{depth}: ") for line in lines if line.startswith(f"{depth}:")]
    number = int(depth.removeprefix("depth ")) + 1
    steps = [
        # Each once, or again where a busy machine had a step done again.
        f"turn {number} begins",
        "loom.model.call failed: context_length",
        "the conversation was compressed after",
        "the model answered after",
        f"turn {number} ended after",
    ]
    first = [next((at for at, line in enumerate(told) if line.startswith(step)), -1) for step in steps]
    assert first == sorted(first)
    assert first[0] == 0
    assert [line for line in told if not line.startswith(tuple(steps))] == []
    assert told.count(steps[0]) == 1
