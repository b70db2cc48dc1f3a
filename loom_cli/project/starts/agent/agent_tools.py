"""The agent's tools: plain functions with types and a docstring, which the model reads."""


def word_lengths(text: str) -> dict[str, int]:
    """Count the letters of each word of a text.

    Args:
        text: The text.
    """
    return {word: len(word) for word in text.split()}
