"""What a job commands at once goes out in parts that the server takes."""

import asyncio

import pytest

from workflows.activities import MAX_COMMANDED, Sending


class Tasks:
    """Counts the workflow tasks, and what was sent with each."""

    def __init__(self) -> None:
        self.sent: list[list[int]] = [[]]
        self.sending = Sending(self._pause)

    async def _pause(self, seconds: float) -> None:
        await asyncio.sleep(0)
        self.sent.append([])

    async def send(self, size: int) -> None:
        await self.sending.room(size)
        self.sent[-1].append(size)


HALF, MUCH = MAX_COMMANDED // 2, MAX_COMMANDED + 1


@pytest.mark.parametrize(
    ("sizes", "sent"),
    [
        ([1, 2, 3], [[1, 2, 3]]),
        ([HALF, HALF, HALF], [[HALF, HALF], [HALF]]),
        ([HALF, HALF, HALF, 1, HALF], [[HALF, HALF], [HALF, 1], [HALF]]),
        ([MUCH, MUCH, 1], [[MUCH], [MUCH], [1]]),
        ([1, MUCH, 1], [[1], [MUCH], [1]]),
    ],
)
async def test_commands_go_out_in_their_order_as_many_as_a_task_can_carry(
    sizes: list[int], sent: list[list[int]]
) -> None:
    tasks = Tasks()
    await asyncio.gather(*(tasks.send(size) for size in sizes))
    assert tasks.sent == sent


async def test_one_that_is_cancelled_while_it_waits_holds_nobody_up() -> None:
    tasks = Tasks()
    waiting = [asyncio.create_task(tasks.send(size)) for size in (MUCH, MUCH, 1)]
    await asyncio.sleep(0)
    waiting[1].cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    assert tasks.sent == [[MUCH], [1]]


async def test_what_was_sent_counts_until_another_task_has_begun() -> None:
    tasks = Tasks()
    for _ in range(3):
        await tasks.send(HALF)
    assert tasks.sent == [[HALF, HALF], [HALF]]
