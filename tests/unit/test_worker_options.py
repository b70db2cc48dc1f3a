"""The command line of the worker that `loom dev` starts: files that a variable names stay the variable's."""

from pathlib import Path

import pytest

from loom_cli.commands.serve.dev import WorkerOptions
from loom_cli.options import named_by
from loom_client.settings import Settings


@pytest.mark.parametrize(
    ("given", "flag", "expected"),
    [
        (None, "hooks.yaml", "--webhooks"),
        ("", "hooks.yaml", "--webhooks"),
        ("other.yaml", "hooks.yaml", "--webhooks"),
        ("hooks.yaml", "hooks.yaml", "LOOM_WEBHOOKS"),
        ("./hooks.yaml", "hooks.yaml", "LOOM_WEBHOOKS"),
    ],
)
def test_a_file_is_named_as_it_was_given(given: str | None, flag: str, expected: str) -> None:
    environment = {} if given is None else {"LOOM_WEBHOOKS": given}
    file = Path(flag)
    assert named_by("--webhooks", file, environment) == expected
    command = WorkerOptions((), Path("/"), "", (), webhooks=file).command(Settings(), "127.0.0.1:1", environment)
    if expected == "--webhooks":
        assert command[command.index("--webhooks") + 1] == str(file.absolute())
    else:
        assert "--webhooks" not in command


def test_the_worker_of_loom_dev_is_told_where_its_metrics_are() -> None:
    command = WorkerOptions((), Path("/"), "", (), metrics="127.0.0.1:9464").command(Settings(), "127.0.0.1:1")
    assert command[command.index("--metrics") + 1] == "127.0.0.1:9464"
    assert "--metrics" not in WorkerOptions((), Path("/"), "", ()).command(Settings(), "127.0.0.1:1")
