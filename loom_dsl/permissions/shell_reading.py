"""Patterns over commands: `git status`, `npm run *`."""

import re
import shlex
from collections.abc import Collection
from functools import lru_cache
from itertools import pairwise

from loom_dsl.permissions.paths import normal_path, wildcard
from loom_dsl.permissions.risky_commands import (
    SHELLS,
    ShellReading,
    Words,
    base_name,
    has_table,
    is_language,
    is_wrapper,
    risky_words,
)

# Commands of which a rule about other commands cannot tell what they run: code of a language, unknown programs.


_INERT_TEXT = """
! : arch b2sum base32 base64 basename basenc break bunzip2 bzip2 cal cat chgrp chmod chown cksum cmp colordiff column
comm continue cp csplit curl cut date dd df dig dir dirname du echo egrep exit expand expr factor false fgrep file fmt
fold free grep groups gunzip gzip head hexdump host hostname id join jq kill killall link ln locale ls lsblk md5sum
mkdir mkfifo mktemp mv nl nproc nslookup od paste pgrep pidof ping pkill pr printenv printf ps pwd readlink realpath
return rev rm rmdir rsync seq sha1sum sha224sum sha256sum sha384sum sha512sum shift shred shuf sleep stat strings sum
sync tac tail tee touch tr tree true truncate tty type umask uname unexpand uniq unlink unxz unzip uptime users vdir
wc wget whereis which who whoami xxd xz yes zcat zgrep zip zipinfo
"""
_INERT = frozenset(_INERT_TEXT.split())
"""Their words are names, numbers and texts, never run, but for the options that the tables know."""
_CODE_TEXT = """
bc bind crontab dc ed emacs enable ex expect gdb ghci gnuplot gvim iex irb jjs jshell m4 mongosh nvim octave r redis-cli
rpm rvim scheme vi view vim vimdiff
"""
_CODE = frozenset(_CODE_TEXT.split())
"""They take code of their own languages, from arguments or from what they read."""
_FILLING = frozenset({"xargs", "gxargs", "parallel", "sem", "rush", "fd", "fdfind"})
"""They add words to the command that they run: what they read, what they find, or what stands behind `:::`."""
_XARGS_VALUES = "adEIJLnPRsS"
"""Options of xargs whose value may be the next word."""
_MAX_MARKS = 8
"""Texts that stand for what is added; with more, each word may be one."""
_FINDING = frozenset({"find", "gfind", "bfs"})
_EXEC = frozenset({"-exec", "-execdir", "-ok", "-okdir"})
_COPYING = frozenset({"cp", "mv", "ln", "tee", "dd", "install", "rsync", "scp", "curl", "wget"})
_SYSTEM = re.compile(r"(?:/usr(?:/local)?)?/s?bin/[^/]+")
_HIDES = re.compile(r"[\\'\"$`(){}\[\]*?\n]")
"""What a text needs to write a command's name in another way."""
_RUNS_OR_WRITES = re.compile(
    r"-(?!-?no-)-?(?:[\w-]*-)?"
    r"(?:exec(?:ute)?|commands?|cmd|pager|hooks?|plugins?|preprocess(?:or)?|wrapper|shell|script|eval|program|prog|engine"
    r"|editor|browser|viewer|init|load|loader|require|preload|provider|config|rc|rules|out|output|log)"
    r"-?(?:file|dir|path|name)?(?:=.*)?",
    re.IGNORECASE | re.DOTALL,
)
"""Options by whose names many programs run, load or write what they are given."""
_IN_PLACE = re.compile(r"-[nErsuz]*i[.\w]*|--in-place(?:=.*)?")
"""Options of sed that change files: no code."""
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(?:\[[^]]*\])?\+?=(.*)", re.DOTALL)
_HARMLESS = re.compile(
    r"CI|DEBUG|VERBOSE|TZ|LANG|LANGUAGE|LC_[A-Z]+|TERM|COLUMNS|LINES|PORT|HOST|(?:NODE|RAILS|FLASK|APP)_ENV"
    r"|(?:NO|FORCE|CLICOLOR|CARGO_TERM)_?(?:COLOR|FORCE)?|GOOS|GOARCH|CGO_ENABLED|RUST_(?:LOG|BACKTRACE)"
    r"|PYTHON(?:UNBUFFERED|DONTWRITEBYTECODE|HASHSEED|UTF8|IOENCODING)|GIT_TERMINAL_PROMPT|PYTHONPATH"
    r"|GIT_(?:AUTHOR|COMMITTER)_(?:NAME|EMAIL|DATE)"
)
_HARMLESS_VALUES = frozenset({"", "cat", "less", "more", "true", "false"})
_GIT_VALUES = frozenset({"-C", "-c", "--git-dir", "--work-tree", "--namespace", "--config-env", "--super-prefix"})
_GIT_TEXT = """
add am apply archive bisect blame branch bundle cat-file check-attr check-ignore checkout cherry cherry-pick clean clone
commit commit-tree count-objects describe diff diff-files diff-index diff-tree fetch for-each-ref format-patch fsck gc
grep hash-object help log ls-files ls-remote ls-tree merge merge-base merge-tree mv name-rev notes pack-refs prune pull
push range-diff read-tree rebase reflog remote replace reset restore rev-list rev-parse revert rm shortlog show
show-branch show-ref sparse-checkout stash status switch symbolic-ref tag update-index update-ref verify-commit
verify-tag version whatchanged worktree write-tree
"""
_GIT = frozenset(_GIT_TEXT.split())


