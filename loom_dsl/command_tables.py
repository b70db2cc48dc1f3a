"""Commands that run other commands, and options that make a harmless command a dangerous one."""

import re
from collections.abc import Callable

from loom_dsl.shell import Words

SHELLS = frozenset(["sh", "bash", "dash", "zsh", "ksh", "mksh", "ash", "fish", "csh", "tcsh", "rbash", "pwsh"])
WRAPPERS = SHELLS | frozenset(
    [
        ".",
        "[",
        "alias",
        "annotate-output",
        "at",
        "batch",
        "bind",
        "builtin",
        "bunx",
        "busybox",
        "bwrap",
        "capsh",
        "cd",
        "chronic",
        "chroot",
        "chrt",
        "command",
        "compgen",
        "complete",
        "compopt",
        "coproc",
        "crontab",
        "daemonize",
        "dbus-run-session",
        "declare",
        "doas",
        "ed",
        "emacs",
        "enable",
        "entr",
        "env",
        "eval",
        "ex",
        "exec",
        "expect",
        "export",
        "fakeroot",
        "faketime",
        "fc",
        "firejail",
        "flock",
        "ftp",
        "function",
        "gdb",
        "getopts",
        "hash",
        "history",
        "i386",
        "ifne",
        "info",
        "ionice",
        "jobs",
        "ld-linux-x86-64.so.2",
        "ld-linux.so",
        "ld.so",
        "less",
        "let",
        "linux32",
        "linux64",
        "local",
        "ltrace",
        "mail",
        "man",
        "mapfile",
        "more",
        "most",
        "mutt",
        "nano",
        "nc",
        "ncat",
        "netcat",
        "nice",
        "nohup",
        "npx",
        "nsenter",
        "nvim",
        "parallel",
        "perf",
        "pipx",
        "pkexec",
        "pnpx",
        "popd",
        "prlimit",
        "proot",
        "proxychains",
        "pushd",
        "read",
        "readarray",
        "readonly",
        "rsh",
        "run-parts",
        "runuser",
        "scp",
        "screen",
        "script",
        "set",
        "setarch",
        "setpriv",
        "setsid",
        "sftp",
        "shopt",
        "socat",
        "source",
        "ssh",
        "sshpass",
        "start-stop-daemon",
        "stdbuf",
        "strace",
        "su",
        "sudo",
        "systemd-run",
        "taskset",
        "telnet",
        "test",
        "time",
        "timeout",
        "tmux",
        "torsocks",
        "toybox",
        "trap",
        "typeset",
        "unalias",
        "unbuffer",
        "unset",
        "unshare",
        "uvx",
        "valgrind",
        "vi",
        "view",
        "vim",
        "wait",
        "watch",
        "x86_64",
        "xargs",
    ]
)
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
    "tar": "-I -F -P --checkpoint-action --to-command --use-compress-program --rsh-command "
    "--info-script --new-volume-script --rmt-command --absolute-names --overwrite-dir "
    "--index-file",
    "zip": "-T --test --unzip-command",
    "rsync": "-e -M --rsh --rsync-path --remote-option --write-batch --log-file",
    "curl": "-o -O -K -T -F -d -D -c -E -J -x --output --output-dir --remote-name --config "
    "--upload-file --form --data --json --dump-header --cookie-jar --trace --engine --proxy "
    "--stderr --netrc-file --unix-socket --libcurl --etag-save",
    "wget": "-O -P -i -e -o -a -U --output-document --output-file --append-output --directory-prefix "
    "--post-file --post-data --body-file --body-data --config --execute --use-askpass "
    "--input-file --warc-file --save-cookies --rejected-log",
    "rg": "-z --pre --pre-glob --hostname-bin --search-zip",
    "sort": "-o -T -S --output --compress-program --temporary-directory --files0-from",
    "tree": "-o -R --output",
    "date": "-s -f --set --file",
    "printf": "-v",
    "make": "-f -C -I --eval --file --makefile --directory --include-dir",
    "npm": "=exec =x =init =create =config =set --script-shell --prefix --node-options",
    "yarn": "=exec =dlx =node =create --cwd",
    "pnpm": "=exec =dlx =create -C --dir --shell-mode -c",
    "cargo": "--config --manifest-path -C -Z",
    "go": "-exec -toolexec -C -overlay -modfile --exec --toolexec =generate =tool",
    "uv": "=run =tool =x",
    "poetry": "=run -C",
    "pip": "--index-url --extra-index-url -i -e -t --target --root --prefix --config-settings",
    "docker": "=run =exec =cp =compose =build =buildx -v --privileged --mount -H --host",
    "kubectl": "=exec =cp =debug =run =edit =plugin --kubeconfig",
    "gh": "=alias =extension =api =codespace =config",
    "terraform": "-chdir =console",
    "nmap": "--script --datadir -o",
    "openssl": "-engine -config -out",
    "pytest": "-c -p -o --rootdir --confcutdir --override-ini --config-file --pdbcls",
    "file": "-m -C --magic-file --compile",
    "xxd": "-r",
    "split": "--filter",
    "install": "--strip-program",
    "diff": "--to-file --from-file",
    "ctags": "--options",
    "iconv": "-o --output",
    "sqlite3": "-cmd -init -A",
    "psql": "-c -f -o -L --command --file --output",
    "mysql": "-e --execute --pager --tee",
}
"""By command: options as they are written, and after `=` whole words; an option's value and abbreviation count too."""
_INLINE = "-c -e -E -r -p -n -i -m -M -I -B -R -F -S --eval --print"
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
_RISKY["fdfind"] = _RISKY["fd"]

_SAFE_SED = re.compile(r"(?:\d+|\$)?(?:,(?:\d+|\$))?[pdq]|s/[^/\n]*/[^/\n]*/[gpI0-9]*")
_SED_OPTIONS = re.compile(r"-[nEruzs]+|--quiet|--silent|--regexp-extended|--posix|--unbuffered|--null-data")
_AWK_DANGER = re.compile(r"system|getline|[|>@]|close|fflush|ENVIRON|PROCINFO")
_ALIASES_OF_EXTERNAL = re.compile(r"^(?:ext|fd)::|^--?(?:upload|receive)-pack|alias\.|core\.|hooksPath", re.IGNORECASE)


def base_name(name: str) -> str:
    """Give the name of a command without its directory."""
    return name.rpartition("/")[2]


def is_wrapper(words: Words) -> bool:
    """Say whether a command runs what its arguments say, or changes what later commands mean."""
    return bool(words) and words[0] is not None and base_name(words[0]).lower() in WRAPPERS


def risky_words(words: Words) -> list[str]:
    """List the words of a command that make it do more than its name says."""
    if not words or words[0] is None:
        return []
    name = base_name(words[0])
    known = [word for word in words[1:] if word is not None]
    special = _SPECIAL.get(name.lower())
    if special:
        return special(known)
    risky = _RISKY.get(_without_version(name), ())
    found = [word for word in known if any(_is_option(word, option) for option in risky)]
    if name == "git":
        found += [word for word in known if _ALIASES_OF_EXTERNAL.search(word)]
    if name in ("make", "gmake"):
        found += [word for word in known if "=" in word]
    return found


def _without_version(name: str) -> str:
    return re.sub(r"(?<=[a-z])[\d.]+$", "", name) if name.startswith(("python", "perl", "ruby", "lua", "php")) else name


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


_SPECIAL: dict[str, Callable[[list[str]], list[str]]] = {
    "sed": _sed,
    "gsed": _sed,
    "awk": _awk,
    "gawk": _awk,
    "mawk": _awk,
    "nawk": _awk,
}
