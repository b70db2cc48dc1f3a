"""What a command may not touch in its own working directory: what git runs by itself, policies, keys and settings."""

import os
import stat
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from loom_cli.doctor.check import Status
from loom_cli.doctor.environment import without_namespaces
from loom_dsl.errors import PermissionDenied, ToolError
from loom_tools.builtin.commands import told
from loom_tools.sandbox.order import Means
from loom_tools.sandbox.protected_files import protected_in
from loom_tools.sandbox.run import LAUNCHER, run_confined
from loom_tools.sandbox.settings import lacking, order_of
from tests.support.waiting import PATIENCE, longer, until
from tests.tools.escapes import REPOSITORY, SECRET, SECRETS
from tests.tools.test_confinement import PYTHON, Place

KEY = f"-----BEGIN PRIVATE KEY-----\n{SECRET}\n-----END PRIVATE KEY-----\n"
CERTIFICATE = "-----BEGIN CERTIFICATE-----\nabc\n-----END CERTIFICATE-----\n"
HIDDEN = {".env": f"TOKEN={SECRET}\n", "settings/.env.local": f"TOKEN={SECRET}\n", "settings/deploy.pem": KEY,
          "keys/id_rsa": KEY, "keys/.ssh/other": SECRET, ".npmrc": SECRET}  # fmt: skip
SHOWN = {"ca.pem": CERTIFICATE, ".env.example": "TOKEN=\n", "keys/id_rsa.pub": "ssh-rsa\n", "plain.txt": "a\n"}
WHO = "git -c user.name=a -c user.email=a@b -c init.defaultBranch=main"


@pytest.fixture(scope="module", autouse=True)
def means() -> Iterator[Means]:
    found = LAUNCHER.means()
    if lacking(found):
        pytest.skip(f"this machine lacks {' and '.join(lacking(found))}")
    yield found
    LAUNCHER.close()


@pytest.fixture(params=["namespaces", "one process group"])
def place(request: pytest.FixtureRequest, means: Means, tmp_path: Path) -> Place:
    if request.param == "namespaces" and not means.namespaces:
        pytest.skip("this user may not make namespaces")
    way = replace(means, namespaces=request.param == "namespaces")
    made = Place(tmp_path / "work", tmp_path / "home", tmp_path / "outside", way)
    for folder in (made.work, made.home):
        folder.mkdir()
    return made


def git(folder: Path, command: str) -> str:
    said = subprocess.run(f"{WHO} {command}", shell=True, cwd=folder, check=True, capture_output=True, text=True)
    return said.stdout


