"""Commands that run other commands, and options that make a harmless command a dangerous one."""

import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

# What a shell command line would run, as far as reading it can tell. Reading itself is done where a parser is.
#
# A line is *plain* when it is made of literal words alone: no expansion, redirection, assignment, glob or keyword, in
# one line. Only plain lines can be covered by a rule that allows some commands; a rule that forbids looks at
# everything that might run, in substitutions and behind wrappers too.


Words = tuple[str | None, ...]
"""A command's words; None for what is known only when it runs, which may be any number of words."""

MAX_CHARACTERS = 10_000
MAX_PARTS = 50
"""Commands that a plain line may hold."""
UNKNOWN: Words = (None,)
"""A command of which nothing is known."""

_RESERVED = frozenset(
    [
        "!",
        "{",
        "}",
        "[[",
        "]]",
        "case",
        "coproc",
        "do",
        "done",
        "elif",
        "else",
        "esac",
        "fi",
        "for",
        "function",
        "if",
        "in",
        "select",
        "then",
        "time",
        "until",
        "while",
    ]
)
_BARE = r"(?:[A-Za-z0-9_./:@%+,=^-]|(?<![\s'\":=|&;])~|[^\x00-\x7f])"
_QUOTED = r"'[^'\n]*'|\"[^\"\\$`!\n]*\""
_WORD = re.compile(rf"(?:{_BARE}|{_QUOTED})+")
_PIECE = re.compile(rf"({_QUOTED})")
_OPERATOR = re.compile(r"&&|\|\||;|\|(?!&)")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*\+?=")


@dataclass(frozen=True)
class ShellReading:
    """What is known of a command line.

    Attributes:
        plain: The words of each command, when the line is plain; None: it is not.
        doubt: Why it is not plain, for people and for the model; empty when it is.
        commands: Everything that might run, also inside substitutions and behind wrappers.
        touches: Words that could name paths, wherever they stand, in the form of `paths`.
        hides: Why it may run what nobody can read, such as code of another language; empty: it does not.
    """

    plain: tuple[tuple[str, ...], ...] | None
    doubt: str
    commands: tuple[Words, ...]
    touches: tuple[str, ...] = ()
    hides: str = ""


class NotPlain(ValueError):
    """A line is not made of literal words alone; says what it holds."""


def plain_parts(line: str) -> tuple[tuple[str, ...], ...]:
    """Split a plain line into its commands and their words, by a grammar much smaller than the shell's.

    Raises:
        NotPlain: It is not plain; says why.
    """
    _check_characters(line)
    parts: list[tuple[str, ...]] = []
    words: list[str] = []
    position, expected = 0, True
    while position < len(line):
        if line[position] in " \t":
            position += 1
        elif found := _OPERATOR.match(line, position):
            if not words:
                raise NotPlain(f"there is no command before {found[0]!r}")
            parts.append(_command(words))
            words, position, expected = [], found.end(), found[0] != ";"
        elif found := _WORD.match(line, position):
            _check_gap(line, found.end())
            words.append(_unquoted(found[0]))
            position = found.end()
            _check_first(words, found[0])
        else:
            raise NotPlain(_unreadable(line, position))
    if words:
        parts.append(_command(words))
    elif expected:
        raise NotPlain("the command line is empty, or ends in the middle")
    if len(parts) > MAX_PARTS:
        raise NotPlain(f"it holds more than {MAX_PARTS} commands")
    return tuple(parts)


def _check_characters(line: str) -> None:
    if len(line) > MAX_CHARACTERS:
        raise NotPlain(f"it is longer than {MAX_CHARACTERS:,} characters")
    for character in line:
        if character in " \t" or "!" <= character <= "~":
            continue
        if character == "\n":
            raise NotPlain("it has more than one line")
        if ord(character) < 128 or unicodedata.category(character)[0] not in "LNPS":
            raise NotPlain(f"it holds the character U+{ord(character):04X}")


def _check_gap(line: str, position: int) -> None:
    """What follows a word must end it: anything else could be read as a part of it."""
    if position < len(line) and line[position] not in " \t" and not _OPERATOR.match(line, position):
        raise NotPlain(_unreadable(line, position))


def _check_first(words: list[str], raw: str) -> None:
    if len(words) > 1:
        return
    if not raw.isascii() or raw != words[0]:
        raise NotPlain(f"the command's name {raw} is written with quotes or unusual letters")
    if words[0] in _RESERVED:
        raise NotPlain(f"{words[0]!r} is a word of the shell's own language")
    if _ASSIGNMENT.match(words[0]):
        raise NotPlain(f"{words[0]!r} sets a variable")
    if words[0].startswith(("-", "%")):
        raise NotPlain(f"{words[0]!r} is not a command's name")


