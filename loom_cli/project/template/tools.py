"""Your tools: plain functions with types and a docstring. `loom worker --tools tools` (or `loom dev`) loads them."""

import re
from collections import Counter


def word_count(text: str, top: int = 3) -> dict[str, int]:
    """Count the words of a text.

    Args:
        text: The text.
        top: How many of the most frequent words to name.
    """
    words = re.findall(r"[^\W\d_]+", text.lower())
    return {"words": len(words), **dict(Counter(words).most_common(top))}
