"""The five minutes: what `loom init` writes works as its README says, with the real commands."""

import json
import os
import re
import shlex
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.cli.conftest import LOOM, served
from tests.cli.terminal import Terminal
from tests.support.ports import own_port

ROOT = Path(__file__).resolve().parents[2]


def blocks(readme: Path) -> list[list[str]]:
    """The console blocks, as lists of command lines."""
    found = re.findall(r"```console\n(.*?)```", readme.read_text(encoding="utf-8"), re.DOTALL)
    return [block.strip().splitlines() for block in found]


def split(line: str, model_port: int) -> tuple[dict[str, str], list[str]]:
    """The variables and the arguments of a command line of the README, with a port that is free here."""
    words = shlex.split(line.replace("8126", str(model_port)))
    assert words.count("loom") == 1
    at = words.index("loom")
    return dict(word.split("=", 1) for word in words[:at]), words[at + 1 :]


@pytest.mark.server
def test_the_readme_of_a_new_project_works_as_it_stands(tmp_path: Path) -> None:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("LOOM_", "OPENAI_"))}
    port, model_port, project = own_port(), own_port(), tmp_path / "hello"
    own = {"PYTHONPATH": str(ROOT), "XDG_STATE_HOME": str(tmp_path / "state"), "LOOM_ADDRESS": f"127.0.0.1:{port}"}
    env = {**kept, **own, "TERM": "xterm-256color"}
    with Terminal([*LOOM, "init", "hello"], env, tmp_path) as begun:
        assert begun.end() == 0
    (model,), (dev,), (validate, run) = blocks(project / "README.md")
    with ExitStack() as stack:
        _, arguments = split(model, model_port)
        stack.enter_context(served(arguments, env, project, "http://"))
        more, arguments = split(dev, model_port)
        # Ports of this machine may be taken; the README's command takes the usual ones.
        ports = ["--port", str(port), "--http-port", "0", "--headless"]
        stack.enter_context(served([*arguments, *ports], {**env, **more}, project, "worker ready"))
        _, arguments = split(validate, model_port)
        with Terminal([*LOOM, *arguments], env, project) as checked:
            assert checked.end() == 0, checked.said
        _, arguments = split(run, model_port)
        with Terminal([*LOOM, *arguments], env, project, 100) as job:
            job.expect("write_file needs approval")
            job.expect("[y]es")
            assert not (project / "report.md").exists()
            job.type("y\n")
            assert job.end() == 0, job.said
    assert "word_count" in job.screen
    report = (project / "report.md").read_text(encoding="utf-8")
    heading, _, counts = report.partition("\n\n")
    assert heading == "# Words in notes.txt"
    assert json.loads(counts) == {"words": 21, "the": 6, "loom": 2, "holds": 2}
