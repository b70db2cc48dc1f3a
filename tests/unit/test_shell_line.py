"""A line is read as bash reads it: whatever runs stands in the reading, and nothing else does."""

import re
import subprocess
from pathlib import Path
from random import Random

import pytest

from loom_dsl.permissions.shell_line import Words, is_told_later, read_line

PIECES = [
    *(
        "a",
        "b",
        "a x",
        "b y",
        "a ",
        "b ",
        " ",
        "  ",
        "\t",
        "\n",
        ";",
        "&",
        "&&",
        "||",
        "|",
        "|&",
        "(",
        ")",
        "{ ",
        "; }",
    ),
    *("}", "{", "! ", "if ", "; then ", "; fi", "; else ", "for f in ", "; do ", "; done", '"', "'", "\\", "$", "$f"),
    *('"$f"', "${f}", "$?", "$(", "`", "${", "$((", "))", "<", ">", ">>", "2>", "2>&1", ">&2", "&>", "<<E\n", "\nE\n"),
    *(
        "<<'E'\n",
        "<<-E\n\t",
        "<<<",
        ">|",
        "<>",
        "3<",
        "*",
        "?",
        "[ab]",
        "[",
        "{a,b}",
        "{,c}",
        "{a}",
        "{}",
        "{1..3}",
        "~",
    ),
    *(
        "#",
        "# c",
        "x",
        "y",
        "1",
        "2",
        "=",
        "A=1 ",
        "CI=1 ",
        "-n",
        "!",
        "!x",
        "%",
        "^",
        ",",
        ":",
        ".",
        "\u00e9",
        '$"',
        "$'",
    ),
    *("\\\n", "time ", "-p ", "else", "done", "do", "in ", "case ", "esac", "function ", "[[ ", "]] "),
    *("$(a)", '"$(b x)"', "$(b $(a))", " <(a)", "< <(b)", "v=$(a)", "v=x; ", '"$v"', "$v", "[[ x == $v ]]", "[[ -f "),
    *(
        "[[ ! -n ",
        " ]]",
        " == ",
        "== x",
        "IFS= read v",
        "{./a}",
        "{./*}",
        "${v:-x}",
        '"${v%.*}"',
        "${#v}",
        "${v:1}",
        "${v-",
        "A=1 ",
        "Z=x ",
        '"$\'"',
        "{a/b}",
        "<<E\n$(a)\nE\n",
        "<<E\n$v\\\nE\n",
    ),
]
FORMS = [
    *("a {}", "a {} | b {}", "if a; then b {}; fi", 'for f in {}; do a "$f" {}; done', "(a {}; b)", "a {} > o && b"),
    *("a <<E {}\nx\nE\nb", "a 2>&1 {}", "! a {} & b", "time a {}", "a {} # c\nb {}", "CI=1 a {}"),
    *(
        "a $(b {})",
        'a "$(b {})" {}',
        "v=$(a {}); b $v",
        "a <(b {})",
        "[[ {} ]] && a",
        "[[ x == {} ]]; b",
        "a <<E\n{}\nE\n",
    ),
    *('for f in $(a {}); do b "$f"; done', "while read f; do a {}; done < <(b {})", 'a "{} $(b {} "x") {}"'),
]
STRAIGHT = re.compile(r"\([^)]*&|\{.*\$\(|\$\(.*\{|&&|\|\||if |for |while |done|!|\d?[<>]")
"""Where none of these stands, each command runs once, and is waited for."""


def drawn(random: Random, count: int) -> list[str]:
    """Lines of any pieces that are read, and run nothing but `a` and `b`."""
    found: list[str] = []
    while len(found) < count:
        if random.random() < 0.5:
            line = "".join(random.choices(PIECES, k=random.randint(1, 9)))
        else:
            form = random.choice(FORMS)
            line = "".join(
                part + "".join(random.choices(PIECES, k=random.randint(1, 4))) * (number < form.count("{}"))
                for number, part in enumerate(form.split("{}"))
            )
        reading = read_line(line)
        if not reading.unknown and all(words[0] in ("a", "b", "env", "read", "test") for words in reading.commands):
            found.append(line)
    return found


def run_by_bash(lines: list[str], folder: Path) -> list[list[str]]:
    """The words of each command that bash runs, by line: each word ends with NUL."""
    (folder / "work").mkdir()
    whole = "\"${@//$'\\n'/$'\\1'}\""  # bash writes line by line, and what runs beside it could come between two
    tells = "".join(f"{name}() {{ printf '%s\\0' $N {name} {whole} END >&9; }}\n" for name in "ab")
    quoted = ["'" + line.replace("'", "'\\''") + "'" for line in lines]
    runs = "".join(f"( N={at}; eval {line}; wait ) </dev/null >/dev/null 2>&1\n" for at, line in enumerate(quoted))
    script = folder / "script"
    script.write_text(f"HOME='~'; exec 9>&1\n{tells}{runs}")
    bash = ["bash", "--noprofile", "--norc", str(script)]
    said = subprocess.run(bash, cwd=folder / "work", check=True, stdout=subprocess.PIPE).stdout
    ran: list[list[str]] = [[] for _ in lines]
    for told in filter(None, said.decode(errors="surrogateescape").split("END\0")):  # also of what ends behind its line
        number, _, words = told.replace("\1", "\n").partition("\0")
        ran[int(number)].append(words)
    return ran


def shape(words: Words) -> re.Pattern[str]:
    """What the words may be when they run: one that is told later may be several, or none."""
    return re.compile("".join("(?:[^\0]*\0)*?" if is_told_later(word) else f"{re.escape(word)}\0" for word in words))


def read_commands(line: str) -> list[Words]:
    """The commands of `a` and `b` that a line is read to run, without the variables that they are given."""
    programs = [
        words[next(at for at, word in enumerate(words) if at and "=" not in word) :] if words[0] == "env" else words
        for words in read_line(line).commands
    ]
    return [words for words in programs if words[0] in ("a", "b")]


@pytest.mark.parametrize(
    ("seed", "count"), [(1, 400), *(pytest.param(seed, 20_000, marks=pytest.mark.nightly) for seed in range(2, 7))]
)
def test_bash_runs_the_commands_that_were_read(seed: int, count: int, tmp_path: Path) -> None:
    lines = drawn(Random(seed), count)
    for line, ran in zip(lines, run_by_bash(lines, tmp_path), strict=True):
        commands = read_commands(line)
        shapes = [shape(words) for words in commands]
        assert [words for words in ran if not any(one.fullmatch(words) for one in shapes)] == [], line
        if not STRAIGHT.search(line):
            assert len(ran) == len(commands), line
