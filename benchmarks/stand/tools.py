"""The tools of the benchmarks: they do nothing, so that what is measured is everything around them."""

import asyncio
import hashlib
import time

from loom_dsl.tools.tool import tool

_WORDS = (
    "the",
    "of",
    "to",
    "in",
    "it",
    "is",
    "on",
    "for",
    "with",
    "as",
    "was",
    "that",
    "file",
    "line",
    "name",
    "value",
)


def text_of(seed: str, size: int) -> str:
    """Give `size` characters that look like text, another one for each seed."""
    words: list[str] = []
    length, state = 0, seed.encode()
    while length < size:
        state = hashlib.sha256(state).digest()
        for byte in state:
            # Names among the words, so that it deflates as text does and not as a list of thirty words.
            word = _WORDS[byte % len(_WORDS)] if byte < 180 else state[:3].hex() + str(byte)
            words.append(word)
            length += len(word) + 1
    return " ".join(words)[:size]


@tool(read_only=True, quick=True)
def lookup(key: str, size: int = 40) -> str:
    """Look something up at once, in the worker's own memory.

    Args:
        key: What to look up.
        size: Characters of the answer.
    """
    return text_of(key, size)


@tool(read_only=True)
def fetch(key: str, size: int = 40) -> str:
    """Look something up elsewhere: not declared quick, so it runs as a remote activity.

    Args:
        key: What to look up.
        size: Characters of the answer.
    """
    return text_of(key, size)


@tool(read_only=True)
def nap(key: str) -> str:
    """Take a second, as a plain function that blocks its thread.

    Args:
        key: Names the nap.
    """
    time.sleep(1)
    return f"slept for {key}"


@tool
def post(key: str) -> str:
    """Do something that is written down before and after, and allowed.

    Args:
        key: What to do.
    """
    return f"posted {key}"


@tool
def change(key: str) -> str:
    """Change something; nobody has allowed that, so it waits for an approval.

    Args:
        key: What to change.
    """
    return f"changed {key}"


async def item(number: int) -> int:
    """Do nothing with one item of a list."""
    return number


async def pause(number: int) -> int:
    """Take 10 ms, as a small request does."""
    await asyncio.sleep(0.01)
    return number


TOOLS = {"lookup": lookup, "fetch": fetch, "nap": nap, "post": post, "change": change}
