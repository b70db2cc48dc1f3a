"""What the launcher is asked to run, and how it is written between the processes."""

import json
import os
from dataclasses import asdict, dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceLimits:
    """How much one command may use.

    Attributes:
        cpu: Seconds of processor time of one process.
        memory: Bytes that all its processes hold together, and that one of them may have as data.
        processes: Processes and threads at once.
        file: Bytes of the largest file.
        disk: Bytes by which the room on the disk may shrink while it runs.
        open_files: Open files of one process.
    """

    cpu: int = 600
    memory: int = 4 << 30
    processes: int = 512
    file: int = 2 << 30
    disk: int = 8 << 30
    open_files: int = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxOrder:
    """A command to run.

    Attributes:
        argv: The program's absolute path, and its arguments.
        env: Its whole environment; the temporary directory is added.
        cwd: Where it runs, and may write.
        scratch: Where the temporary directory is made.
        read: Paths that it may read.
        hidden: Files in the working directory that it may neither read nor write.
        kept: Paths there that it may only read.
        held: Directories there that it may not move.
        absent: Files there that are removed when it ends.
        limits: How much it may use.
        landlock: Version of Landlock that restricts files; 0: none does.
        filtered: Restrict system calls.
        namespaces: Give it processes, mounts and a network of its own.
        network: It may use the network.
    """

    argv: list[str]
    env: dict[str, str]
    cwd: str
    scratch: str
    read: list[str]
    hidden: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    held: list[str] = field(default_factory=list)
    absent: list[str] = field(default_factory=list)
    limits: ResourceLimits = field(default_factory=ResourceLimits)
    landlock: int = 0
    filtered: bool = True
    namespaces: bool = True
    network: bool = False

    def closed(self) -> list[str]:
        """List the directories in which it makes and removes nothing: those that hold what is protected.

        Landlock gives rights, and takes none back below: what is around a protected place gets its own.
        """
        found: set[str] = set()
        for path in () if self.namespaces or not self.landlock else (*self.hidden, *self.kept, *self.absent):
            while path != self.cwd:
                path = os.path.dirname(path)
                found.add(path)
        return sorted(filter(os.path.isdir, found))

    def dump(self) -> bytes:
        """Write it as JSON."""
        return json.dumps(asdict(self)).encode("utf-8", "surrogateescape")

    @classmethod
    def load(cls, text: bytes) -> "SandboxOrder":
        """Read it."""
        given = json.loads(text.decode("utf-8", "surrogateescape"))
        return cls(**{**given, "limits": ResourceLimits(**given["limits"])})


@dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """What this machine offers to confine a command.

    Attributes:
        landlock: Version of Landlock; 0: there is none.
        filters: It has seccomp filters, and Loom knows the numbers of this architecture's system calls.
        namespaces: This user may make namespaces.
        proc: A command may be shown its own processes.
    """

    landlock: int = 0
    filters: bool = False
    namespaces: bool = False
    proc: bool = False
