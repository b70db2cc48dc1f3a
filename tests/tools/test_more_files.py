"""Deleting, finding and looking at files; keys that are not read; edits that somebody else's change comes between."""

import os
import struct
import threading
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from loom_dsl.errors import LoomError, PermissionDenied, ToolError
from loom_dsl.tools.context import MAX_IMAGE, Image, ToolContext, ToolOutput, ToolServices, image_type
from loom_dsl.tools.tool import validate_arguments
from loom_tools.builtin.write import edit_file
from loom_tools.registry import ToolRegistry
from loom_tools.workspace.replace import FileChanged
from loom_tools.workspace.workspace import Workspace

Call = Callable[..., Any]


@pytest.fixture
def call(tmp_path: Path) -> Call:
    registry = ToolRegistry.load()
    context = ToolContext(working_dir=tmp_path, services=ToolServices(images=True))

    def make(name: str, **arguments: Any) -> Any:
        made = registry.resolve(name)
        return made(**made.bind(validate_arguments(made, arguments), context))

    return make


def png() -> bytes:
    """One white pixel."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"\0\xff")) + chunk(b"IEND", b"")
    )


# -- delete_file -------------------------------------------------------------------------------------


def test_a_file_and_an_empty_directory_are_deleted_and_a_full_one_is_not(call: Call, tmp_path: Path) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/b/x.txt").write_text("x")
    with pytest.raises(ToolError, match="not empty"):
        call("delete_file", path="a/b")
    assert call("delete_file", path="a/b/x.txt") == "Deleted a/b/x.txt"
    assert call("delete_file", path="a/b") == "Deleted the empty directory a/b"
    assert sorted(os.listdir(tmp_path / "a")) == []
    with pytest.raises(ToolError, match="there is no such file"):
        call("delete_file", path="a/b/x.txt")


@pytest.mark.parametrize(
    "path",
    [
        *(
            "../victim",
            "/etc/hostname",
            "out/victim",
            "link",
            "linked/x",
            ".",
            "",
            "a\0b",
            ".git/HEAD",
            ".env",
            "id_rsa",
        ),
        *("server.pem", "sub/../../victim", "~/.ssh/id_rsa", ".ssh/config", ".npmrc", "locked"),
    ],
)
def test_what_lies_elsewhere_or_is_protected_is_not_deleted(call: Call, tmp_path: Path, path: str) -> None:
    place = tmp_path / "work"
    outside = tmp_path / "victim"
    outside.write_text("precious")
    for name in (".git/HEAD", ".env", "id_rsa", "server.pem", ".ssh/config", ".npmrc", "locked", "real/x"):
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text("precious")
    (place / "locked").chmod(0o444)
    (place / "out").symlink_to(tmp_path)
    (place / "link").symlink_to("real/x")
    (place / "linked").symlink_to("real")
    before = sorted(map(str, tmp_path.rglob("*")))
    made = ToolRegistry.load().resolve("delete_file")
    with pytest.raises(LoomError):
        made(path=path, context=ToolContext(working_dir=place))
    assert sorted(map(str, tmp_path.rglob("*"))) == before


def test_what_became_of_a_delete_is_seen_in_the_directory(tmp_path: Path) -> None:
    made = ToolRegistry.load().resolve("delete_file")
    context = ToolContext(working_dir=tmp_path)
    assert made.reconcile is not None
    assert made.reconcile({"path": "x"}, context).outcome == "happened"
    (tmp_path / "x").write_text("text")
    assert made.reconcile({"path": "x"}, context).outcome == "not_happened"
    assert made.preview is not None
    assert made.preview({"path": "x"}, context) == "delete x (4 bytes), which begins with\ntext"


# -- file_search -------------------------------------------------------------------------------------


def test_files_are_found_by_a_glob_or_a_part_of_their_name(call: Call, tmp_path: Path) -> None:
    for name in ("invoice-1.pdf", "a/invoice-2.pdf", "a/b/INVOICE.txt", ".git/invoice", "a/other[1].md"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    found = call("file_search", pattern="invoice")
    assert found == {"files": ["invoice-1.pdf", "a/invoice-2.pdf"], "count": 2, "pattern": "invoice"}
    assert call("file_search", pattern="*.pdf", max_results=1) == {
        "files": ["invoice-1.pdf"],
        "count": 2,
        "pattern": "*.pdf",
    }
    assert call("file_search", pattern="*", directory="a/b")["files"] == ["a/b/INVOICE.txt"]
    assert call("file_search", pattern="a/**/*.txt")["files"] == ["a/b/INVOICE.txt"]
    assert call("file_search", pattern="nothing")["count"] == 0
    for arguments in ({"max_results": 0}, {"max_results": 1001}, {"directory": "../"}):
        with pytest.raises(LoomError):
            call("file_search", pattern="x", **arguments)


# -- what is not read --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "readable"),
    [
        (".env", False),
        ("app/.env.production", False),
        (".ENV", False),
        (".env.example", True),
        ("id_rsa", False),
        ("keys/ID_ED25519", False),
        ("id_ed25519.pub", True),
        ("tls/server.key", False),
        ("tls/server.PEM", False),
        ("store.p12", False),
        (".ssh/config", False),
        (".netrc", False),
        (".aws/credentials", False),
        ("credentials", True),
        (".kube/config", False),
        (".docker/config.json", False),
        ("config.json", True),
        (".git-credentials", False),
        ("deploy/prod.env", False),
        ("example.env", True),
        ("app.jks", False),
        ("host.ppk", False),
        ("AuthKey_1.p8", False),
        ("credentials.json", False),
        ("terraform.tfstate", False),
        ("infra/terraform.tfstate.backup", False),
        ("main.tf", True),
        (".aws/config", False),
        (".s3cfg", False),
        ("environment.py", True),
        ("keyboard.md", True),
    ],
)
def test_keys_and_settings_are_not_read_whatever_leads_to_them(
    call: Call, tmp_path: Path, name: str, readable: bool
) -> None:
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_text("needle=1\n")
    (tmp_path / "harmless.txt").symlink_to(name)
    for path in (name, "harmless.txt"):
        if readable:
            assert "needle" in call("read_file", path=path)
        else:
            with pytest.raises(PermissionDenied, match="keys or secrets"):
                call("read_file", path=path)
    assert ("needle=1" in call("grep", pattern="needle")) is readable


# -- images ------------------------------------------------------------------------------------------


def test_an_image_is_given_to_look_at_where_the_model_can(call: Call, tmp_path: Path) -> None:
    (tmp_path / "dot.png").write_bytes(png())
    found = call("read_file", path="dot.png")
    assert isinstance(found, ToolOutput)
    assert found.text.startswith("dot.png: an image, image/png, ")
    assert [(image.media_type, image.data) for image in found.images] == [("image/png", png())]
    blind = ToolRegistry.load().resolve("read_file")
    with pytest.raises(ToolError, match="not known to take images"):
        blind(path="dot.png", context=ToolContext(working_dir=tmp_path))
    (tmp_path / "large.png").write_bytes(png() + bytes(MAX_IMAGE))
    with pytest.raises(ToolError, match="at most"):
        call("read_file", path="large.png")


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (png(), "image/png"),
        (b"\xff\xd8\xff\xe0", "image/jpeg"),
        (b"GIF89a...", "image/gif"),
        (b"RIFF\0\0\0\0WEBPVP8 ", "image/webp"),
        (b"RIFF\0\0\0\0WAVE", ""),
        (b"<svg>", ""),
        (b"", ""),
    ],
)
def test_an_image_is_known_by_its_bytes_not_by_its_name(data: bytes, kind: str) -> None:
    assert image_type(data) == kind
    if kind:
        assert Image(data=data).media_type == kind
    else:
        with pytest.raises(ValueError, match="no PNG"):
            Image(data=data)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"text": 5}, "takes text, and got a int"),
        ({"text": "x", "images": (b"GIF89a",)}, "takes Images, and got a bytes"),
    ],
)
def test_what_is_no_output_is_told_where_it_is_made(given: Any, told: str) -> None:
    with pytest.raises(TypeError, match=told):
        ToolOutput(**given)


# -- edits and somebody else ---------------------------------------------------------------------------


def write(folder: Path, expected: os.stat_result, meanwhile: Callable[[], object] = lambda: None) -> None:
    """Write the file x, while somebody does something in between."""
    with Workspace(folder) as space, space.open_write("x", expected) as out:
        out.write(b"mine")
        meanwhile()


def test_a_file_is_replaced_only_while_it_is_what_was_read(tmp_path: Path) -> None:
    file, other = tmp_path / "x", tmp_path / "other"
    file.write_text("read")
    as_read = file.stat()
    write(tmp_path, as_read)
    assert file.read_text() == "mine"
    with pytest.raises(FileChanged):
        write(tmp_path, as_read)
    other.write_text("their")
    with pytest.raises(FileChanged):
        write(tmp_path, file.stat(), lambda: os.replace(other, file))
    assert file.read_text() == "their"
    with pytest.raises(FileChanged):
        write(tmp_path, file.stat(), lambda: file.write_text("there"))
    assert file.read_text() == "there"
    with pytest.raises(FileChanged):
        write(tmp_path, file.stat(), file.unlink)
    assert os.listdir(tmp_path) == []


def test_no_edit_is_lost_when_many_edit_one_file(tmp_path: Path) -> None:
    count = 6
    (tmp_path / "x").write_text("".join(f"line {n}: old\n" for n in range(count)))
    told: list[str] = []

    def edit(number: int) -> None:
        for _ in range(50):
            try:
                edit_file(
                    path="x",
                    old=f"line {number}: old",
                    new=f"line {number}: new",
                    context=ToolContext(working_dir=tmp_path),
                )
                return
            except ToolError as error:
                told.append(error.message)

    threads = [threading.Thread(target=edit, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (tmp_path / "x").read_text() == "".join(f"line {n}: new\n" for n in range(count))
    assert all("changed by somebody else" in message for message in told)
    assert os.listdir(tmp_path) == ["x"]


@pytest.mark.parametrize(
    ("old", "told"),
    [
        ("helo", "2: say hullo to the world"),
        ("the wurld", "2: say hullo to the world"),
        ("def main(arg):", "4: def main(args: list[str]) -> int:"),
        ("return 7  # tries", "5:     return tries + 7"),
    ],
)
def test_what_was_meant_is_found_inside_a_longer_line(call: Call, tmp_path: Path, old: str, told: str) -> None:
    text = "first\nsay hullo to the world\n\ndef main(args: list[str]) -> int:\n    return tries + 7\n"
    (tmp_path / "x.py").write_text(text)
    with pytest.raises(ToolError, match=r"is not in 'x\.py'") as refused:
        call("edit_file", path="x.py", old=old, new="new")
    assert told in refused.value.message
    (tmp_path / "x.py").write_text("nothing of the kind\n")
    with pytest.raises(ToolError, match="No line is like it"):
        call("edit_file", path="x.py", old="qqqqqq", new="new")
