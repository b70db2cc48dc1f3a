"""The search for the Temporal CLI, with small programs in the place of `temporal` and `go`."""

import io
import re
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from loom_cli.dev import progress
from loom_cli.dev.progress import run_shown
from loom_cli.dev.temporal_cli import build_with_go, download_with_sdk, find_temporal, temporal_cache, why_unfit
from loom_dsl.errors import ConfigurationError
from tests.support.waiting import PATIENCE

ROOT = Path(__file__).parents[2]
HELP = "--http-port --db-filename --dynamic-config-value --headless"


def program(path: Path, script: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def temporal(path: Path, help_text: str = HELP) -> Path:
    return program(path, f"echo '{help_text}'")


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """An environment with nothing in it but the shell's own programs."""
    return {
        "PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin",
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "HOME": str(tmp_path),
    }


def never(folder: Path, env: Mapping[str, str]) -> tuple[Path | None, str]:
    raise AssertionError("nothing had to be got")


def unreachable(folder: Path, env: Mapping[str, str]) -> tuple[Path | None, str]:
    return None, "the network cannot be reached"


def written(folder: Path, env: Mapping[str, str]) -> tuple[Path | None, str]:
    return temporal(folder / "temporal"), ""


def broken(folder: Path, env: Mapping[str, str]) -> tuple[Path | None, str]:
    return program(folder / "temporal", "exit 3"), ""


def test_the_named_binary_comes_before_the_one_on_path(tmp_path: Path, env: dict[str, str]) -> None:
    temporal(tmp_path / "bin" / "temporal")
    named = temporal(tmp_path / "elsewhere" / "my temporal")
    assert find_temporal(env | {"TEMPORAL_CLI": str(named)}, sources=[never]) == named


def test_the_one_on_path_comes_before_the_cache(tmp_path: Path, env: dict[str, str]) -> None:
    on_path = temporal(tmp_path / "bin" / "temporal")
    temporal(temporal_cache(env) / "temporal")
    assert find_temporal(env, sources=[never]) == on_path


def test_the_cache_comes_before_getting_one(env: dict[str, str]) -> None:
    cached = temporal(temporal_cache(env) / "temporal")
    assert find_temporal(env, sources=[never]) == cached


def test_what_is_got_goes_into_the_cache_and_leaves_nothing_beside_it(env: dict[str, str]) -> None:
    found = find_temporal(env, sources=[unreachable, broken, written])
    assert found == temporal_cache(env) / "temporal"
    assert why_unfit(found) is None
    assert sorted(file.name for file in found.parent.iterdir()) == ["lock", "temporal"]
    assert find_temporal(env, sources=[never]) == found


def test_an_unfit_binary_on_path_or_in_the_cache_is_passed_over(tmp_path: Path, env: dict[str, str]) -> None:
    temporal(tmp_path / "bin" / "temporal", "--db-filename")
    program(temporal_cache(env) / "temporal", "kill -9 $$")
    found = find_temporal(env, sources=[written])
    assert why_unfit(found) is None


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("exit 1", "ended with status 1"),
        ("echo --db-filename --headless", "too old.*--http-port, --dynamic-config-value"),
    ],
)
def test_a_named_binary_that_will_not_do_is_refused(
    tmp_path: Path, env: dict[str, str], script: str, reason: str
) -> None:
    named = program(tmp_path / "mine", script)
    with pytest.raises(ConfigurationError, match=f"(?s)TEMPORAL_CLI names .*mine, but .*{reason}.*unset it"):
        find_temporal(env | {"TEMPORAL_CLI": str(named)}, sources=[never])


@pytest.mark.parametrize(
    ("content", "mode", "reason"),
    [(None, 0, "no such file"), ("text", 0o644, "does not run"), ("\x7fELF", 0o755, "does not run")],
)
def test_a_named_file_that_is_no_program_is_refused(
    tmp_path: Path, env: dict[str, str], content: str | None, mode: int, reason: str
) -> None:
    named = tmp_path / "mine"
    if content is not None:
        named.write_text(content)
        named.chmod(mode)
    with pytest.raises(ConfigurationError, match=reason):
        find_temporal(env | {"TEMPORAL_CLI": str(named)}, sources=[never])


def test_when_nothing_helps_the_message_says_what_was_tried_and_what_to_install(
    tmp_path: Path, env: dict[str, str]
) -> None:
    program(tmp_path / "bin" / "temporal", "exit 1")
    with pytest.raises(ConfigurationError) as refused:
        find_temporal(env, sources=[unreachable, broken])
    for part in ("bin/temporal: `server start-dev --help` ended with status 1", "cannot be reached", "status 3"):
        assert part in refused.value.message
    for part in ("https://docs.temporal.io/cli/setup-cli", "TEMPORAL_CLI", "install Go"):
        assert part in refused.value.message
    assert not (temporal_cache(env) / "temporal").exists()


def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path, env: dict[str, str]) -> None:
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(ConfigurationError, match=r"cache directory .*/cache/loom/.* Set XDG_CACHE_HOME"):
        find_temporal(env, sources=[written])