def _command(words: list[str]) -> tuple[str, ...]:
    return tuple(words)


def _unquoted(raw: str) -> str:
    return "".join(piece[1:-1] if piece[:1] in ("'", '"') else piece for piece in _PIECE.split(raw))


_WHAT = {
    "$": "an expansion ($)",
    "`": "a command substitution (`)",
    "\\": "a backslash",
    ">": "a redirection (>)",
    "<": "a redirection (<)",
    "&": "a command in the background (&)",
    "*": "a pattern of file names (*)",
    "?": "a pattern of file names (?)",
    "[": "a pattern of file names ([)",
    "{": "a brace expansion",
    "}": "a brace expansion",
    "(": "a subshell or a function",
    ")": "a subshell or a function",
    "!": "a negation or the history (!)",
    "#": "a comment (#)",
    "~": "a home directory (~)",
    '"': "a string that is expanded or does not end",
    "'": "a string that does not end",
}


def _unreadable(line: str, position: int) -> str:
    return f"it holds {_WHAT.get(line[position], repr(line[position]))}"


SHELLS = frozenset(["sh", "bash", "dash", "zsh", "ksh", "mksh", "ash", "fish", "csh", "tcsh", "rbash", "pwsh"])
_WRAPPERS = """
. [ aa-exec abduco alias annotate-output at batch bind builtin bunx busybox bwrap capsh catchsegv cd cgexec choom
chronic chroot chrt command compgen complete compopt coproc cpulimit crontab daemonize dbus-run-session declare
dialog doas dotenv dtach dumb-init ed emacs enable entr env eval ex exec expect export fakeroot faketime fc firejail
flock ftp function gdb getopts gnome-terminal gosu hash history hyperfine i386 ifne info ionice jobs konsole logsave
ld-linux-x86-64.so.2 ld-linux.so ld.so less let linux32 linux64 local ltrace mail man mapfile memusage more most
mpirun mutt nano nc ncat netcat newgrp nice nix-shell nohup npx nsenter numactl nvim parallel perf pipx pkexec pnpx
popd prlimit proot proxychains pushd read readarray readonly reptyr retry rlwrap rsh run-parts runcon runuser rview
rvim scp screen script sem set setarch setpriv setsid sftp sg shopt socat source ssh ssh-agent sshpass start-stop-
daemon stdbuf strace su su-exec sudo systemd-inhibit systemd-nspawn systemd-run taskset telnet test time timeout
tini tmux torsocks toybox trap tsp typeset uclampset unalias unbuffer unset unshare uvx valgrind vi view vim vimdiff
vipe wait watch whiptail x86_64 xargs xterm xvfb-run
"""
WRAPPERS = SHELLS | frozenset(_WRAPPERS.split())
"""They run what their arguments say, or change what later commands mean. Only a rule without `*` covers one."""