def a_repository(folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    git(folder, "init -q --template=")
    (folder / ".git" / "hooks").mkdir()
    (folder / ".git" / "hooks" / "a.sample").write_text("#!/bin/sh\n")


@pytest.fixture
def project(place: Place) -> Place:
    """A repository with a module, a worktree, other repositories in it, settings that name others, and a policy."""
    work = place.work
    for folder in (work, work / "below", work / "part"):
        a_repository(folder)
    (work / ".git" / "modules").mkdir()
    (work / "part" / ".git").rename(work / ".git" / "modules" / "part")
    (work / "part" / ".git").write_text("gitdir: ../.git/modules/part\n")
    (work / ".git" / "worktrees" / "one").mkdir(parents=True)
    (work / ".git" / "worktrees" / "one" / "commondir").write_text("../..\n")
    (work / ".loom").mkdir()
    (work / ".loom" / "policy.yaml").write_text("loom: 1\nkind: policy\n")
    name_more(work)
    return place


def name_more(work: Path) -> None:
    """Let the repositories' settings name hooks, programs and other settings; some of them are not there."""
    a_repository(work / "apart")
    (work / "apart" / ".git").rename(work / "apart.git")
    (work / "apart" / ".git").write_text("gitdir: ../apart.git\n")
    git(work, "init -q --bare --template= bare.git")
    (work / "bare.git" / "hooks").mkdir()
    for file in (".githooks/pre-commit", "tools/clean.sh", "shared.cfg"):
        (work / file).parent.mkdir(exist_ok=True)
        (work / file).write_text("# as it was\n")
    with (work / ".git" / "config").open("a") as file:
        file.write("[core]\n\thooksPath = .githooks ; ours\n[include] path = ../shared.cfg\n")
        file.write('[includeIf "gitdir:x"]\n\tpath = "../later.cfg"\n[filter "x"] clean = sh \\\n tools/clean.sh %f\n')
    with (work / "below" / ".git" / "config").open("a") as file:
        file.write("[core]\n\thooksPath = made/hooks\n")


def what_decides(work: Path) -> dict[str, tuple[str, int]]:
    """All that git runs or reads settings from, and the policy, with their modes."""
    found = {}
    places = [".git/hooks", ".git/config", ".git/config.worktree", ".git/commondir", ".git/worktrees", "part/.git",
              ".git/modules/part/config", ".git/modules/part/hooks", "below/.git/config", "below/.git/hooks",
              "apart/.git", "apart.git/config", "apart.git/hooks", "bare.git/config", "bare.git/hooks", ".githooks",
              "tools/clean.sh", "shared.cfg", "later.cfg", "below/made/hooks", ".loom"]  # fmt: skip
    for name in places:
        for file in [work / name, *sorted((work / name).rglob("*"))]:
            if file.is_file():
                found[str(file.relative_to(work))] = (file.read_text(), stat.S_IMODE(file.stat().st_mode))
    return found


@pytest.mark.parametrize("what", REPOSITORY)
def test_what_git_runs_by_itself_and_the_policy_stay_as_they_are(project: Place, what: str) -> None:
    before = what_decides(project.work)
    project.run(REPOSITORY[what].format(python=PYTHON))
    assert what_decides(project.work) == before


@pytest.fixture
def keys(place: Place) -> Place:
    for name, text in {**HIDDEN, **SHOWN}.items():
        (place.work / name).parent.mkdir(parents=True, exist_ok=True)
        (place.work / name).write_text(text)
    return place


@pytest.mark.parametrize("what", SECRETS)
def test_keys_and_settings_in_the_working_directory_are_not_read(keys: Place, what: str) -> None:
    git(keys.work, "init -q")
    assert SECRET not in keys.run(SECRETS[what].format(python=PYTHON)).output
    files = [
        path for path in keys.work.rglob("*") if path.is_file() and not path.is_symlink() and ".git" not in path.parts
    ]
    left = sorted(path.read_text() for path in files if SECRET in path.read_text())
    assert left == sorted(HIDDEN.values()), "they are there, perhaps in a directory of another name"


def test_a_key_by_its_directorys_name_stays_one_for_later_commands(keys: Place) -> None:
    (keys.work / "x" / ".aws").mkdir(parents=True)
    (keys.work / "x" / ".aws" / "credentials").write_text(SECRET)
    keys.run("mv keys/.ssh keys/plain; mv x/.aws x/plain; mv x y; mv keys k; mv k/.ssh plain")
    assert SECRET not in keys.run("cat */*/credentials */.*/credentials */*/other */.*/other */other; true").output


def test_keys_and_settings_are_not_written_and_others_are_as_always(keys: Place) -> None:
    ended = keys.run("for file in .env settings/.env.local keys/id_rsa; do echo x > $file; rm -f $file; done; cat .env")
    assert "denied" in ended.output or "Read-only" in ended.output
    for name, text in HIDDEN.items():
        assert (keys.work / name).read_text() == text
    shown = keys.run("cat ca.pem .env.example keys/id_rsa.pub plain.txt; echo more >> plain.txt; cat plain.txt")
    assert shown.output == CERTIFICATE + "TOKEN=\nssh-rsa\na\na\nmore\n"


def test_the_operator_may_show_files_that_only_look_like_keys(keys: Place) -> None:
    environment = {**os.environ, "HOME": str(keys.home), "LOOM_CONFINEMENT_SHOW": "settings/*.pem:keys/**"}
    argv = ["/bin/bash", "-c", "cat settings/deploy.pem keys/id_rsa; cat settings/.env.local"]
    ended = run_confined(order_of(argv, keys.work, keys.means, environment, cpu=5), timeout=PATIENCE)
    assert ended.output.startswith(KEY + KEY)
    assert "denied" in ended.output[len(KEY) * 2 :]


@pytest.mark.parametrize("place", ["namespaces"], indirect=True)
def test_git_goes_on_working_where_there_are_namespaces(project: Place) -> None:
    for file in ("a.txt", "b.txt"):
        (project.work / file).write_text(f"{file}\n")
    (project.work / ".githooks" / "pre-commit").write_text("#!/bin/sh\necho hooked >> hooked.txt\n")
    (project.work / ".githooks" / "pre-commit").chmod(0o755)
    commands = ["add a.txt", "commit -q -m one", "status --short", "checkout -q -b other", "add b.txt",
                "commit -q -m two", "diff main other --stat", "checkout -q main", "merge -q other", "tag v1",
                "branch -q -m other third", "log --oneline", "stash list", "gc -q", "fsck"]  # fmt: skip
    for command in commands:
        ended = project.run(f"{WHO} {command}")
        assert ended.status == 0 or command.startswith("branch"), (command, ended.output)
    assert len(git(project.work, "log --oneline").splitlines()) == 2
    assert (project.work / "hooked.txt").read_text() == "hooked\n" * 2


@pytest.mark.parametrize("place", ["one process group"], indirect=True)
def test_without_namespaces_git_still_looks_and_nothing_new_is_made_beside_what_is_protected(project: Place) -> None:
    (project.work / "src").mkdir()
    (project.work / "src" / "a.txt").write_text("a\n")
    assert project.run("git status --short && git diff && git log --oneline; true").output.startswith("?? ")
    assert project.run("echo b >> src/a.txt; mkdir src/new; echo c > src/new/c; mv src/new/c src/d").status == 0
    assert {path.name for path in (project.work / "src").iterdir()} == {"a.txt", "d", "new"}
    ended = project.run("echo x > new.txt")
    assert not (project.work / "new.txt").exists()
    environment = {"HOME": str(project.home)}
    order = order_of(["/bin/true"], project.work, project.means, environment, cpu=1)
    assert "makes nothing new in ., .git, .git/modules" in told(ended, "it", 1, order)


def test_a_link_gives_no_rights_where_it_leads(project: Place) -> None:
    (project.home / "key").write_text(SECRET)
    (project.work / "link").symlink_to(project.home)
    (project.work / "file").symlink_to(project.home / "key")
    (project.work / ".env").write_text(SECRET)
    (project.work / "harmless").symlink_to(".env")
    ended = project.run("cat link/key file harmless; echo x > link/made; echo x > file")
    assert SECRET not in ended.output
    assert os.listdir(project.home) == ["key"]
    assert (project.home / "key").read_text() == SECRET


@pytest.mark.parametrize("place", ["namespaces"], indirect=True)
def test_what_must_not_appear_is_removed_and_told(project: Place) -> None:
    ended = project.run("echo ../evil > .git/commondir; mkdir below/.git/config.worktree")
    assert ended.removed == (".git/commondir", "below/.git/config.worktree")
    order = order_of(["/bin/true"], project.work, project.means, {"HOME": str(project.home)}, cpu=1)
    assert "removed" in told(ended, "it", 1, order)
    assert not (project.work / ".git" / "commondir").exists()
    assert not (project.work / "below" / ".git" / "config.worktree").exists()


@pytest.mark.parametrize("place", ["namespaces"], indirect=True)
def test_a_repository_without_hooks_gets_an_empty_directory_for_them(place: Place) -> None:
    git(place.work, "init -q --template=")
    assert place.run("mkdir -p .git/hooks; echo x > .git/hooks/pre-commit").status
    assert os.listdir(place.work / ".git" / "hooks") == []


def test_hooks_in_the_working_directory_itself_cannot_be_protected(project: Place) -> None:
    with (project.work / ".git" / "config").open("a") as file:
        file.write("[core] hooksPath = .\n")
    with pytest.raises(PermissionDenied, match=r"no command runs here: \. is where git looks for hooks"):
        order_of(["/bin/true"], project.work, project.means, {"HOME": str(project.home)}, cpu=1)


def test_settings_of_whoever_runs_git_count_for_every_repository(
    project: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(project.home))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    (project.home / ".gitconfig").write_text("[core]\n  hooksPath = myhooks\n  fsmonitor = tools/watch\n")
    for repository in (project.work, project.work / "below"):
        (repository / "myhooks").mkdir()
        (repository / "tools").mkdir(exist_ok=True)
        (repository / "tools" / "watch").write_text("as it was")
    project.run("echo x > myhooks/pre-commit; echo x > below/myhooks/pre-push; echo x > below/tools/watch; mv tools t")
    for repository in (project.work, project.work / "below"):
        assert os.listdir(repository / "myhooks") == []
        assert (repository / "tools" / "watch").read_text() == "as it was"


@pytest.mark.parametrize("place", ["namespaces"], indirect=True)
def test_a_command_ends_what_it_removed_also_when_it_is_stopped(project: Place) -> None:
    made = project.work / ".git" / "commondir"
    for seconds in longer(1.0):
        ended = project.run("echo ../evil > .git/commondir; echo on; sleep 600", timeout=seconds)
        if ended.output:
            break
    assert (ended.output, ended.stopped) == ("on\n", "timeout")
    until(lambda: not made.exists())


@pytest.mark.parametrize("name", [".git", ".loom", ".git/hooks", ".git/config"])
def test_a_link_that_cannot_be_protected_refuses_commands(project: Place, name: str) -> None:
    place = project.work / name
    place.rename(project.work / "elsewhere")
    place.symlink_to(project.work / "elsewhere")
    environment = {"HOME": str(project.home)}
    with pytest.raises(PermissionDenied, match=rf"no command runs here: {name} is a symbolic link"):
        order_of(["/bin/true"], project.work, project.means, environment, cpu=1)
    environment["LOOM_CONFINEMENT"] = "best_effort"
    order_of(["/bin/true"], project.work, project.means, environment, cpu=1)


def test_best_effort_leaves_the_directory_whole_where_there_are_no_namespaces(keys: Place) -> None:
    environment = {**os.environ, "HOME": str(keys.home), "LOOM_CONFINEMENT": "best_effort"}
    argv = ["/bin/bash", "-c", "echo x > new; cat .env"]
    ended = run_confined(order_of(argv, keys.work, keys.means, environment, cpu=5), timeout=PATIENCE)
    assert (keys.work / "new").exists()
    assert (SECRET in ended.output) is not keys.means.namespaces


def test_a_directory_too_large_to_be_looked_through_runs_no_command(tmp_path: Path) -> None:
    for number in range(30):
        (tmp_path / str(number)).touch()
    with pytest.raises(ToolError, match="more than 20 files"):
        protected_in(str(tmp_path), most=20)
    assert protected_in(str(tmp_path)).hidden == ()


@pytest.mark.parametrize(
    ("mode", "status", "words"),
    [("required", Status.OK, "no `git commit`"), ("best_effort", Status.WARN, "are not protected")],
)
def test_the_doctor_says_what_is_protected_without_namespaces(mode: str, status: Status, words: str) -> None:
    found = without_namespaces(mode, "Landlock version 7, seccomp")
    assert found.status is status
    assert words in found.found


@contextmanager
def nobody_may_write(folder: Path) -> Iterator[None]:
    """Let nobody make anything in a directory, user 0 neither."""
    undo: Callable[[], object]
    if os.geteuid():
        folder.chmod(0o555)
        undo = partial(folder.chmod, 0o755)
    else:
        chattr = partial(subprocess.run, capture_output=True)
        if chattr(["chattr", "+i", folder], check=False).returncode:
            pytest.skip("user 0 may write everywhere, and this file system has no immutable directories")
        undo = partial(chattr, ["chattr", "-i", folder], check=True)
    try:
        yield
    finally:
        undo()


def test_what_nobody_here_can_make_needs_no_protection(place: Place) -> None:
    git(place.work, "init -q --template=")
    with nobody_may_write(place.work / ".git"):
        said = place.run("mkdir .git/hooks; git status --short").output
    # User 0 is refused by the directory itself, or before it by Landlock where there are no namespaces.
    assert "Permission denied" in said or "Operation not permitted" in said
    assert not (place.work / ".git" / "hooks").exists()