def may_run_its_words(words: Words) -> bool:
    """Say whether words of a command could be commands: it runs others, or nobody knows what it does."""
    return is_wrapper(words) or bool(risky_words(words)) or is_unknown(words)


def is_unknown(words: Words) -> bool:
    """Say whether a command's program is one of which nothing is known."""
    name = words[0] if words else None
    if name is None or is_wrapper(words) or is_language(words):
        return False
    if "/" in name and not _SYSTEM.fullmatch(name):
        return True
    return base_name(name).lower() not in _INERT | _CODE and not has_table(words)


def filled_in(words: Words) -> Words:
    """Write as not known what a command adds to the one that it runs, from what it reads or finds.

    Where `{}` stands many programs do, also those that nobody knows.
    """
    if base_name(words[0] or "").lower() in _FILLING:
        marks, said = _marks(words)
        filled = [None if place not in said and _is_filled(word, marks) else word for place, word in enumerate(words)]
        return (words[0], *filled[1:], None)
    return tuple(None if word is not None and "{}" in word else word for word in words)


def only_given(words: Words) -> set[int]:
    """Give the places of a command's words at which no command begins.

    Of find and xargs that is what they give to a program that runs no words; and what ends a command or a list.
    """
    name = base_name(words[0] or "").lower() if words else ""
    ending = {place for place, word in enumerate(words) if word in (";", ":::")}
    if name in ("xargs", "gxargs"):
        begin = _program_of_xargs(words)
        return set(range(begin + 1, len(words))) if _is_inert(words[begin:]) else ending
    return ending | _given_by_find(words) if name in _FINDING else ending


def _given_by_find(words: Words) -> set[int]:
    begins = [place + 1 for place, word in enumerate(words) if word in _EXEC]
    given: set[int] = set()
    outside = set(range(len(words))) if begins else set()
    for begin in begins:
        ends = (place for place in range(begin, len(words)) if words[place] in (";", "+"))
        span = range(begin, next(ends, len(words)))
        outside -= set(span)
        given |= set(span[1:]) if _is_inert(words[begin : span.stop]) else set()
    is_told = all(words[place] is not None for place in outside)  # else there may be more of `-exec` than is seen
    return given - set(begins) | (outside if is_told else set())


def _given_commands(words: Words) -> str:
    """Say why the commands that xargs and its like run are not told by their words; empty: they are."""
    if base_name(words[0] or "").lower() not in _FILLING:
        return ""
    wrapped = next((word for word in words[1:] if word is not None and is_wrapper((word,))), None)
    return f"{base_name(words[0] or '')} gives {wrapped} what it is to run" if wrapped else ""


def _is_inert(words: Words) -> bool:
    """Whether nothing of a command is run but its program, of which that is known."""
    name = words[0] if words else None
    if name is None or None in words:  # which may be more words than one, and end the command
        return False
    return base_name(name) in _INERT and ("/" not in name or _SYSTEM.fullmatch(name) is not None)


def _program_of_xargs(words: Words) -> int:
    """Find the word that names the program; the number of words where nobody can tell."""
    place = 1
    while place < len(words):
        word = words[place]
        if word is None or word.startswith("--"):
            return len(words)  # some long options have a value of their own
        if not word.startswith("-"):
            return place
        place += 2 if word[-1] in _XARGS_VALUES and len(word) > 1 else 1
    return place


def _marks(words: Words) -> tuple[list[str], set[int]]:
    """Give what xargs and parallel replace in words (`-I%`, `-0I %`, `--replace=%`), and the places that say so."""
    marks, said = ["{"], set()
    for place, word in enumerate(words):
        if word is None or not word.startswith("-"):
            continue
        option, _, value = word.partition("=")
        letter = None if word.startswith("--") else re.search("[IiJ]", word)
        said.add(place)
        if option.startswith("--rep"):
            marks.append(value)
        elif letter and letter.end() < len(word):
            marks.append(word[letter.end() :])
        elif letter and letter[0] != "i" and place + 1 < len(words):
            marks.append(words[place + 1] or "")
            said.add(place + 1)
    return [mark for mark in marks if mark], said


