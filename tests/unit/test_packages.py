"""Loom, installed from a wheel and as an editable checkout, works from any directory."""

import json
import os
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = (
    "loom_dsl", "loom_store", "loom_tools", "workflows", "activities", "loom_client", "loom_gateway", "loom_cli",
)  # fmt: skip

LOOK = """
import importlib, json, sys
from loom_cli.dev.file import DevServerSettings, dev_file_text
places = {name: importlib.import_module(name).__file__ for name in sys.argv[1:]}
print(json.dumps({"places": places, "port": DevServerSettings.load().port, "dev_file": dev_file_text()[1]}))
"""


def pip(*arguments: object) -> None:
    # Offline, and with this environment's hatchling: what is tried is the package, not the registry.
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd="/")
    assert done.returncode == 0, done.stdout + done.stderr


class Environment:
    """A virtual environment that sees this one's libraries, but not the checkout."""

    def __init__(self, folder: Path) -> None:
        venv.create(folder, with_pip=False)
        self.python = folder / "bin" / "python"
        self.site = next(folder.glob("lib/python*/site-packages"))
        # Only this directory is added: .pth files in it, such as an editable Loom's, are not read from here.
        (self.site / "libraries.pth").write_text(sysconfig.get_path("purelib"))

    def install(self, *what: object) -> None:
        pip("--python", self.python, "install", "--no-index", "--no-deps", "--no-build-isolation", *what)

    def look(self, elsewhere: Path) -> dict[str, Any]:
        env = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
        done = subprocess.run(
            [self.python, "-W", "error", "-c", LOOK, *PACKAGES],
            capture_output=True, text=True, check=False, cwd=elsewhere, env=env,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return dict(json.loads(done.stdout))

    def pytest(self, folder: Path) -> subprocess.CompletedProcess[str]:
        env = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
        command = [self.python, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        return subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder, env=env)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    pip("wheel", "--no-index", "--no-deps", "--no-build-isolation", "--wheel-dir", folder, ROOT)
    (built,) = folder.glob("*.whl")
    return built


def test_an_installed_wheel_works_from_any_directory(wheel: Path, tmp_path: Path) -> None:
    environment = Environment(tmp_path / "an environment")
    environment.install(wheel)
    (tmp_path / "elsewhere").mkdir()
    seen = environment.look(tmp_path / "elsewhere")
    assert {Path(place).parent.parent for place in seen["places"].values()} == {environment.site}
    assert Path(seen["dev_file"]) == environment.site / "loom_cli" / "temporal-dev.yml"
    assert seen["port"] == 7233


@pytest.mark.nightly
def test_an_editable_install_works_from_any_directory(tmp_path: Path) -> None:
    environment = Environment(tmp_path / "an environment")
    environment.install("--editable", ROOT)
    (tmp_path / "elsewhere").mkdir()
    seen = environment.look(tmp_path / "elsewhere")
    assert {Path(place).parent.parent for place in seen["places"].values()} == {ROOT}
    assert Path(seen["dev_file"]) == ROOT / "temporal-dev.yml"
    assert seen["port"] == 7233


def test_the_wheel_holds_every_file_of_the_packages_and_no_other(wheel: Path) -> None:
    held = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    files = (file for package in PACKAGES for file in (ROOT / package).rglob("*"))
    wanted = {
        str(file.relative_to(ROOT)) for file in files if file.is_file() and file.suffix in (".py", ".yaml", ".typed")
    }
    assert "loom_dsl/errors.py" in wanted
    wanted.add("loom_cli/temporal-dev.yml")
    assert wanted <= held
    assert {name.partition("/")[0] for name in held} <= {*PACKAGES, "worker.py"}
    assert not {name for name in held if name.endswith((".pyc", ".db")) or "/tests/" in name}


def test_every_package_says_that_it_is_typed(wheel: Path) -> None:
    assert {f"{package}/py.typed" for package in PACKAGES} <= set(zipfile.ZipFile(wheel).namelist())


@pytest.mark.nightly
def test_an_installed_wheel_gives_pytest_a_fixture_and_is_no_burden_to_it(wheel: Path, tmp_path: Path) -> None:
    environment = Environment(tmp_path / "an environment")
    environment.install(wheel)
    (tmp_path / "test_it.py").write_text(
        "import sys\n\ndef test_nothing_is_loaded():\n    assert not {'loom_dsl', 'pydantic'} & set(sys.modules)\n\n"
        "def test_the_fixture_is_there(simulate):\n    assert callable(simulate)\n"
    )
    done = environment.pytest(tmp_path)
    assert done.returncode == 0, done.stdout


def test_the_fixed_libraries_are_declared() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = {requirement.partition(">")[0] for requirement in project["dependencies"]}
    assert {"temporalio", "pydantic", "openai", "tenacity"} <= needed
    assert {"pytest", "temporalio[testing]"} <= {
        requirement.partition(">")[0] for requirement in project["optional-dependencies"]["test"]
    }
