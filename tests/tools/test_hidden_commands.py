"""The table of hidden commands is true: each line really runs `rm`, in the confinement.

Those that cannot be tried here are named with the reason. That all are seen to hide it is tested where they are read.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from loom_dsl.permissions.rules import commands_of
from loom_dsl.permissions.shell_line import read_line
from loom_tools.sandbox.order import Means
from loom_tools.sandbox.run import LAUNCHER, run_confined
from loom_tools.sandbox.settings import lacking, order_of
from tests.support import doubtful_lines
from tests.support.command_lines import HIDDEN_RM, READ_AS_ECHO
from tests.support.waiting import PATIENCE
from tests.unit.test_command_rules import NO_RM, verdict

MARK = "mark"
"""A file that our `rm` removes whatever it is told to remove; one that is called by its full path removes `x`."""
_LATER = f"\nfor _ in {{1..3000}}; do [ -e {MARK} ] && [ -e x ] || break; command -p sleep 0.01; done"
_BESIDE = re.compile(r"&|coproc|setsid|[<>]\(")
"""What runs beside the line is waited for."""
GIVEN = b"rm x\n" + b"1\ny\n" * 20
PREPARED = {
    **dict.fromkeys(["$X", 'bash -c "$X"'], "export X='rm x'"),
    **dict.fromkeys(["$1 x", '"$@"'], "set -- rm x"),
    "IFS=,; $X": "X=rm,x",
    "echo ${x@P}": "x='$(rm x)'",
    **dict.fromkeys(
        ["git -c core.sshCommand='rm x' fetch", "GIT_SSH_COMMAND='rm x' git fetch"], "git checkout -q base"
    ),
    "GIT_EXTERNAL_DIFF='rm x' git diff": "echo 2 > f",
    "GIT_EDITOR='rm x' git commit": "git add y",
    "git bisect run rm x": "for i in 1 2 3; do git commit -q --allow-empty -m b; done; git bisect start HEAD HEAD~3",
    "tar cf a b --checkpoint-action=exec='rm x'": "truncate -s 1M b",
    "../../bin/rm x": "mkdir -p ../../bin; ln -sf /bin/rm ../../bin/rm",
}
"""What must be there before a line does what it can do."""
NOT_SEEN = {
    "it runs only where the command before it fails": ["echo a || rm x", "if true; then echo; else rm x; fi"],
    "bash refuses what does not end; another shell may not": [
        "echo 'unfinished; rm x",
        'echo "unfinished; rm x',
        "echo $(rm x",
        "if true; then rm x",
    ],
    "what a pattern of file names fits is the machine's": ["/bin/r* x", "/???/rm x", "../../bin/rm x"],
    "only the whole system's rights let it": [
        *("su -c 'rm x'", "su root -c 'rm x'", "su -c'rm x' root", "chrt 1 rm x", "strace rm x", "unshare rm x"),
        *("chroot / rm x", "choom -n 1 -- rm x", "systemd-run rm x", "systemd-inhibit rm x", "sg g 'rm x'"),
        *("dpkg -i x.deb --pre-invoke='rm x'", "bash /dev/stdin", "source /dev/stdin", "script -c 'rm x'"),
        "apt-get -o APT::Update::Pre-Invoke::='rm x' update",
        *("sudo rm x", "sudo -u root rm x", "sudo -- rm x", "sudo sudo rm x", "sudo env A=b nice rm x", "doas rm x"),
        *("sudo bash -c 'rm x'", "echo rm x | sudo bash"),
    ],
    "it needs another machine, or a service of this one": [
        *("ssh host rm x", "ssh host 'rm x'", "docker run i rm x", "docker exec c rm x", "kubectl exec p -- rm x"),
        *("corepack yarn exec rm", "npx rm x", "rsync -e 'rm x' a b"),
        *("at now <<< 'rm x'", "at now <<E\nrm x\nE", "batch <<< 'rm x'", "crontab - <<< '* * * * * rm x'"),
    ],
    "it needs a terminal, or a screen": [
        *("dialog --prgbox 'rm x' 1 1", "xterm -e rm x", "xvfb-run rm x"),
        *(
            "git -c core.pager='rm x' log",
            "PAGER=rm git log",
            "PAGER='rm x' git log",
            "export GIT_PAGER='rm x'; git log",
        ),
        "GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=core.pager GIT_CONFIG_VALUE_0='rm x' git log",
        "bind -x '\"a\":rm x'",
        "LESSOPEN='|rm x' less f",
    ],
    "the repository must have what it works on": [
        *("git submodule foreach 'rm x'", "git clone -u 'rm x' a", "git fetch 'ext::sh -c \"rm x\"'"),
        *("bundle exec rm x", "direnv exec . rm x", "nix-shell --run 'rm x'", "pipenv run rm x"),
    ],
    "what it changes counts for a later line": [
        *("BASH_ALIASES[e]=rm", "BASH_CMDS[echo]=/bin/rm; echo x", "hash -p /bin/rm echo; echo x"),
        *("alias e=rm; e x", "alias e='rm x'; e", "trap -- 'rm x' DEBUG"),
    ],
    "not every version of the program does it": [
        *("PS4='$(rm x)' bash -xc :", "wait -p 'a[$(rm x)]'", "getopts a 'a[$(rm x)]'", "ed -c x <<< '!rm x'"),
    ],
    "it removes another file": ["/bin/{rm,x} y"],
}
"""Lines that are not tried, by the reason. That they run it elsewhere is no mistake of the table."""
RARE = ("busybox", "expect", "fd", "lua", "numactl", "parallel", "php", "socat", "toybox", "zsh")
"""Programs that many machines have not got: lines that begin with one are tried where it is."""
NOT_TRIED = {line for lines in NOT_SEEN.values() for line in lines}
ABSENT = {line for line in HIDDEN_RM if (name := line.partition(" ")[0]) in RARE and not shutil.which(name)}
NO_ARGUMENT = {line for line in HIDDEN_RM if "\0" in line}
"""No program can be given these."""
TRIED = [line for line in HIDDEN_RM if line not in NOT_TRIED | NO_ARGUMENT | ABSENT]
ALONE = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
"""For git, which otherwise does as whoever runs the tests has set it."""


@pytest.fixture(scope="module", autouse=True)
def means() -> Iterator[Means]:
    found = LAUNCHER.means()
    if lacking(found):
        pytest.skip(f"this machine lacks {' and '.join(lacking(found))}")
    yield found
    LAUNCHER.close()


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with what the lines name, and a repository."""
    made = tmp_path_factory.mktemp("repository") / "work"
    (made / "bin").mkdir(parents=True)
    for name in (MARK, "x", "y", "f", "b"):
        (made / name).write_text("1\n")
    set_up = "git config user.name a; git config user.email a@b; git remote add origin ssh://host.invalid/x"
    branch = "git checkout -qb work && git branch -q base && git branch -q -u base && git commit -q --allow-empty -m b"
    script = f"git init -q . && {set_up} && git add f && git commit -qm a && {branch} && tar cf a f"
    subprocess.run(script, shell=True, cwd=made, env=ALONE, check=True, capture_output=True)
    return made