_RISKY_TEXT = {
    "find": "=-exec =-execdir =-ok =-okdir =-delete =-fls =-fprint =-fprint0 =-fprintf =-files0-from",
    "fd": "-x -X --exec --exec-batch",
    "git": "-c -C -O -x --exec --exec-path --config --config-env --git-dir --work-tree --upload-pack "
    "--receive-pack --ext-diff --textconv --open-files-in-pager --output --template "
    "--namespace --super-prefix --extcmd --tool --no-index --pager --remote --smtp-server "
    "=config =run =foreach =filter-branch =difftool =mergetool =send-email =daemon =instaweb "
    "=hook =for-each-repo =upload-pack =receive-pack =credential =gui =citool =remote-ext "
    "=upload-archive =var =maintenance =init =submodule =shell =web--browse",
    "tar": "-I -F -P -T -C --directory --files-from --checkpoint-action --to-command --use-compress-program "
    "--rsh-command --info-script --new-volume-script --rmt-command --absolute-names --overwrite-dir "
    "--index-file",
    "zip": "-T --test --unzip-command",
    "rsync": "-e -M --rsh --rsync-path --remote-option --write-batch --log-file",
    "curl": "-o -O -K -T -F -d -D -c -E -J -x --output --output-dir --remote-name --config "
    "--upload-file --form --data --json --dump-header --cookie-jar --trace --engine --proxy "
    "--stderr --netrc-file --unix-socket --libcurl --etag-save --variable --hsts --alt-svc --preproxy "
    "--socks4 --socks5 --resolve --connect-to --doh-url --proto-default --remote-header-name",
    "wget": "-O -P -i -e -o -a -U --output-document --output-file --append-output --directory-prefix "
    "--post-file --post-data --body-file --body-data --config --execute --use-askpass "
    "--input-file --warc-file --save-cookies --rejected-log",
    "rg": "-z --pre --pre-glob --hostname-bin --search-zip",
    "sort": "-o -T -S --output --compress-program --temporary-directory --files0-from",
    "tree": "-o -R --output",
    "date": "-s -f --set --file",
    "printf": "-v",
    "bundle": "=exec --gemfile",
    "rbenv": "=exec",
    "pyenv": "=exec",
    "direnv": "=exec",
    "pipenv": "=run =shell",
    "conda": "=run",
    "hatch": "=run",
    "pdm": "=run",
    "vagrant": "=ssh -c --command",
    "lxc": "=exec",
    "nix": "=run =shell =develop -c --command",
    "corepack": "=yarn =pnpm =npm",
    "apt-get": "-o -c --option --config-file",
    "apt": "-o -c --option --config-file",
    "dpkg": "--pre-invoke --post-invoke --status-logger --root --instdir --admindir",
    "make": "-f -C -I -E --eval --file --makefile --directory --include-dir",
    "npm": "=exec =x =init =create =config =set --script-shell --prefix --node-options",
    "yarn": "=exec =dlx =node =create --cwd",
    "pnpm": "=exec =dlx =create -C --dir --shell-mode -c",
    "cargo": "--config --manifest-path -C -Z =install",
    "go": "-o -exec -toolexec -vettool -ldflags -C -overlay -modfile --exec --toolexec --vettool --ldflags "
    "=generate =tool =run =env =install =get",
    "uv": "=run =tool =x",
    "poetry": "=run -C",
    "pip": "--index-url --extra-index-url -i -e -t --target --root --prefix --config-settings --python =config",
    "docker": "=run =exec =cp =compose =build =buildx -v --privileged --mount -H --host",
    "kubectl": "=exec =cp =debug =run =edit =plugin --kubeconfig",
    "gh": "=alias =extension =api =codespace =config",
    "terraform": "-chdir =console",
    "nmap": "--script --datadir -o",
    "openssl": "-engine -config -out",
    "pytest": "-c -p -o --rootdir --confcutdir --override-ini --config-file --pdbcls "
    "--basetemp --junitxml --junit-xml --log-file",
    "file": "-m -C --magic-file --compile",
    "split": "--filter",
    "install": "--strip-program",
    "diff": "--to-file --from-file",
    "ctags": "--options",
    "iconv": "-o --output",
    "sqlite3": "-cmd -init -A",
    "psql": "-c -f -o -L --command --file --output",
    "shuf": "-o --output",
    "zstd": "-o --output-dir-flat --output-dir-mirror",
    "unzip": "-d -o",
    "jq": "-f -L --from-file --rawfile --slurpfile",
    "cmake": "-E -P -C -D -G",
    "gcc": "-wrapper -B -o -specs -fplugin",
    "pandoc": "-F -L -o -d -H -A -B --filter --lua-filter --pdf-engine --template --defaults",
    "ssh-keygen": "-D -f -w -P",
    "tcpdump": "-z -w -F",
    "coverage": "=run --rcfile",
    "ip": "=exec -b -batch",
    "rake": "-e -f -r -R -I -p -E",
    "lsof": "-D",
    "mysql": "-e --execute --pager --tee",
}
"""By command: options as they are written, and after `=` whole words; an option's value and abbreviation count too."""
_INLINE = (
    "-c -e -E -r -p -n -i -m -M -I -B -R -F -S -a -d --eval --print --import --require --loader --experimental-loader "
    "--env-file"
)
_INTERPRETERS = [
    "python",
    "python3",
    "perl",
    "ruby",
    "node",
    "deno",
    "bun",
    "php",
    "lua",
    "Rscript",
    "osascript",
    "tclsh",
]
_RISKY = {name: tuple(text.split()) for name, text in _RISKY_TEXT.items()}
_RISKY |= dict.fromkeys(_INTERPRETERS, tuple(_INLINE.split()))
for _name, _like in (("podman", "docker"), ("gtar", "tar"), ("bsdtar", "tar"), ("pip3", "pip"), ("gmake", "make")):
    _RISKY[_name] = _RISKY[_like]
for _name, _like in (("fdfind", "fd"), ("gfind", "find"), ("bfs", "find"), ("cc", "gcc"), ("g++", "gcc")):
    _RISKY[_name] = _RISKY[_like]
_RISKY["deno"] += ("=eval", "=repl")
_RISKY["bun"] += ("=x", "=exec", "=create")

