"""What the graph runs: plain functions. Arguments and results are JSON values."""


def clean(text: str) -> str:
    """Leave single spaces between the words."""
    words = text.split()
    if not words:
        raise ValueError("it has no words")
    return " ".join(words)


def count_words(text: str) -> int:
    """Count the words."""
    return len(text.split())