def _is_filled(word: str | None, marks: list[str]) -> bool:
    if word is None or word.startswith(":::") or len(marks) > _MAX_MARKS:
        return word is not None
    return any(mark in word for mark in marks)


def takes_code(words: Words) -> bool:
    """Say whether a command runs code of another language than the shell's."""
    name = base_name(words[0] or "").lower() if words else ""
    return is_language(words) or name in _CODE or name in ("sed", "gsed", "awk", "gawk", "mawk", "nawk")


def what_hides(words: Words) -> str:
    """Say what of a command no rule about other commands can judge; empty: nothing."""
    if not words or words[0] is None:
        return ""
    name = base_name(words[0])
    if name.lower() in _CODE or (takes_code(words) and _is_given_code(words)):
        return f"{name} is given code"
    if is_unknown(words) and any(word is None or _HIDES.search(word) for word in words[1:]):
        return f"what {name} does with its arguments is not known"
    if name == "git" and (command := _git_command(words)) not in _GIT:
        return f"git {command} is not known"
    if is_wrapper(words) and name not in ("[", "test", *SHELLS):
        given = next(filter(None, (hidden_in_assignment(word) for word in words[1:] if word)), "")
        return given or _given_commands(words)
    return _given_commands(words)


def places_written(words: Words) -> set[str]:
    """Give the paths that a command which copies may write: all that it names."""
    if not words or base_name(words[0] or "") not in _COPYING:
        return set()
    texts = [text for word in words[1:] if word for text in (word, word.partition("=")[2]) if text]
    return {place for place in map(normal_path, texts) if place is not None}


def places_run(words: Words) -> set[str]:
    """Give the paths of files that a command may run: its program, and what is given to one that runs others."""
    if places_written(words):
        return set()
    named = words if may_run_its_words(words) or is_language(words) else words[:1]
    return {place for place in (normal_path(word) for word in named if word) if place is not None}


def unlike_its_name(words: Words) -> list[str]:
    """List the words that, by their form, make a command run, load or write something, whatever its program is.

    `risky_words` knows some programs; this is for all, also for those that nobody has thought of.
    """
    found = [word for word in words[1:] if word is not None and _RUNS_OR_WRITES.fullmatch(word)]
    if words and words[0] is not None and base_name(words[0]) == "git" and (command := _git_command(words)) not in _GIT:
        found.append(command)
    return found


def hidden_in_assignment(text: str) -> str:
    """Say why a program that finds a variable may do more than its arguments say; empty: the variable is harmless."""
    found = _ASSIGNMENT.fullmatch(text)
    if found is None or _HARMLESS.fullmatch(found[1]) or found[2] in _HARMLESS_VALUES:
        return ""
    return f"programs may run what the variable {found[1]} says"


def _is_given_code(words: Words) -> bool:
    """Whether an interpreter, sed or awk runs what its arguments say, or what cannot be seen."""
    if not is_language(words):
        return any(not _IN_PLACE.fullmatch(word) for word in risky_words(words))
    if "-m" in words and any(word and _HIDES.search(word) for word in words[1:]):  # as `python -m timeit CODE`
        return True
    return any(word != "-m" for word in risky_words(words)) or _reads_code(words)


def _reads_code(words: Words) -> bool:
    """Whether an interpreter reads its code from where it cannot be seen."""
    operands = [word for word in words[1:] if word is None or not word.startswith("-")]
    informs = {"--version", "-V", "-v", "-VV", "--help", "-h"} & set(words[1:])
    first = operands[0] if operands else ""
    return not informs and (first is None or first in ("", "-") or first.startswith(("/dev/", "/proc/")))


def _git_command(words: Words) -> str:
    """Give the command of git, behind its own options and their values."""
    before = ""
    for word in words[1:]:
        if word is None:
            return "with an unknown command"
        if not word.startswith("-") and before not in _GIT_VALUES:
            return word
        before = word
    return "help"


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
        wanted = [word for word in self.words[1:] if word[0:1] == "-"]
        # Only what begins with `-` can be what is wanted; each word is looked at once, however often it stands.
        options = dict.fromkeys(word for word in rest if word is not None and word[0:1] == "-") if wanted else ()
        return (None in rest or all(_has_option(option, options) for option in wanted)) and self._in_order(rest)

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
