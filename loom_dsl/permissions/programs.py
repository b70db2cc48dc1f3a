"""What a command may do beside what its words say. Programs are of three kinds.

Inert ones only read their arguments: none is run, whatever it holds. Modelled ones are few: their options decide, or
they run the command that their words hold. All others can run anything that they are told to, by file, standard input
or option, and so can programs of the working directory.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from loom_dsl.permissions.paths import ANY, PART
from loom_dsl.permissions.shell_line import (
    INERT_VARIABLE,
    LOOP_VARIABLE,
    MAX_DEPTH,
    SWITCH,
    ShellReading,
    Words,
    is_told_later,
)


@dataclass(frozen=True)
class CommandTraits:
    """What is known of a command.

    Attributes:
        anything: Why it can run what its words do not tell; empty: it cannot.
        named: Words that make it do more than its name says. A rule with `*` covers it only if it names them.
        runs: The commands of its words that it runs.
        passes: It does nothing but run them.
        free: It changes nothing outside the shell's own state, and needs no rule.
    """

    anything: str = ""
    named: Words = ()
    runs: tuple[Words, ...] = ()
    passes: bool = False
    free: bool = False


_INERT_TEXT = """
arch b2sum base32 base64 basename basenc bunzip2 bzip2 cal cat chgrp chmod chown cksum clear cmp colordiff column
comm cp csplit cut date dd df diff dig dir dircolors dirname dos2unix du echo egrep expand expr factor fgrep
file fmt fold free getconf getent grep groups gunzip gzip head hexdump host hostname hostid iconv id join jq kill
killall link ln locale logname look ls lsb_release lsblk lscpu lsof md5sum mkdir mkfifo mktemp mv nl nproc netstat
nslookup numfmt od paste pathchk pgrep pidof ping pkill pr printenv ps pwd readlink realpath rev rm rmdir seq
sha1sum sha224sum sha256sum sha384sum sha512sum shred shuf sleep ss stat strings sum sync tac tail tee touch tr tree
truncate tty type umask uname unexpand unix2dos unlink unxz unzip uptime users vdir vmstat wc whereis which who
whoami xz yes zcat zgrep zipinfo zstd
"""
_INERT = frozenset(_INERT_TEXT.split())
_FREE = frozenset([":", "true", "false", "exit", "break", "continue", "return"])
_ASKED_ONLY = (("--version",), ("--help",))
_SYSTEM = re.compile(r"(?:/usr(?:/local)?)?/s?bin/[^/]+")

_RUNNING = {
    "diff3": "--diff-program",
    "rg": "--pre --hostname-bin",
    "rsync": "-e -M --rsh --rsync-path --remote-option --daemon --config",
    "sort": "--compress-program",
    "split": "--filter",
    "tar": "-I -F --checkpoint-action --to-command --use-compress-program --rsh-command --info-script "
    "--new-volume-script --rmt-command",
    "curl": "-K --config --engine",
    "wget": "-e --execute --use-askpass --config",
    "zip": "-T --test --unzip-command",
    "install": "--strip-program",
}
"""Modelled by their options alone: those that make them run something."""
_WRITING = {
    "rg": "-z --search-zip --pre-glob",
    "rsync": "--write-batch --log-file",
    "sort": "-o -T -S --output --temporary-directory --files0-from",
    "tar": "-P -T -C --directory --files-from --absolute-names --overwrite-dir --index-file",
    "curl": "-o -O -T -F -d -D -c -E -J -x --output --output-dir --remote-name --upload-file --form --data --json "
    "--dump-header --cookie-jar --trace --proxy --stderr --netrc-file --unix-socket --libcurl --etag-save "
    "--variable --hsts --alt-svc --preproxy --socks4 --socks5 --resolve --connect-to --doh-url --proto-default "
    "--remote-header-name",
    "wget": "-O -P -i -o -a -U --output-document --output-file --append-output --directory-prefix --post-file "
    "--post-data --body-file --body-data --input-file --warc-file --save-cookies --rejected-log",
    "date": "-s -f --set --file",
    "tree": "-o -R --output",
    "file": "-m -C --magic-file --compile",
    "shuf": "-o --output",
    "ss": "-D --diag",
    "zstd": "-o --output-dir-flat --output-dir-mirror",
    "unzip": "-d -o",
    "jq": "-f -L --from-file --rawfile --slurpfile",
    "iconv": "-o --output",
}
"""Options that write elsewhere, or send what is read: they run nothing, yet a rule must name them."""
_PASSING = {
    "timeout": ("-s -k --signal --kill-after", 1),
    "nice": ("-n --adjustment", 0),
    "nohup": ("", 0),
    "stdbuf": ("-i -o -e", 0),
    "ionice": ("-c -n", 0),
    "setsid": ("", 0),
}
"""Programs that do nothing but run a command: their options with a value of its own, and words before the command."""
_PRIVILEGED = ("sudo", "doas")
_GIT_VALUES = frozenset({"-C", "-c", "--git-dir", "--work-tree", "--namespace", "--config-env", "--super-prefix"})
_GIT_OWN = frozenset(
    {"-C", "-p", "-P", "--paginate", "--no-pager", "--no-optional-locks", "--literal-pathspecs", "--version"}
)
_GIT_TEXT = """
add am apply archive blame branch bundle cat-file check-attr check-ignore checkout cherry cherry-pick clean clone
commit commit-tree count-objects describe diff diff-files diff-index diff-tree fetch for-each-ref format-patch fsck
gc grep hash-object help log ls-files ls-remote ls-tree merge merge-base merge-tree mv name-rev notes pack-refs
prune pull push range-diff read-tree rebase reflog remote replace reset restore rev-list rev-parse revert rm
shortlog show show-branch show-ref sparse-checkout stash status switch symbolic-ref tag update-index update-ref
verify-commit verify-tag version whatchanged worktree write-tree
"""
_GIT = frozenset(_GIT_TEXT.split())
_GIT_RUNNING = (
    "--exec --exec-path --config --config-env --git-dir --work-tree --upload-pack --receive-pack --ext-diff --textconv "
    "--open-files-in-pager --template --namespace --super-prefix --extcmd --tool --smtp-server"
)
_GIT_SHORT = {"rebase": "-x", "grep": "-O", "clone": "-u -c"}
"""Short options that mean something else for other commands of git."""
_GIT_TRANSPORT = re.compile(r"^(?:ext|fd)::|^--?(?:upload|receive)-pack|hooksPath", re.IGNORECASE)
_FIND_NAMED = frozenset({"-delete", "-fls", "-fprint", "-fprint0", "-fprintf", "-files0-from", "-rm"})
_FIND_RUNS = frozenset({"-exec", "-execdir", "-ok", "-okdir"})
_XARGS_VALUES = ("-n", "-P", "-L", "-d", "-a", "-E", "-s")
_XARGS_FLAGS = re.compile(r"-[0rtx]+|--null|--no-run-if-empty|--verbose|--exit|-[nPLdEs]\S+|--(?:max|delim)[\w-]*=.+")
_SED_ADDRESS = r"(?:\d+|\$|/(?:[^][\\/\n]|\\.|\[\^?[^][\\/\n]+\])*/)"
_SED_TEXT = r"(?:(?!\1)[^][\\\n]|\\.|\[\^?(?:(?!\1)[^][\\\n])+\])*"
_SAFE_SED = re.compile(
    rf"(?:{_SED_ADDRESS}(?:,{_SED_ADDRESS})?)?!?(?:[pdq=]|s([/|,#@:%!~+_]){_SED_TEXT}\1{_SED_TEXT}\1[gpI0-9]*)",
    re.DOTALL,
)
_SED_OPTIONS = re.compile(r"-[nEruzs]+|--quiet|--silent|--regexp-extended|--posix|--unbuffered|--null-data")
_SED_IN_PLACE = re.compile(r"-[nErsuz]*i[.\w]*|--in-place(?:=[.\w]*)?")
_PRINTF_SETS = re.compile(r"%[^%a-zA-Z]*[hjlLqtz]*n")
_AWK_DANGER = re.compile(r"system|ARG[VC]|getline|[|>@]|close|fflush|ENVIRON|PROCINFO")


def base_name(name: str) -> str:
    """Give the name of a command without its directory."""
    return name.rpartition("/")[2]


def all_commands(words: Words, depth: int = 0) -> Iterator[Words]:
    """Give a command and, behind it, every command that it runs of its words.

    Nested deeper than `MAX_DEPTH`, it is one of which only running the line tells the program.
    """
    if depth > MAX_DEPTH:
        yield (ANY,)
        return
    yield words
    for inner in traits_of_command(words).runs:
        yield from all_commands(inner, depth + 1)


@lru_cache(maxsize=4_096)
def traits_of_command(words: Words) -> CommandTraits:
    """Say what is known of a command.

    Args:
        words: Its program, by name or path, and what follows; not empty.
    """
    program, rest = words[0], words[1:]
    name = base_name(program)
    if "/" in program and not _SYSTEM.fullmatch(program):
        return CommandTraits(anything=f"{program} is a program of the working directory or of somebody's own")
    if is_told_later(name):
        return CommandTraits(anything="only running it tells which program it runs")
    if model := _MODELS.get(name):
        return model(name, rest)
    if name in _FREE:
        return CommandTraits(free=True)
    if rest in _ASKED_ONLY:
        return CommandTraits()
    named = tuple(word for word in rest if _has_option(_WRITING.get(name, ""), word))
    if name == "curl":
        named += tuple(word for word in rest if re.match(r"@|file:|.*%output\{", word, re.I | re.S))
    running = _RUNNING.get(name)
    if running is None and name not in _INERT:
        return CommandTraits(anything=f"{name} can run anything that it is told to")
    if running and (opaque := _told_or_option(rest, running)):
        return CommandTraits(anything=_may_run(name, opaque[0]), named=(*named, *opaque))
    return CommandTraits(named=named)


def reading_in_words(reading: ShellReading) -> list[str]:
    """Say how a line is read: a line for each command and what is known of it, and for each file that it names.

    Args:
        reading: The line.
    """
    if reading.unknown:
        return [f"not read: {reading.unknown}"]
    told: list[str] = []
    for words in (inner for command in reading.commands for inner in all_commands(command)):
        traits = traits_of_command(words)
        known = traits.anything or (f"a rule must name {in_words(traits.named)}" if traits.named else "")
        known = known or (
            "needs no rule" if traits.free else "runs what it runs" if traits.passes else "only does this"
        )
        told.append(f"`{in_words(words)}`: {known}")
    return [*told, *(f"reads {path}" for path in reading.reads), *(f"writes {path}" for path in reading.writes)]


def in_words(words: Sequence[str]) -> str:
    """Write words for people: `…` and `*` for what only running the line tells."""
    return _shown(" ".join(words))


def _may_run(name: str, word: str) -> str:
    if word[:1] in (ANY, PART):
        return f"only running it tells whether {_shown(word)} is an option of {name}"
    return f"{name} may run what {_shown(word)} says"


def _shown(word: str) -> str:
    return word.replace(ANY, "…").replace(PART, "*")


def _told_or_option(words: Sequence[str], options: str) -> Words:
    """Give the words that are one of the options, or might be one when the line runs."""
    ends = (at for at, word in enumerate(words) if word == "--" and not (at and words[at - 1].startswith("-")))
    ended = next(ends, len(words))  # behind an option `--` may be its value
    return tuple(word for word in words[:ended] if word[:1] in (ANY, PART) or _has_option(options, word))


@lru_cache(maxsize=4_096)
def _has_option(options: str, word: str) -> bool:
    """Find an option as it is, with a value, abbreviated, or in a cluster of short ones."""
    if not word.startswith("-") or word == "-":
        return False
    name = word.partition("=")[0]
    if options and is_told_later(name):
        return True
    for option in options.split():
        if option.startswith("--"):
            if len(name) > 2 and (option.startswith(name) or name.startswith(option + "-")):
                return True
        elif not word.startswith("--") and option[1] in word[1:]:
            return True
    return False


def _leave_out_value(rest: list[str]) -> None:
    """Leave out the value of an option. What only running the line tells may be more words than that, or none."""
    if rest and is_told_later(rest.pop(0)):
        rest.insert(0, ANY)


def _find(_name: str, words: Words) -> CommandTraits:
    runs: list[Words] = []
    named: list[str] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word in _FIND_RUNS:
            closes = (at for at, end in enumerate(rest) if end == ";" or (end == "+" and rest[at - 1 : at] == ["{}"]))
            ends = next(closes, len(rest))
            given, rest = rest[:ends], rest[ends + 1 :]
            named += [part for part in given if part[:1] == ANY]  # which may end the command and begin another
            named += [part for part in given[:1] if word.endswith("dir") and "/" in part]  # found in each directory
            runs.append(tuple(f"./{ANY}" if "{}" in part else part for part in given) or (ANY,))
        elif word in _FIND_NAMED or (word[:1] in (ANY, PART, "-") and is_told_later(word)):
            named.append(word)
    anything = f"find does what {_shown(named[0])} says" if named else ""
    return CommandTraits(anything=anything, named=tuple(named), runs=tuple(runs))


def _xargs(name: str, words: Words) -> CommandTraits:
    mark, rest = "", list(words)
    while rest and (rest[0].startswith("-") or is_told_later(rest[0])):
        option = rest.pop(0)
        if option.startswith("-I"):
            mark = option[2:] or next(iter(rest), "")
            if option == "-I":
                _leave_out_value(rest)
        elif option in _XARGS_VALUES:
            _leave_out_value(rest)
        elif not _XARGS_FLAGS.fullmatch(option):
            return CommandTraits(anything=f"{name} is given {_shown(option)}, which is not known", named=(option,))
    run = [ANY if mark and mark in word else word for word in rest] or ["echo"]
    return CommandTraits(runs=((*run, ANY, ANY),), passes=True)  # the first may be an option's value


def _passing(name: str, words: Words) -> CommandTraits:
    valued, before = _PASSING[name]
    rest = list(words)
    while rest and rest[0].startswith("-"):
        option = rest.pop(0)
        if option == "--":
            break
        if option in valued.split():
            _leave_out_value(rest)
    if opaque := tuple(filter(is_told_later, rest[:before])):
        return CommandTraits(f"only running it tells what {name} is given", opaque)
    rest = rest[before:]
    return CommandTraits(runs=(tuple(rest),), passes=True) if rest else CommandTraits()


def _privileged(name: str, words: Words) -> CommandTraits:
    """With other rights a program can do anything; the command that it runs is looked at all the same."""
    rest = list(words)
    while rest and rest[0].startswith("-"):
        if rest.pop(0) in ("-u", "-g", "-h", "-p", "-C", "-D", "-R", "-T"):
            rest[:1] = []
    return CommandTraits(f"{name} runs anything with other rights", runs=(tuple(rest),) if rest else ())


def _is_opaque(words: Words) -> bool:
    """Whether a rule for a program allows any code of it, whatever its words are."""
    traits = traits_of_command(words)
    return bool(traits.anything) and not traits.named


def _env(name: str, words: Words) -> CommandTraits:
    """A variable that is only switched on or off may be given to a program of which any code is allowed."""
    rest, heeding = list(words), list[str]()
    while rest and (rest[0].startswith("-") or "=" in rest[0]):
        word = rest.pop(0)
        variable = word.partition("=")[0]
        if word == "-u":
            _leave_out_value(rest)
        elif word not in ("-i", "--ignore-environment", "--") and not INERT_VARIABLE.fullmatch(variable):
            heeding.append(word)
    runs = (tuple(rest),) if rest else ()
    if heeding and not (all(map(SWITCH.fullmatch, heeding)) and rest and _is_opaque(tuple(rest))):
        return CommandTraits(f"programs may heed what {_shown(heeding[0])} says", tuple(heeding), runs)
    return CommandTraits(runs=runs, passes=bool(runs))


def _command(_name: str, words: Words) -> CommandTraits:
    if words[:1] and words[0] in ("-v", "-V"):
        return CommandTraits()
    rest = words[1:] if words[:1] in (("-p",), ("--",)) else words
    return CommandTraits(runs=(rest,), passes=True) if rest else CommandTraits()


def git_command(words: Words) -> str:
    """Give the command of git, behind its own options and their values; `help` where there is none."""
    before = ""
    for word in words:
        if not word.startswith("-") and (before not in _GIT_VALUES or PART in word):
            return word
        before = word
    return "help"


def _git(_name: str, words: Words) -> CommandTraits:
    command = git_command(words)
    begins = words.index(command) if command in words else len(words)
    own, rest = words[:begins], words[begins + 1 :]
    named = [word for before, word in pairwise(("", *own)) if before not in _GIT_VALUES and word not in _GIT_OWN]
    named += _told_or_option(rest, _GIT_RUNNING)
    named += [word for word in rest if _has_option(_GIT_SHORT.get(command, ""), word)]
    named += [word for word in words if _GIT_TRANSPORT.search(word)]
    if command not in _GIT:
        named.append(command)
    if named:
        return CommandTraits(anything=_may_run("git", named[0]), named=tuple(named))
    writing = f"--output --no-index --remote{' -o' if command in ('archive', 'format-patch') else ''}"
    return CommandTraits(
        named=(*(word for word in own if word == "-C"), *(word for word in rest if _has_option(writing, word)))
    )


def _sed(name: str, words: Words) -> CommandTraits:
    rest, scripts, named, opaque = list(words), [], [], []
    while rest:
        word = rest.pop(0)
        if word in ("-e", "--expression") and rest:
            scripts.append(rest.pop(0))
        elif _SED_IN_PLACE.fullmatch(word):
            named.append(word)
        elif word[:1] in (ANY, PART) or (word.startswith("-") and not _SED_OPTIONS.fullmatch(word)):
            opaque.append(word)
        elif not word.startswith("-") and not scripts:
            scripts.append(word)
    opaque += [
        script
        for script in scripts
        if is_told_later(script) or not all(map(_SAFE_SED.fullmatch, re.split(r"\s*[;\n]\s*", script.strip())))
    ]
    return CommandTraits(_may_run(name, opaque[0]) if opaque else "", (*named, *opaque))


def _awk(name: str, words: Words) -> CommandTraits:
    options = [word for word in words if word.startswith("-") and not word.startswith("-F")]
    # Before the first action a `>` compares.
    acting = {word: word.partition("{")[0].replace(">", "") + "{".join(word.split("{")[1:]) for word in words}
    opaque = (*options, *(word for word in words if _AWK_DANGER.search(acting[word]) or is_told_later(word)))
    return CommandTraits(anything=_may_run(name, opaque[0]), named=opaque) if opaque else CommandTraits()


def _tar(name: str, words: Words) -> CommandTraits:
    bare = words[:1] if words and words[0][:1] not in ("-", ANY, PART) else ()  # options may be written without a dash
    spelled = {word: f"-{word}" if word in bare else word for word in words}
    opaque = tuple(word for word in words if _told_or_option((spelled[word],), _RUNNING[name]))
    named = tuple(word for word in words if _has_option(_WRITING[name], spelled[word]))
    return CommandTraits(_may_run(name, opaque[0]) if opaque else "", (*opaque, *named))


def _printf(name: str, words: Words) -> CommandTraits:
    """Before the format `-v` sets a variable of the shell, and so does `%n` in it."""
    form = words[1:] if words[:1] == ("--",) else words
    sets = form[:1] if len(form) > 1 and (is_told_later(form[0]) or _PRINTF_SETS.search(form[0])) else ()
    opaque = (*_told_or_option(words[:1], "-v"), *sets)
    return (
        CommandTraits(f"{name} may set the variable that {_shown(opaque[0])} names", opaque)
        if opaque
        else CommandTraits()
    )


def _second_place(name: str, words: Words) -> CommandTraits:
    """What uniq and xxd write: the second of the places that are named."""
    places = [word for word in words if not word.startswith("-") or is_told_later(word)]
    written = places if any(map(is_told_later, places)) else places[1:]
    return CommandTraits(named=(*(word for word in words if word.startswith("-r") and name == "xxd"), *written))


def _test(name: str, words: Words) -> CommandTraits:
    """`-v` and `-R` expand what names an element of an array, substitutions in it too."""
    opaque = [word for word in words if PART in word]
    for option, word in pairwise(words):
        if (option in ("-v", "-R") or is_told_later(option)) and ("[" in word or is_told_later(word)):
            opaque.append(option)
    if opaque:
        return CommandTraits(anything=f"{name} may run what stands behind {_shown(opaque[0])}", named=tuple(opaque))
    return CommandTraits(free=True)


def _read(name: str, words: Words) -> CommandTraits:
    """It sets variables, of which `-r` and plain names are nothing that programs heed."""
    opaque = [word for word in words if word != "-r" and not LOOP_VARIABLE.fullmatch(word)]
    return (
        CommandTraits(anything=f"{name} may set what {_shown(opaque[0])} names", named=tuple(opaque))
        if opaque
        else CommandTraits(free=True)
    )


_PLAIN = {
    "set": re.compile(r"[-+](?:[eux]+o?|o)|pipefail|errexit|nounset"),
    "wait": re.compile(r"\d+"),
    "jobs": re.compile(r"-[lp]"),
}


def _plain(name: str, words: Words) -> CommandTraits:
    """Commands of the shell of which some words are harmless, and no others."""
    opaque = tuple(word for word in words if not _PLAIN[name].fullmatch(word))
    if opaque:
        return CommandTraits(anything=f"{name} may change what {_shown(opaque[0])} says", named=opaque)
    return CommandTraits(free=True)


def _cd(name: str, words: Words) -> CommandTraits:
    """A literal directory inside needs no rule; another one, and one that is not told, must be named in it."""
    if len(words) == 1 and not is_told_later(words[0]) and not re.match(r"[/~-]|(?:.*/)?\.\.(?:/|$)", words[0]):
        return CommandTraits(free=True)
    return CommandTraits(named=words or (name,))


_MODELS: Mapping[str, Callable[[str, Words], CommandTraits]] = {
    **dict.fromkeys(("find", "gfind", "bfs"), _find),
    **dict.fromkeys(("xargs", "gxargs"), _xargs),
    **dict.fromkeys(_PASSING, _passing),
    **dict.fromkeys(("sed", "gsed"), _sed),
    **dict.fromkeys(("awk", "gawk", "mawk", "nawk"), _awk),
    **dict.fromkeys(("uniq", "xxd"), _second_place),
    **dict.fromkeys(("[", "test"), _test),
    **dict.fromkeys(_PLAIN, _plain),
    "printf": _printf,
    **dict.fromkeys(_PRIVILEGED, _privileged),
    "read": _read,
    "env": _env,
    "command": _command,
    "git": _git,
    "tar": _tar,
    "cd": _cd,
}
