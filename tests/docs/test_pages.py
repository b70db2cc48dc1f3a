"""Every command and every piece of code in the documentation is run, or is named in `not_run.py` with the reason."""

import json
import re
import shutil
from pathlib import Path

import pytest
from temporalio.client import Client

from loom_cli.dev.server import DevServer
from loom_cli.project.validate import Tools, check_file
from loom_dsl.agent.definition import load_agent
from loom_dsl.approvals.decision import Decision
from loom_dsl.documents.document import load_yaml
from loom_dsl.machine.signals import Control
from loom_tools.registry import ToolRegistry
from tests.docs.markdown import EXAMPLES, PAGES, ROOT, Block, anchors, blocks, links, name_of
from tests.docs.not_run import NOT_RUN
from tests.docs.reader import Reader, shown
from tests.support.server import create_namespace, run_apart

ALL = [block for page in PAGES for block in blocks(page)]
RUN = ("bash", "python")
SHOWN = ("text", "mermaid")


def is_run(block: Block) -> bool:
    return block.language in RUN and not block.options.keys() & {"file", "in"} and "no-test" not in block.words


def is_followed(page: Path) -> bool:
    return any(is_run(block) or "file" in block.options for block in blocks(page))


@pytest.mark.server
@pytest.mark.timeout(900)  # a page may have dozens of commands, each a Python of its own
@pytest.mark.parametrize("page", [page for page in PAGES if is_followed(page)], ids=name_of)
def test_a_reader_can_do_what_the_page_says(page: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    with reader_of(page, tmp_path, request) as reader:
        if page in EXAMPLES:
            shutil.copytree(page.parent, reader.home, dirs_exist_ok=True)
        if needs_project(page):
            reader.begin_project()
        for block in blocks(page):
            if "no-test" in block.words:
                continue
            if "file" in block.options:
                write(block, reader.path(block.options["file"]), reader)
            elif "in" in block.options:
                lines = reader.path(block.options["in"]).read_text(encoding="utf-8")
                assert block.text in lines, f"{block.place}: this is not in {block.options['in']}"
            elif block.language in RUN:
                try:
                    reader.follow(block)
                except AssertionError as error:
                    raise AssertionError(f"{block.place}: {error}") from None
            elif "output" in block.words:
                assert shown(block.text, reader.output), f"{block.place}: not in the output:\n{reader.output}"


def reader_of(page: Path, folder: Path, request: pytest.FixtureRequest) -> Reader:
    """Give who follows a page.

    For the README everything is started anew, a server too. The commands of other pages have their libraries already,
    and a namespace of their own where the page has a server.
    """
    if page == ROOT / "README.md":
        return Reader(folder)
    loom = request.getfixturevalue("loom_at_hand")
    own = ([*loom, "-P"], [*loom, "-"])
    if not (needs_project(page) or any(is_run(block) and "loom dev" in block.text for block in blocks(page))):
        return Reader(folder, *own)
    server = request.getfixturevalue("dev_server")
    return Reader(folder, *own, server, run_apart(own_namespace(server)))


async def own_namespace(server: DevServer) -> str:
    return await create_namespace(await Client.connect(server.address))


def needs_project(page: Path) -> bool:
    return "<!-- needs: project -->" in page.read_text(encoding="utf-8")


def write(block: Block, file: Path, reader: Reader) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(reader.with_own_ports(block.text), encoding="utf-8")
    if file.suffix == ".py":
        compile(block.text, block.place, "exec")
    if file.suffix in (".yaml", ".yml"):
        _, findings = check_file(file, Tools(ToolRegistry.load()), {})
        own = [found for found in findings if found.severity == "error"]
        assert not own, f"{block.place}: {own}"


def data_blocks(language: str) -> list[Block]:
    return [block for block in ALL if block.language == language and not block.options]


@pytest.mark.parametrize("block", data_blocks("json"), ids=lambda block: block.place)
def test_json_is_what_the_page_says_it_is(block: Block) -> None:
    value = json.loads(block.text)
    for word, model in {"decision": Decision, "control": Control}.items():
        if word in block.words:
            model.model_validate(value)


@pytest.mark.parametrize("block", data_blocks("yaml"), ids=lambda block: block.place)
def test_yaml_is_what_the_page_says_it_is(block: Block) -> None:
    load_yaml(block.text, block.place)
    if "agent" in block.words:
        written = re.findall(r"(?m)^(\w+):", block.text)
        head = {"loom": "1", "kind": "agent", "name": "example", "model": "example"}
        text = "".join(f"{key}: {value}\n" for key, value in head.items() if key not in written) + block.text
        load_agent(text, block.place, {"OPENAI_MODEL": "example"})


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_to_what_is_there(page: Path) -> None:
    for link in links(page):
        if re.match(r"https?://", link):
            continue
        target, _, anchor = link.partition("#")
        file = (page.parent / target).resolve() if target else page
        assert file.is_relative_to(ROOT), link
        assert file.exists(), f"{name_of(page)} links to {link}, which is not there"
        assert not anchor or anchor in anchors(file), f"{name_of(page)} links to {link}; there is no such heading"


def test_what_no_test_runs_is_named_with_the_reason() -> None:
    unrun = {(block.page, block.text.split("\n")[0]) for block in ALL if "no-test" in block.words}
    assert unrun == NOT_RUN.keys()
    assert all(NOT_RUN.values())


def test_every_block_is_marked_with_what_it_is() -> None:
    known = {*RUN, *SHOWN, "json", "yaml"}
    wrong = [block.place for block in ALL if block.language not in known and "no-test" not in block.words]
    assert not wrong, f"say what these blocks are: {wrong}"
    silent = [block.place for block in ALL if block.language == "console" and "no-test" not in block.words]
    assert not silent
