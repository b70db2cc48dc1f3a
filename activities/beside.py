"""Work on what a model wrote that may take long, beside the event loop, which all jobs of a worker share."""

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ParamSpec, TypeVar

SMALL = 1_000
"""Characters of arguments on which any work is done at once."""

_P = ParamSpec("_P")
_R = TypeVar("_R")


async def beside(arguments: Mapping[str, Any], work: Callable[_P, _R], *args: _P.args, **kwargs: _P.kwargs) -> _R:
    """Call a function; when the arguments of the tool call that it looks at are large, in a thread.

    A heartbeat is sent in time then, whatever the line is that a policy is held against.

    Args:
        arguments: Those of the tool call.
        work: The function, which must not touch what the event loop changes.
        args: What it is given.
        kwargs: What it is given by name.
    """
    if sum(len(value) for value in arguments.values() if isinstance(value, str)) <= SMALL:
        return work(*args, **kwargs)
    return await asyncio.to_thread(partial(work, *args, **kwargs))
