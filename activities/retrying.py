"""A tool's own retries: its function is called again while it raises, within the time of one call.

The attempts of the engine are for what no function can tell, such as a worker that died; they have no limit.
"""

from collections.abc import Awaitable, Callable
from typing import Any

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, stop_after_attempt, wait_exponential

from activities.progress import Progress
from activities.tool_run import describe
from activities.users_code import Raised
from loom_dsl.errors import LoomError
from loom_dsl.parts import Retry


async def run_again(run: Callable[[], Awaitable[Any]], retry: Retry, progress: Progress) -> Any:
    """Run a function as often as its tool's `retry` says, and tell watchers of each failure that is not the last.

    Args:
        run: Calls the function once.
        retry: How often, and how soon.
        progress: Takes what is told.

    Raises:
        Raised: The function raised at last, or something that another attempt does not change.
    """

    def tell(state: RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome else None
        wait = state.upcoming_sleep
        why = describe(error.error) if isinstance(error, Raised) else ""
        progress(f"attempt {state.attempt_number} of {retry.attempts} failed ({why}); the next one in {wait:g} s")

    attempts = AsyncRetrying(
        stop=stop_after_attempt(retry.attempts),
        wait=wait_exponential(multiplier=retry.initial, exp_base=retry.backoff, max=retry.longest),
        retry=retry_if_exception(_may_pass),
        before_sleep=tell,
        reraise=True,
    )
    return await attempts(run)


def _may_pass(raised: BaseException) -> bool:
    """Whether another attempt may go better. What a tool says in Loom's own errors is meant for the model."""
    if not isinstance(raised, Raised):
        return False
    return isinstance(raised.error, Exception) and not isinstance(raised.error, LoomError)
