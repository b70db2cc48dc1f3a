"""The working directory of a job, and file operations that cannot leave it.

Every operation works on descriptors that were opened below the root: there is no check of a name that is followed by a
use of that name. Reading follows symbolic links that stay inside; writing follows none, so that the path that a rule
was held against is the file that changes.
"""

import contextlib
import errno
import os
import stat
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, Literal, NoReturn

from loom_dsl.errors import ConfigurationError, PermissionDenied, ToolError
from loom_dsl.permissions.paths import normal_path
from loom_tools.workspace.listing import DirectoryEntry, list_directory
from loom_tools.workspace.openat import native_support, open_beneath, open_directory
from loom_tools.workspace.protected import (
    is_directory,
    refuse_protected,
    refuse_secret,
    refuse_system,
    tell,
    told,
    writable_mode,
)
from loom_tools.workspace.replace import Expected, replacing

MAX_PATH = 4_095
"""Bytes of a path: no longer one can be opened by its name. Deeper places are passed over in walks."""


class Workspace:
    """A working directory, open until it is closed.

    Args:
        root: An existing directory.
        native: Use `openat2` where there is one.

    Raises:
        ConfigurationError: There is no such directory.
    """

    def __init__(self, root: Path, *, native: bool = True) -> None:
        self.root = Path(os.path.realpath(root))
        self._given = os.path.abspath(root)
        self._native = native and native_support()
        try:
            self._fd = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise ConfigurationError(
                f"the working directory {str(root)!r} cannot be opened: {error.strerror}"
            ) from error
        self._close = weakref.finalize(self, os.close, self._fd)

    def close(self) -> None:
        """Let go of the directory."""
        self._close()

    def __enter__(self) -> "Workspace":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def relative(self, path: str) -> str:
        """Write a path relative to the root, in normal form.

        Raises:
            PermissionDenied: It leads out of the working directory, or to a place that is always refused.
            ToolError: It is empty or not a path.
        """
        if not path or "\0" in path:
            raise ToolError(f"{path!r} is not a path; give one such as src/main.py")
        found = normal_path(path, str(self.root)) or normal_path(path, self._given)
        if found is None:
            where = f"outside the working directory {str(self.root)!r}"
            raise PermissionDenied(f"{path!r} is {where}; give a path inside it, such as src/main.py")
        absolute = str(self.root / found)
        if len(absolute.encode("utf-8", "surrogatepass")) > MAX_PATH:
            shown = f"{path[:60]}…"
            raise ToolError(f"{shown!r}: the name is too long; with the working directory it may have {MAX_PATH} bytes")
        refuse_system(path, absolute)
        return found

    def open_read(self, path: str) -> BinaryIO:
        """Open a regular file for reading.

        Raises:
            PermissionDenied: The path leads out of the working directory, or to a file of keys or settings.
            ToolError: There is no such file, or it is not a regular one.
        """
        # O_NONBLOCK: opening a named pipe must not wait for somebody to write into it.
        refuse_secret(path, self.relative(path))
        fd = self._open(path, os.O_RDONLY | os.O_NONBLOCK)
        try:
            if self._native:  # a link with a harmless name may lead to one that is not
                refuse_secret(path, _place_of(path, fd))
            mode = os.fstat(fd).st_mode
            if stat.S_ISDIR(mode):
                raise ToolError(f"{path!r} is a directory; use glob to see what is in it")
            if not stat.S_ISREG(mode):
                raise ToolError(f"{path!r} is not a regular file")
            return os.fdopen(fd, "rb")
        except BaseException:
            os.close(fd)
            raise

    @contextlib.contextmanager
    def open_write(self, path: str, expected: Expected | None = None) -> Iterator[BinaryIO]:
        """Write a whole file: it takes the place of the old one when the block ends, and not when the block fails.

        Directories that are missing are made. The mode of an existing file is kept. With `expected`, only the file
        that was read is replaced, as its descriptor described it, or with `ABSENT` none.

        Raises:
            FileChanged: The file is not the expected one any more.
            PermissionDenied: The path leads out of the working directory or through a symbolic link, or is protected.
            ToolError: The file system does not let us.
        """
        relative = self.relative(path)
        refuse_protected(path, relative)
        parent, _, name = relative.rpartition("/")
        if name == ".":
            raise ToolError(f"{path!r} is a directory")
        with told(path):
            directory = self._make_directories(path, parent)
        try:
            mode = writable_mode(path, name, directory)
            with told(path), replacing(name, directory, mode, expected) as file:
                yield file
        finally:
            os.close(directory)

    def delete(self, path: str) -> Literal["file", "directory"]:
        """Delete a file, or a directory that is empty. A symbolic link is neither followed nor deleted.

        Raises:
            PermissionDenied: The path leads out of the working directory or through a symbolic link, or is protected.
            ToolError: There is nothing, or a directory that holds something.
        """
        relative = self.relative(path)
        refuse_protected(path, relative)
        parent, _, name = relative.rpartition("/")
        if name == ".":
            raise PermissionDenied(f"{path!r} is the working directory itself")
        with told(path):
            directory = open_beneath(
                self._fd, parent or ".", os.O_RDONLY | os.O_DIRECTORY, follow=False, native=self._native
            )
        try:
            if is_directory(path, name, directory):
                with told(path):
                    os.rmdir(name, dir_fd=directory)
                return "directory"
            writable_mode(path, name, directory)
            with told(path):
                os.unlink(name, dir_fd=directory)
            return "file"
        finally:
            os.close(directory)

    def stat(self, path: str) -> os.stat_result:
        """Tell size, kind and times of what a path leads to. Raises like `open_read`."""
        fd = self._open(path, _LOOK if self._native else os.O_RDONLY | os.O_NONBLOCK)
        try:
            return os.fstat(fd)
        finally:
            os.close(fd)

    def exists(self, path: str) -> bool:
        """Say whether there is something.

        Raises:
            PermissionDenied: The path leads out of the working directory.
        """
        try:
            self.stat(path)
        except ToolError:
            return False
        return True

    def real_path(self, path: str) -> str:
        """Follow the symbolic links of a path, which need not exist, to the relative path of what it means.

        Raises:
            PermissionDenied: It leads out of the working directory.
        """
        relative = self.relative(path)
        parts = [] if relative == "." else relative.split("/")
        if not self._native:
            return relative
        for length in range(len(parts), -1, -1):
            try:
                fd = open_beneath(self._fd, "/".join(parts[:length]) or ".", _LOOK)
            except FileNotFoundError:
                if length and (meant := self._missing_target(parts[:length])):
                    return self.real_path("/".join([meant, *parts[length:]]))
                continue
            except (OSError, UnicodeEncodeError) as error:
                tell(path, error)
            try:
                place = _place_of(path, fd)
            finally:
                os.close(fd)
            refuse_system(path, place)
            found = normal_path("/".join([place, *parts[length:]]), str(self.root))
            return relative if found is None else found
        return relative

    def _missing_target(self, parts: list[str]) -> str:
        """Give what a link means that leads to something that is not there yet; empty: it is no such link."""
        try:
            above = open_beneath(self._fd, "/".join(parts[:-1]) or ".", _LOOK)
        except (OSError, UnicodeEncodeError):
            return ""
        try:
            target = os.readlink(parts[-1], dir_fd=above)
            return os.path.normpath(os.path.join(os.readlink(f"/proc/self/fd/{above}"), target))
        except OSError:
            return ""
        finally:
            os.close(above)

    def walk(self, directory: str = ".", enter: Callable[[str], bool] = lambda _: True) -> Iterator[DirectoryEntry]:
        """List what is below a directory, sorted by name within each directory. Symbolic links are not followed.

        Args:
            directory: Where to start.
            enter: Asked with the relative path of each directory before it is entered.

        Raises:
            PermissionDenied: The directory is outside the working directory.
            ToolError: There is no such directory.
        """
        start = self.relative(directory)
        waiting = [start]
        while waiting:
            current = waiting.pop()
            try:
                fd = self._open(current, os.O_RDONLY | os.O_DIRECTORY, follow=current == start)
            except (ToolError, PermissionDenied):
                if current == start:
                    raise
                continue  # gone, or unreadable, since it was listed
            try:
                with told(current):
                    directories, found = list_directory(fd, "" if current == "." else f"{current}/")
            except ToolError:
                if current == start:
                    raise
                continue
            finally:
                os.close(fd)
            yield from found
            waiting.extend(name for name in reversed(directories) if enter(name))

    def open_directory(self, path: str) -> int:
        """Open a directory, and give its descriptor, which the caller closes. Raises like `open_read`."""
        return self._open(path, os.O_RDONLY | os.O_DIRECTORY)

    def _open(self, path: str, flags: int, *, follow: bool = True) -> int:
        relative = self.relative(path)
        with told(path):
            fd = open_beneath(self._fd, relative, flags, follow=follow, native=self._native)
        try:
            if self._native:
                refuse_system(path, _place_of(path, fd))
        except BaseException:
            os.close(fd)
            raise
        return fd

    def _make_directories(self, path: str, parent: str) -> int:
        """Open the parent directory part by part, making what is missing, without following any link."""
        current = os.dup(self._fd)
        try:
            for part in filter(None, parent.split("/")):
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, dir_fd=current)
                try:
                    following = open_directory(current, part)
                except OSError as error:
                    if error.errno == errno.ELOOP:
                        self._refuse_link(path)
                    raise
                os.close(current)
                current = following
        except BaseException:
            os.close(current)
            raise
        return current

    def _refuse_link(self, path: str) -> NoReturn:
        where = self.real_path(path)
        hint = f"; it leads to {where!r}, write there" if where != self.relative(path) else ""
        raise PermissionDenied(f"{path!r} goes through a symbolic link, which is not written through{hint}")


def _place_of(path: str, fd: int) -> str:
    """Where something is that was opened.

    Args:
        path: As the model wrote it, for messages.
        fd: Its descriptor.

    Raises:
        ToolError: It has no path that the system can give: it lies too deep, or was removed with all above it.
    """
    with told(path):
        return os.readlink(f"/proc/self/fd/{fd}")


_LOOK = getattr(os, "O_PATH", os.O_RDONLY)
