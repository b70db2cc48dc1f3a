"""Users' code in a process of its own gets and gives what it would in the worker, and its end harms nobody."""

import asyncio
import os
import pickle
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import pytest_asyncio

from loom_dsl.errors import LoomError, OutcomeUnknown, PermissionDenied, ToolError, ToolUnavailable, UnreadableResult
from loom_dsl.permissions.function import PermissionRequest
from loom_dsl.tools.context import Reconciliation, TodoItem, ToolContext, ToolOutput, ToolServices
from loom_dsl.tools.hooks import HookAnswer, HookCall
from loom_dsl.tools.risk import Risk
from loom_tools.isolation.frames import read_there
from loom_tools.isolation.processes import ChildProcesses, Died
from loom_tools.running import describe, text_of
from loom_tools.user_code import Code, Raised, by_position, keys_of
from tests.support.deadly_tools import DEATHS, PNG
from tests.support.waiting import PATIENCE, eventually, longer

MODULE = "tests.support.deadly_tools"


def code(name: str, part: str = "function") -> Code:
    return Code((f"{MODULE}:{name}",), part)


@pytest_asyncio.fixture
async def children() -> AsyncIterator[ChildProcesses]:
    others = set(psutil.Process().children())  # of tests before this one
    made = ChildProcesses()
    yield made
    await made.close()
    assert set(psutil.Process().children()) <= others


async def given(children: ChildProcesses, what: str, name: str = "give") -> Any:
    return await children.call(code(name), {"what": what}, PATIENCE, is_async=name == "give_later")


@pytest.mark.parametrize("name", ["give", "give_later"])
async def test_results_come_back_as_the_worker_reads_them(children: ChildProcesses, name: str) -> None:
    wanted = {"text": "a text", "nothing": "", "pair": '{"left":1,"right":"2026-05-04"}', "nan": "[Infinity]"}
    whats = [*wanted, "image", "large", "opaque"]
    found = dict(zip(whats, await asyncio.gather(*(given(children, what, name) for what in whats)), strict=True))
    assert {what: text_of(found[what]) for what in wanted} == wanted
    assert isinstance(found["image"], ToolOutput)
    assert (found["image"].images[0].data, found["image"].images[0].media_type) == (PNG, "image/png")
    assert len(found["large"]) == 3_000_000
    with pytest.raises(UnreadableResult, match="an object of the type Opaque"):
        text_of(found["opaque"])


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("os", "getpid"),
        ("loom_dsl.text.canonical", "digest"),
        ("loom_dsl.text.canonical", "json.dumps"),
        ("loom_tools.isolation.frames", "pickle.loads"),
        ("loom_tools.isolation.frames", "Path"),
    ],
)
def test_the_worker_reads_no_function_and_nothing_that_a_module_of_looms_only_imports(module: str, name: str) -> None:
    body = b"\x80\x05\x8c" + bytes([len(module)]) + module.encode() + b"\x8c" + bytes([len(name)]) + name.encode()
    with pytest.raises(pickle.UnpicklingError, match="of Loom's own"):
        read_there(body + b"\x93.")


async def raised(children: ChildProcesses, what: str) -> BaseException:
    with pytest.raises(Raised) as caught:
        await given(children, what)
    return caught.value.error


async def test_exceptions_come_back_with_what_is_read_of_them(children: ChildProcesses) -> None:
    whats = ["unsaid", "refused", "told", "odd", "unknown", "exit"]
    unsaid, refused, told, odd, unknown, ended = await asyncio.gather(*(raised(children, what) for what in whats))
    assert describe(unsaid) == "ValueError: the shelf is empty"
    assert isinstance(unsaid, Exception)
    assert (describe(refused), refused.code, refused.retryable) == ("Refused: not you", "refused", False)  # type: ignore[attr-defined]
    assert isinstance(told, ToolError)
    assert told.message == "ask for less"
    assert isinstance(odd, ToolError)
    assert (odd.message, odd.code) == ("in a way", "odd")
    assert isinstance(unknown, OutcomeUnknown)
    assert describe(ended) == "SystemExit: 3"
    assert not isinstance(ended, Exception)


def context_of(folder: Path, said: list[str], stop: threading.Event | None = None) -> ToolContext:
    def secret(name: str, host: str | None) -> str:
        if name != "SHELF":
            raise PermissionDenied(f"no {name}")
        return "4711"

    return ToolContext(
        working_dir=folder,
        job="job-1",
        turn=3,
        call_id="c1",
        idempotency_key="job-1/3/c1",
        progress=said.append,
        cancelled=(stop or threading.Event()).is_set,
        approved_states=frozenset({"now"}),
        leaves=lambda state: said.append(f"leaves {state}"),
        services=ToolServices(
            secret=secret,
            output=lambda reference: f"output of {reference}",
            todo=lambda: (TodoItem(text="first"),),
            runtime=lambda: {"tenant": "t1"},
        ),
    )


