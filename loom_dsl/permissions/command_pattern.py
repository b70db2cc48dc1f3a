"""Patterns over commands: `git status`, `npm run *`."""

import shlex
from collections.abc import Collection, Sequence
from functools import lru_cache
from itertools import pairwise

from loom_dsl.permissions.paths import ANY, PART, wildcard
from loom_dsl.permissions.programs import base_name, traits_of_command
from loom_dsl.permissions.shell_line import MAX_DEPTH, Words, is_told_later

_MAX_SHORT = 4


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

    @property
    def program(self) -> str:
        """The program that it names; empty: it is about several."""
        return "" if "*" in self.words[0] else self.words[0]

    def covers(self, words: Words, *, moved: bool = False) -> bool:
        """Say whether a command is surely one that the pattern means: the question of a rule that allows.

        What makes a command do more than its name says must stand in the pattern. Commands that it runs of its words
        are not looked at.

        Args:
            words: The command.
            moved: The line changes its directory, so that a path in it is not the one that the pattern names.
        """
        if not _sequence(self.words, words) or (moved and any("/" in word for word in (*self.words, words[0]))):
            return False
        return set(traits_of_command(words).named) <= set(self.words)

    def is_very(self, words: Words) -> bool:
        """Say whether it is this very command, word by word."""
        return not any("*" in word for word in self.words) and tuple(self.words) == words

    def means(self, words: Words) -> bool:
        """Say whether a command is surely one that the pattern means, in any spelling: what a rule that denies asks."""
        return self.may_mean(tuple(word for word in words if not is_told_later(word)))

    def may_mean(self, words: Words) -> bool:
        """Say whether a command could be one that the pattern means, with more words and in other spellings too."""
        if not words:
            return False
        name, first = words[0], self.words[0]
        if is_told_later(name):
            return True
        spellings = (name.lower(), base_name(name).lower())
        if not any(_fits(first.lower(), spelling) for spelling in spellings) and base_name(name) != base_name(first):
            return False
        rest = words[1:]
        wanted = [word for word in self.words[1:] if word[0:1] == "-"]
        # Only what begins with `-` can be what is wanted; each word is looked at once, however often it stands.
        options = dict.fromkeys(word for word in rest if word[0:1] == "-") if wanted else ()
        told = not any(word[0:1] in (ANY, PART, "-") and is_told_later(word) for word in rest)
        return (not told or all(_has_option(option, options) for option in wanted)) and self._in_order(rest)

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
                word, behind = words[position], words[position - 1] if position else ""
                position += 1
                if is_told_later(word) and word[0:1] in (ANY, PART):  # any words: this, and all that is still wanted
                    return True
                if _fits(wanted, word) or is_told_later(word):
                    break
                if not (loose or word.startswith("-") or behind.startswith("-")):
                    return False
        return True


@lru_cache(maxsize=16_384)
def command_pattern(text: str) -> CommandPattern:
    """Give a pattern, made once.

    Raises:
        ValueError: As `CommandPattern`.
    """
    return CommandPattern(text)


def covering_command(
    patterns: Sequence[tuple[str, CommandPattern]], words: Words, *, moved: bool, depth: int = 0
) -> list[str] | None:
    """Name the rules that cover a command and all that it runs of its words; None: something is not covered.

    Args:
        patterns: The rules' texts, and their patterns.
        words: The command.
        moved: The line changes its directory.
        depth: How many commands run this one, each of its words.
    """
    if depth > MAX_DEPTH:
        return None
    if very := next((text for text, pattern in patterns if not moved and pattern.is_very(words)), ""):
        return [very]
    traits = traits_of_command(words)
    own: list[str] = []
    if not (traits.free or (traits.passes and not traits.anything)):
        own = [text for text, pattern in patterns if pattern.covers(words, moved=moved)][:1]
        if not own:
            return None
        if traits.anything and not traits.named:  # the rule allows any code of it
            return own
    inner = [covering_command(patterns, run, moved=moved, depth=depth + 1) for run in traits.runs]
    return None if None in inner else [*own, *(text for found in inner for text in found or ())]


def literal_pattern(words: tuple[str, ...]) -> str | None:
    """Write the pattern that covers this command only; None when it cannot be written."""
    return None if any("*" in word or is_told_later(word) for word in words) else shlex.join(words)


def _fits(pattern: str, word: str) -> bool:
    return pattern == word or ("*" in pattern and wildcard(pattern).fullmatch(word) is not None)


def _sequence(pattern: Sequence[str], words: Sequence[str]) -> bool:
    """Match word by word, `*` for any number of words; in time that is the product of both lengths.

    A word that only running the line tells is covered by `*` alone.
    """
    reached = {0}
    for wanted in pattern:
        if wanted == "*":
            reached = set(range(min(reached), len(words) + 1)) if reached else set()
        else:
            reached = {
                at + 1
                for at in reached
                if at < len(words) and not is_told_later(words[at]) and _fits(wanted, words[at])
            }
    return len(words) in reached


def _has_option(option: str, words: Collection[str]) -> bool:
    """Find an option among those of a command: as it is, with a value, abbreviated, or in a cluster of short ones."""
    for word in words:
        name = word.partition("=")[0]
        if _fits(option, word) or _fits(option, name):
            return True
        if option.startswith("--") and len(name) > _MAX_SHORT and option.startswith(name):
            return True
    if option.startswith("--") or len(option) < 2:
        return False
    clusters = [word[1:] for word in words if word.startswith("-") and not word.startswith("--")]
    return set(option[1:]) <= set("".join(clusters))