def test_go_is_asked_for_the_pinned_version_and_its_binary_is_taken(tmp_path: Path, env: dict[str, str]) -> None:
    asked = tmp_path / "asked"
    prepared = temporal(tmp_path / "prepared")
    program(tmp_path / "bin" / "go", f"echo \"$*\" > '{asked}'; cp '{prepared}' $GOBIN/temporal")
    stage = tmp_path / "stage"
    stage.mkdir()
    assert build_with_go(stage, env) == (stage / "temporal", "")
    assert asked.read_text() == "install github.com/temporalio/cli/cmd/temporal@v1.5.1\n"
    assert find_temporal(env, sources=[build_with_go]) == temporal_cache(env) / "temporal"


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("echo 'go: module lookup disabled by GOPROXY=off' >&2; exit 1", "module lookup disabled"),
        ("exit 0", "ended without a message"),
    ],
)
def test_a_failed_build_tells_gos_last_line(tmp_path: Path, env: dict[str, str], script: str, reason: str) -> None:
    program(tmp_path / "bin" / "go", script)
    binary, told = build_with_go(tmp_path, env)
    assert binary is None
    assert reason in told


def test_without_go_the_build_says_so(tmp_path: Path, env: dict[str, str]) -> None:
    assert build_with_go(tmp_path, env | {"PATH": str(tmp_path)}) == (None, "`go` is not on PATH")


def test_a_build_that_dies_halfway_leaves_no_binary(tmp_path: Path, env: dict[str, str]) -> None:
    program(tmp_path / "bin" / "go", "printf half > $GOBIN/temporal; chmod +x $GOBIN/temporal; kill -9 $$")
    with pytest.raises(ConfigurationError, match="`go install` failed"):
        find_temporal(env, sources=[build_with_go])
    assert sorted(file.name for file in temporal_cache(env).iterdir()) == ["lock"]


def test_a_download_that_cannot_connect_fails_at_once(tmp_path: Path, env: dict[str, str]) -> None:
    # A proxy that refuses stands for a machine without the open internet.
    binary, reason = download_with_sdk(tmp_path, env | {"HTTPS_PROXY": "http://127.0.0.1:9", "NO_PROXY": ""})
    assert binary is None
    assert "download" in reason
    assert "no byte came" not in reason, "it was waited for"


def test_a_download_that_hangs_is_given_up(tmp_path: Path, env: dict[str, str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        proxy = f"http://127.0.0.1:{silent.getsockname()[1]}"
        binary, reason = download_with_sdk(tmp_path, env | {"HTTPS_PROXY": proxy, "NO_PROXY": ""}, stall=1.0)
    assert binary is None
    assert reason == "no byte came for 1 s"


FINDER = """
from loom_cli.dev.temporal_cli import find_temporal
from loom_cli.dev.temporal_cli import build_with_go
print(find_temporal(sources=[build_with_go]))
"""


def test_two_processes_at_once_build_once(tmp_path: Path, env: dict[str, str]) -> None:
    builds = tmp_path / "builds"
    prepared = temporal(tmp_path / "prepared")
    program(tmp_path / "bin" / "go", f"echo build >> '{builds}'; sleep 1; cp '{prepared}' $GOBIN/temporal")
    finders = [
        subprocess.Popen([sys.executable, "-c", FINDER], env=env, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    found = [finder.communicate(timeout=PATIENCE)[0].strip() for finder in finders]
    assert found == [str(temporal_cache(env) / "temporal")] * 3
    assert builds.read_text() == "build\n"


def test_a_killed_builder_neither_blocks_nor_litters(tmp_path: Path, env: dict[str, str]) -> None:
    going = tmp_path / "going"
    go = program(tmp_path / "bin" / "go", f"touch '{going}'; sleep 2")
    first = subprocess.Popen([sys.executable, "-c", FINDER], env=env, cwd=ROOT, stdout=subprocess.PIPE)
    while not going.exists():
        time.sleep(0.01)
    first.kill()
    first.communicate()
    temporal(go.with_name("prepared"))
    program(go, f"cp '{go.with_name('prepared')}' $GOBIN/temporal")
    found = find_temporal(env, sources=[build_with_go])
    assert sorted(file.name for file in found.parent.iterdir()) == ["lock", "temporal"]


def test_a_short_command_shows_nothing() -> None:
    stream = io.StringIO()
    command = ["sh", "-c", "echo said; exit 4"]
    # A busy machine may take two seconds to begin it.
    assert run_shown(command, "Thinking", stream=stream, quiet=PATIENCE) == (4, "said\n")
    assert stream.getvalue() == ""


class Shown(io.StringIO):
    """Lets a command end as soon as what it says is shown."""

    def __init__(self, go: Path) -> None:
        super().__init__()
        self._go = go

    def write(self, text: str) -> int:
        if "step one" in text:
            self._go.touch()
        return super().write(text)


def test_a_long_command_says_what_it_does_and_since_when(tmp_path: Path) -> None:
    go = tmp_path / "go"
    stream = Shown(go)
    command = f"echo step one; while [ ! -e '{go}' ]; do sleep 0.1; done"
    run_shown(["sh", "-c", command], "Thinking", stream=stream)
    *_, shown, last = stream.getvalue().splitlines()
    found = re.fullmatch(r"Thinking: (\d+) s  step one", shown)
    assert found
    assert int(found[1]) >= progress.QUIET_SECONDS
    assert last.startswith("Thinking: done after ")


def test_progress_runs_before_anything_is_installed() -> None:
    script = ROOT / "loom_cli" / "dev" / "progress.py"
    ended = subprocess.run(
        [sys.executable, "-I", "-S", script, "Installing", "--", "sh", "-c", "echo the reason; exit 7"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ended.returncode == 7
    assert "the reason" in ended.stderr
    assert "Installing failed" in ended.stderr