@pytest.fixture
def work(repository: Path, tmp_path: Path) -> Path:
    """A copy of the repository for one line, with a `rm` of our own before the system's."""
    made = tmp_path / "job" / "work"
    shutil.copytree(repository, made)
    subprocess.run(
        ["git", "update-index", "-q", "--refresh"], cwd=made, env=ALONE, check=True
    )  # the copies are other files
    ours = made / "bin" / "rm"
    ours.write_text(f'#!/bin/sh\n/bin/rm -f {made / MARK}\nexec /bin/rm "$@"\n')
    ours.chmod(0o755)
    (made / "rm").symlink_to("/bin/rm")
    return made


def run(line: str, work: Path, means: Means, later: str = _LATER) -> str:
    """Run a line until `rm` has been run, or to its end; give what it said."""

    def is_seen() -> bool:
        return not ((work / MARK).exists() and (work / "x").exists())

    script = f"export PATH={work}/bin:$PATH\n{PREPARED.get(line, '')}\n{line}{later if _BESIDE.search(line) else ''}"
    argv = ["/bin/bash", "--noprofile", "--norc", "-c", script]
    order = order_of(argv, work, means, {**os.environ, "HOME": str(work.parent)}, cpu=PATIENCE)
    return run_confined(order, timeout=PATIENCE, given=GIVEN, cancelled=is_seen).output