_SAFE_SED = re.compile(r"(?:\d+|\$)?(?:,(?:\d+|\$))?[pdq]|s/[^/\n]*/[^/\n]*/[gpI0-9]*")
_SED_OPTIONS = re.compile(r"-[nEruzs]+|--quiet|--silent|--regexp-extended|--posix|--unbuffered|--null-data")
_AWK_DANGER = re.compile(r"system|getline|[|>@]|close|fflush|ENVIRON|PROCINFO")
_SQLITE_DANGER = re.compile(r"(?:^|\n)\s*\.|load_extension|writefile|readfile|edit\s*\(|fts3_tokenizer", re.IGNORECASE)
_ALIASES_OF_EXTERNAL = re.compile(r"^(?:ext|fd)::|^--?(?:upload|receive)-pack|alias\.|core\.|hooksPath", re.IGNORECASE)


def base_name(name: str) -> str:
    """Give the name of a command without its directory."""
    return name.rpartition("/")[2]


def is_wrapper(words: Words) -> bool:
    """Say whether a command runs what its arguments say, or changes what later commands mean."""
    return bool(words) and words[0] is not None and base_name(words[0]).lower() in WRAPPERS


def is_language(words: Words) -> bool:
    """Say whether a command is an interpreter, which may run what it is given to read."""
    return bool(words) and words[0] is not None and _without_version(base_name(words[0])) in _INTERPRETERS


def has_table(words: Words) -> bool:
    """Say whether it is known which words of a command make it do more than its name says."""
    name = base_name(words[0] or "") if words else ""
    return name.lower() in _SPECIAL or _without_version(name) in _RISKY


def risky_words(words: Words) -> list[str]:
    """List the words of a command that make it do more than its name says."""
    if not words or words[0] is None:
        return []
    name = base_name(words[0])
    known = [word for word in words[1:] if word is not None]
    special = _SPECIAL.get(name.lower())
    if special:
        return special(known)
    program = _without_version(name)
    found = [word for word in known if _is_risky(program, word)] if program in _RISKY else []
    if name == "git":
        found += [word for word in known if _ALIASES_OF_EXTERNAL.search(word)]
        if "clone" in known:
            found += [word for word in known if re.match(r"-[a-z]*u", word)]  # of others, -u means something else
        if "archive" in known or "format-patch" in known:
            found += [word for word in known if re.match(r"-[a-z]*o", word)]
    if name == "tar" and known and re.fullmatch(r"[A-Za-z]*[IFPTC][A-Za-z]*", known[0]):
        found.append(known[0])  # its options may be written without a dash
    if name == "curl":
        found += [word for word in known if word.startswith(("@", "file:"))]
    if name in ("make", "gmake"):
        found += [word for word in known if "=" in word]
    return found


def _without_version(name: str) -> str:
    return re.sub(r"(?<=[a-z])[\d.]+$", "", name) if name.startswith(("python", "perl", "ruby", "lua", "php")) else name


@lru_cache(maxsize=4_096)
def _is_risky(program: str, word: str) -> bool:
    return any(_is_option(word, option) for option in _RISKY[program])


def _is_option(word: str, option: str) -> bool:
    if option.startswith("="):
        return word == option[1:]
    if option.startswith("--"):
        name = word.partition("=")[0]
        return len(name) > 2 and (option.startswith(name) or name.startswith(option + "-"))
    if len(option) > 2:  # a long option with one dash
        return word.lstrip("-").partition("=")[0] == option[1:]
    return word.startswith("-") and not word.startswith("--") and option[1] in word[1:]


def _sed(words: list[str]) -> list[str]:
    options = [word for word in words if word.startswith("-")]
    found = [word for word in options if not _SED_OPTIONS.fullmatch(word)]
    script = next((word for word in words if not word.startswith("-")), "")
    return found if _SAFE_SED.fullmatch(script) else [*found, script]


def _awk(words: list[str]) -> list[str]:
    options = [word for word in words if word.startswith("-") and not word.startswith("-F")]
    return options + [word for word in words if _AWK_DANGER.search(word)]


def _sqlite(words: list[str]) -> list[str]:
    options = [word for word in words if word.startswith("-") and _is_risky("sqlite3", word)]
    return options + [word for word in words if _SQLITE_DANGER.search(word)]


def _second_place(words: list[str]) -> list[str]:
    """Give what is written: the second of the places that are named."""
    places = [word for word in words if not word.startswith("-")]
    return [word for word in words if word.startswith("-r")] + places[1:]


_SPECIAL: dict[str, Callable[[list[str]], list[str]]] = {
    "sed": _sed,
    "gsed": _sed,
    "awk": _awk,
    "gawk": _awk,
    "mawk": _awk,
    "nawk": _awk,
    "sqlite3": _sqlite,
    "uniq": _second_place,
    "xxd": _second_place,
}
