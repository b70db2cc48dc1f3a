"""Patterns over commands: `git status`, `npm run *`."""

import shlex
from functools import lru_cache
from itertools import pairwise

from loom_dsl.command_doubt import unlike_its_name
from loom_dsl.command_tables import base_name, is_wrapper, risky_words
from loom_dsl.shell import ShellReading, Words
from loom_dsl.wildcards import wildcard

_LONGEST_SHORT = 4


class CommandPattern:
    """A pattern over the words of a command.

    `*` as a word of its own stands for any words, also for none; inside a word for any characters of it.

    Raises:
        ValueError: The pattern is empty, or a quote in it does not end.
    """

    def __init__(self, text: str) -> None:
        try:
            self.words = shlex.split(text)
        except ValueError as error:
            raise ValueError(f"the quotes in {text!r} do not match") from error
        if not self.words:
            raise ValueError("it names no command")
        self.text = text

    def covers(self, words: Words) -> bool:
        """Say whether a literal command is surely one that the pattern means.

        What makes a command dangerous, or seems to by its form, must be written in the pattern, and a command that
        runs other commands fits only a pattern without `*`.
        """
        literal = [word for word in words if word is not None]
        if len(literal) < len(words) or not _sequence(self.words, literal):
            return False
        if is_wrapper(words) and any("*" in word for word in self.words):
            return False
        return {*risky_words(words), *unlike_its_name(words)} <= set(self.words)

    def may_fit(self, words: Words) -> bool:
        """Say whether a command could be one that the pattern means, with more words and in other spellings too."""
        if not words:
            return False
        name, first = words[0], self.words[0]
        if name is None:
            return True
        if not any(_fits(first.lower(), spelling.lower()) for spelling in (name, base_name(name))) and base_name(
            name
        ) != base_name(first):
            return False
        rest = words[1:]
        known = [word for word in rest if word is not None]
        options = [word for word in self.words[1:] if word.startswith("-")]
        return (None in rest or all(_has_option(option, known) for option in options)) and self._in_order(rest)

    def _in_order(self, words: Words) -> bool:
        """Find the pattern's words that are no options; between them only options and their values may stand."""
        position = 0
        for before, wanted in pairwise(self.words):
            if wanted == "*" or wanted.startswith("-"):
                continue
            loose = before == "*"
            while True:
                if position >= len(words):
                    return False
                word, behind = words[position], (words[position - 1] if position else "") or ""
                position += 1
                if word is None:  # any words: this one, and all that the pattern still wants
                    return True
                if _fits(wanted, word):
                    break
                if not (loose or word.startswith("-") or behind.startswith("-")):
                    return False
        return True


def reading_may_fit(pattern: str, reading: ShellReading) -> bool:
    """Say whether anything that a line might run could be what a pattern means."""
    compiled = command_pattern(pattern)
    return any(compiled.may_fit(words) for words in reading.commands)


@lru_cache(maxsize=16_384)
def command_pattern(text: str) -> CommandPattern:
    """Give a pattern, made once."""
    return CommandPattern(text)


def literal_pattern(words: tuple[str, ...]) -> str | None:
    """Write the pattern that covers this command only; None when it cannot be written."""
    return None if any("*" in word for word in words) else shlex.join(words)


def _fits(pattern: str, word: str) -> bool:
    return pattern == word or ("*" in pattern and wildcard(pattern).fullmatch(word) is not None)


def _sequence(pattern: list[str], words: list[str]) -> bool:
    """Match word by word, `*` for any number of words; in time that is the product of both lengths."""
    reached = {0}
    for wanted in pattern:
        if wanted == "*":
            reached = set(range(min(reached), len(words) + 1)) if reached else set()
        else:
            reached = {at + 1 for at in reached if at < len(words) and _fits(wanted, words[at])}
    return len(words) in reached


def _has_option(option: str, words: list[str]) -> bool:
    """Find an option among words: as it is, with a value, abbreviated, or in a cluster of short ones."""
    for word in words:
        name = word.partition("=")[0]
        if _fits(option, word) or _fits(option, name):
            return True
        if option.startswith("--") and len(name) > _LONGEST_SHORT and option.startswith(name):
            return True
    if option.startswith("--") or len(option) < 2:
        return False
    clusters = [word[1:] for word in words if word.startswith("-") and not word.startswith("--")]
    return set(option[1:]) <= set("".join(clusters))
