"""What a program imports from the packages themselves."""

import ast
import importlib
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import loom_client
import loom_dsl
from loom_client.connection import connect
from loom_dsl.graph.builder import functions
from tests.docs.markdown import PAGES, ROOT, blocks, name_of

PACKAGES = [loom_dsl, loom_client]
OURS = re.compile(r"\b(?:from|import) +((?:loom_|workflows|activities)[\w.]*)")
EXAMPLES = [
    file
    for folder in ("examples", "loom_cli/project/starts", "loom_cli/project/template")
    for file in sorted((ROOT / folder).rglob("*.py"))
]


def homes(package: ModuleType) -> dict[str, str]:
    """The module of each name, as the imports for type checkers have it."""
    found = {}
    for node in ast.parse(inspect.getsource(package)).body:
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            for line in node.body:
                assert isinstance(line, ast.ImportFrom)
                assert line.module is not None
                found |= {name.name: line.module for name in line.names}
    return found


def test_a_program_connects_with_what_the_package_is_named_after() -> None:
    assert loom_client.connect is connect


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.__name__)
class TestAPackage:
    def test_gives_the_names_that_type_checkers_see(self, package: ModuleType) -> None:
        assert list(package.__all__) == sorted(homes(package))
        for name, home in homes(package).items():
            module = importlib.import_module(home)
            expected = functions if name == "functions" else getattr(module, name)
            assert getattr(package, name) is expected

    def test_lists_its_names_before_they_are_loaded(self, package: ModuleType) -> None:
        look = f"import {package.__name__} as p; print(sorted(set(p.__all__) - set(dir(p))))"
        assert printed(look) == "[]"

    def test_has_no_name_that_is_a_module_of_its_own(self, package: ModuleType) -> None:
        assert package.__file__ is not None
        modules = {path.stem for path in Path(package.__file__).parent.iterdir()}
        assert modules & set(package.__all__) == set()

    def test_tells_of_a_name_that_is_not_there_as_any_module_does(self, package: ModuleType) -> None:
        with pytest.raises(AttributeError, match=f"'{package.__name__}' has no attribute 'conect'"):
            _ = package.conect

    def test_alone_loads_nothing_heavy(self, package: ModuleType) -> None:
        heavy = ("temporalio", "sqlalchemy", "pydantic", "ruamel.yaml", "asyncio")
        look = f"import sys, {package.__name__}; print([name for name in {heavy} if name in sys.modules])"
        assert printed(look) == "[]"

    def test_has_every_name_in_the_reference_and_no_other(self, package: ModuleType) -> None:
        page = (ROOT / "docs/reference/python.md").read_text(encoding="utf-8")
        part = page.partition(f"<!-- table: names-{package.__name__} -->")[2].partition("<!-- end of table -->")[0]
        assert re.findall(r"(?m)^\| `(\w+)` \|", part) == sorted(package.__all__)


def test_what_tools_need_is_there_without_the_reader_of_yaml() -> None:
    look = "import sys; from loom_dsl import ToolContext, ToolError, tool; print('ruamel.yaml' in sys.modules)"
    assert printed(look) == "False"


@pytest.mark.parametrize("page", [page for page in PAGES if "/adr/" not in str(page)], ids=name_of)
def test_a_page_imports_from_nowhere_deeper(page: Path) -> None:
    texts = [block.text for block in blocks(page) if block.language == "python"]
    assert [name for text in texts for name in imported(text) if name not in ("loom_dsl", "loom_client")] == []
    prose = re.findall(r"`((?:loom_dsl|loom_client|loom_cli)\.\w[\w.]*)", page.read_text(encoding="utf-8"))
    assert [name for name in prose if not is_public(name)] == []


@pytest.mark.parametrize("file", EXAMPLES, ids=name_of)
def test_an_example_imports_from_nowhere_deeper(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    assert [name for name in imported(text) if name not in ("loom_dsl", "loom_client")] == []


@pytest.mark.parametrize("file", [*PAGES, *EXAMPLES], ids=name_of)
def test_no_program_has_to_leave_the_interpreter_before_its_end(file: Path) -> None:
    called = [line for line in file.read_text(encoding="utf-8").splitlines() if re.match(r"\s*os\._exit\(", line)]
    assert called == []


def imported(text: str) -> Iterator[str]:
    """The modules of Loom that a program imports."""
    return (found[1] for found in OURS.finditer(text))


def is_public(name: str) -> bool:
    package, _, rest = name.partition(".")
    return package in sys.modules and rest.split(".")[0] in getattr(sys.modules[package], "__all__", ())


def printed(program: str) -> str:
    """What a program prints in an interpreter of its own."""
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.strip()
