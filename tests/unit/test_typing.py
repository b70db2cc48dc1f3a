"""The types of the public names are behaviour: what may be written passes, and each mistake is found where it is."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "tests" / "typing"


def test_mypy_finds_each_mistake_in_its_line_and_nothing_else() -> None:
    """Both files in one run, as most of its time is for what they import."""
    files = [FOLDER / "uses.py", FOLDER / "mistakes.py"]
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--hide-error-context", *map(str, files)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.stderr == ""
    found = re.findall(r"(?m)^(\S+?):(\d+): error: .*\[([\w-]+)\]$", done.stdout)
    lines = files[1].read_text(encoding="utf-8").splitlines()
    expected = [
        (str(files[1].relative_to(ROOT)), str(number), code)
        for number, line in enumerate(lines, 1)
        for code in line.partition("# expect: ")[2].split()
    ]
    assert sorted(found) == sorted(expected), done.stdout
