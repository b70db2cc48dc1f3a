"""What the graph runs: plain functions. Arguments and results are JSON values."""

from typing import Any


def measure(word: str) -> int:
    """Count the letters of a word."""
    if not word.isalpha():
        raise ValueError(f"{word!r} is no word")
    return len(word)


def total(results: list[dict[str, Any]]) -> dict[str, int]:
    """Add up what was measured."""
    return {"words": len(results), "letters": sum(result["letters"] for result in results)}