async def test_a_context_works_through_the_line(children: ChildProcesses, tmp_path: Path) -> None:
    said: list[str] = []
    found = await children.call(code("tell"), {"text": "x", "context": context_of(tmp_path, said)}, PATIENCE)
    process = found.pop("process")
    assert process != os.getpid()
    assert found == {
        "secret": "4711",
        "output": "output of abc",
        "todo": ["first"],
        "runtime": {"tenant": "t1"},
        "cancelled": False,
        "place": [str(tmp_path), "job-1", 3, "c1", "job-1/3/c1"],
        "thread": True,
    }
    assert said == ["working on x", "leaves later"]


async def test_what_is_cancelled_sees_it_and_is_gone(children: ChildProcesses, tmp_path: Path) -> None:
    said: list[str] = []
    stop = threading.Event()
    context = context_of(tmp_path, said, stop)
    calling = asyncio.create_task(children.call(code("wait_for_end"), {"text": "x", "context": context}, PATIENCE))
    await eventually(lambda: said == ["at work"])
    stop.set()
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    await children.close()
    assert (tmp_path / "seen").read_text() == "x"


async def test_what_hangs_is_ended_when_its_time_is_over(children: ChildProcesses, tmp_path: Path) -> None:
    context = context_of(tmp_path, [])
    for seconds in longer(0.5):  # on a slow machine it may be over before the function is called
        with pytest.raises(TimeoutError):
            await children.call(code("hang"), {"text": "x", "context": context}, seconds)
        if (tmp_path / DEATHS).exists():
            break
    process = int((tmp_path / DEATHS).read_text())
    await children.close()
    assert not psutil.pid_exists(process)


@pytest.mark.parametrize(
    ("name", "how", "last"),
    [("die", "exit status 7", "the library gives up on x"), ("crash", "SIGSEGV", "Segmentation fault")],
)
async def test_a_process_that_dies_says_how(
    children: ChildProcesses, tmp_path: Path, name: str, how: str, last: str
) -> None:
    with pytest.raises(Died, match=how) as caught:
        await children.call(code(name), {"text": "x", "context": context_of(tmp_path, [])}, PATIENCE)
    said, _, lines = str(caught.value).partition("; the last lines of its standard error:\n")
    assert how in said
    assert last in lines


async def test_the_other_parts_of_tools_and_functions_are_found(children: ChildProcesses, tmp_path: Path) -> None:
    asked = HookCall(point="after_validate", tool="look", arguments={"text": "x"}, working_dir=tmp_path)
    request = PermissionRequest(tool="look", arguments={"text": "x"}, risk=Risk.LOW, read_only=True, job="job-1")
    said: list[str] = []
    reconcile = Code((f"{MODULE}:write",), "reconcile", by_position)
    hook, permission, found, function = await asyncio.gather(
        children.call(code("answer", "").given(asked), {}, PATIENCE),
        children.call(code("allow", "").given(request), {}, PATIENCE),
        children.call(reconcile, {"arguments": {"text": "x"}, "context": context_of(tmp_path, said)}, PATIENCE),
        children.call(code("add", ""), {"left": 1, "right": 2, "context": context_of(tmp_path, said)}, PATIENCE),
    )
    assert hook == HookAnswer(arguments={"text": "x", "on": "2026-05-04"}, note="after_validate")
    assert permission == ("ask", "look of job-1")
    assert found == Reconciliation(outcome="happened", result={"left": 2, "right": "2026-05-05"})
    assert function["sum"] == 3
    assert sorted(said) == ["adding", "asked"]


async def test_keys_are_found_together(children: ChildProcesses, tmp_path: Path) -> None:
    keyed = Code((f"{MODULE}:keyed",), "tool", keys_of)
    with pytest.raises(Died):
        await children.call(keyed.given(['{"folder": "' + str(tmp_path) + '"}']), {}, PATIENCE)
    assert await children.call(keyed.given(["{}"]), {}, PATIENCE) == [(None, "")]


async def test_what_cannot_be_loaded_or_handed_over_is_told(children: ChildProcesses) -> None:
    with pytest.raises(ToolUnavailable, match="No module named"):
        await children.call(Code(("tests.support.not_there:f",)), {}, PATIENCE)
    with pytest.raises(Raised) as caught:
        await children.call(code("look"), {"text": threading.Lock()}, PATIENCE)
    assert isinstance(caught.value.error, LoomError)
    assert "cannot be handed over" in caught.value.error.message


async def test_a_process_shows_no_secret_and_ends_when_its_worker_says_so(
    children: ChildProcesses, tmp_path: Path
) -> None:
    said: list[str] = []
    stop = threading.Event()
    context = context_of(tmp_path, said, stop)
    keywords = {"text": "a-secret-4711", "context": context}
    others = set(psutil.Process().children())  # of tests before this one
    calling = asyncio.create_task(children.call(code("wait_for_end"), keywords, PATIENCE))
    await eventually(lambda: said == ["at work"])
    (process,) = set(psutil.Process().children()) - others
    assert not any("a-secret-4711" in text for text in [*process.cmdline(), *process.environ().values()])
    assert process.cwd() == os.getcwd()
    process.terminate()  # as who stops a whole service does
    stop.set()
    assert await calling == "cancelled"