@pytest.mark.parametrize("line", TRIED)
def test_a_line_of_the_table_really_runs_what_it_hides(line: str, work: Path, means: Means) -> None:
    said = run(line, work, means)
    is_run = not ((work / MARK).exists() and (work / "x").exists())
    assert is_run, f"nothing was run: {said[-300:]}"


def test_what_is_excused_stands_in_the_table() -> None:
    assert NOT_TRIED | set(PREPARED) <= set(HIDDEN_RM)
    assert len(set(HIDDEN_RM) - NOT_TRIED) > len(HIDDEN_RM) * 3 // 4, "what is excused is the exception"


@pytest.mark.parametrize("line", ["echo rm x", "cat f; git status", "mv y z & wait"])
def test_a_line_that_runs_something_else_is_not_taken_for_one(line: str, work: Path, means: Means) -> None:
    run(line, work, means, later="")
    assert (work / MARK).exists()
    assert (work / "x").exists()


LINES = [
    *(*HIDDEN_RM, *READ_AS_ECHO, *doubtful_lines.SHOWING, *doubtful_lines.HIDING, *doubtful_lines.RUNNING_RM),
    *(*doubtful_lines.ELSEWHERE, *doubtful_lines.TOUCHING),
]
PIECE = re.compile(r"\w+|\s+|[^\w\s]")
SIGNS = ["'", '"', "\\", "$", "`", "(", ")", "{", "}", ";", "&", "|", "\n", " ", "<", ">", "*", "#", "-", "=", "rm x"]
TRIED_PROGRAMS_TEXT = """
[ : awk basename cat command comm cut diff diff3 dirname echo env expr false find git grep head ls nice nohup paste
printf read sed seq setsid sort split stat stdbuf tac tail tar test timeout tr true uniq wc xargs
"""
TRIED_PROGRAMS = frozenset(TRIED_PROGRAMS_TEXT.split())
"""What is run of mutants: programs that harm nothing, whatever they are told."""
ENDLESS = re.compile(r"while|until|tail.*-[fF]|\d{3}")


def mutants(random: Random, count: int) -> Iterator[str]:
    """Lines of the tables with pieces put in, left out, doubled, swapped or taken from another, that are allowed."""
    while count:
        pieces = PIECE.findall(random.choice(LINES)) or [""]
        others = PIECE.findall(random.choice(LINES)) or [""]
        for _ in range(random.randint(1, 4)):
            at, other = random.randrange(len(pieces)), random.randrange(len(pieces))
            change = random.randrange(5)
            if change == 0:
                pieces.insert(at, random.choice(SIGNS))
            elif change == 1:
                pieces[at : at + 1] = [""]
            elif change == 2:
                pieces.insert(other, pieces[at])
            elif change == 3:
                pieces[at], pieces[other] = pieces[other], pieces[at]
            else:
                start = random.randrange(len(others))
                pieces[at:at] = others[start : start + random.randint(1, 4)]
        line = "".join(pieces)
        names = {words[0] for words in commands_of(read_line(line))}
        if not ENDLESS.search(line) and names <= TRIED_PROGRAMS and verdict(NO_RM, line).decision == "allow":
            count -= 1
            yield line


@pytest.mark.parametrize(
    ("seed", "count"), [(1, 150), *(pytest.param(seed, 3_000, marks=pytest.mark.nightly) for seed in (2, 3))]
)
def test_no_mutant_that_is_allowed_runs_what_is_forbidden(seed: int, count: int, work: Path, means: Means) -> None:
    ran = []
    for line in mutants(Random(seed), count):
        for name in (MARK, "x"):
            (work / name).write_text("1\n")
        run(line, work, means, later="\nwait")
        if not (work / MARK).exists():
            ran.append(line)
    assert ran == []
