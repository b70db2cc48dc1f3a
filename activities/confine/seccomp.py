"""The system calls that a confined command may not make, and the seccomp program that refuses them.

Everything else is let through: files are Landlock's part, other processes and the network that of the namespaces.
Where there are none of those, more is refused here.
"""

import functools
import struct
from dataclasses import dataclass
from errno import ENOSYS, EPERM

from activities.confine import syscall_numbers
from activities.confine.kernel import MACHINE

_ARCHITECTURE = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_OTHER_ABI = 0x40000000  # x32, which numbers the same calls otherwise
_LOAD, _EQUAL, _AT_LEAST, _MASK, _RETURN = 0x20, 0x15, 0x35, 0x54, 0x06
_ALLOW, _ERROR, _KILL = 0x7FFF0000, 0x00050000, 0x80000000

_NEW_NAMESPACES = 0x7E020000
_SET_ID_BITS = 0o6000
_CREATE, _ACCESS_MODE, _TRUNCATE, _UNNAMED = 0o100, 0o3, 0o1000, 0o20000000
_AF_INET, _AF_INET6, _AF_NETLINK = 2, 10, 16
_STREAM, _SEQUENCED = 1, 5
_PUSH_INPUT, _CONSOLE = 0x5412, 0x541C


@dataclass(frozen=True, slots=True)
class Where:
    """A condition on one half of an argument of a call.

    Attributes:
        argument: Its place, from 0.
        mask: The bits that are looked at.
        equals: What they must be.
        negated: What they must not be.
        high: Look at the upper 32 bits.
    """

    argument: int
    mask: int = 0xFFFFFFFF
    equals: int = 0
    negated: bool = False
    high: bool = False


@dataclass(frozen=True, slots=True)
class Refused:
    """A call that fails with an error, when all conditions hold."""

    call: str
    where: tuple[Where, ...] = ()
    error: int = EPERM


def rules(*, namespaces: bool, network: bool, truncation: bool, signals: bool) -> list[Refused]:
    """List what is refused.

    Args:
        namespaces: The command has namespaces of its own for processes, mounts and the network.
        network: It may use the network.
        truncation: Landlock sees to truncation.
        signals: Landlock or a namespace keeps its signals to itself.
    """
    found = [Refused(name) for name in _NEVER] + [Refused(name, error=ENOSYS) for name in ("clone3", "openat2")]
    found += [Refused("clone", (Where(0, _NEW_NAMESPACES, 0, negated=True),))]
    found += [Refused("ioctl", (Where(1, equals=request),)) for request in (_PUSH_INPUT, _CONSOLE)]
    found += _no_set_id()
    found += _sockets(internet=network or namespaces)
    if not namespaces:
        found += [*_KEEP_TOGETHER, *_NO_ATTRIBUTES]
    if not truncation and not namespaces:
        found += _no_truncation()
    if not signals:
        found += _NO_SIGNALS
    return found


@functools.cache
def program(*, namespaces: bool, network: bool, truncation: bool, signals: bool) -> bytes:
    """Write the program for this machine; the arguments are those of `rules`.

    Raises:
        KeyError: The machine's architecture is not known.
    """
    numbers = syscall_numbers.NUMBERS[MACHINE]
    code = [_step(_LOAD, 4), _step(_EQUAL, _ARCHITECTURE[MACHINE], 1, 0), _step(_RETURN, _KILL)]
    code += [_step(_LOAD, 0), _step(_AT_LEAST, _OTHER_ABI, 0, 1), _step(_RETURN, _KILL)]
    for rule in rules(namespaces=namespaces, network=network, truncation=truncation, signals=signals):
        if rule.call in numbers:  # else this machine has no such call
            code += _rule(numbers[rule.call], rule)
    return b"".join([*code, _step(_RETURN, _ALLOW)])


def _rule(number: int, rule: Refused) -> list[bytes]:
    """Instructions for one rule; the number of the call is loaded before and after."""
    reload = [_step(_LOAD, 0)] if rule.where else []
    # From the last to the first, because each jumps over what follows it.
    body = [_step(_RETURN, _ERROR | rule.error), *reload]
    for where in reversed(rule.where):
        beyond = len(body) - len(reload)
        jumps = (beyond, 0) if where.negated else (0, beyond)
        place = 16 + 8 * where.argument + (4 if where.high else 0)
        body = [_step(_LOAD, place), _step(_MASK, where.mask), _step(_EQUAL, where.equals, *jumps), *body]
    return [_step(_EQUAL, number, 0, len(body)), *body]


def _step(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)


def _no_set_id() -> list[Refused]:
    """A file of user 0 that runs as user 0 for everybody would be a way out for others than the command."""
    bits = {"chmod": 1, "fchmod": 1, "fchmodat": 2, "fchmodat2": 2, "mknod": 1, "mknodat": 2, "creat": 1}
    found = [Refused(name, (Where(place, bit, bit),)) for name, place in bits.items() for bit in (0o4000, 0o2000)]
    for name, flags, mode in (("open", 1, 2), ("openat", 2, 3)):
        for making in (_CREATE, _UNNAMED):  # a file without a name can be given one later
            made = (Where(flags, making, making), Where(mode, _SET_ID_BITS, 0, negated=True))
            found.append(Refused(name, made))
    return found


def _sockets(*, internet: bool) -> list[Refused]:
    """Unix sockets lead to services of this machine that do what they are told, whatever the files' rights are.

    Pairs of datagram sockets are refused too, because they can be connected anew.
    """
    families = (_AF_INET, _AF_INET6, _AF_NETLINK) if internet else ()
    pairs = (_STREAM, _SEQUENCED)
    return [
        Refused("socket", tuple(Where(0, equals=family, negated=True) for family in families)),
        Refused("socketpair", tuple(Where(1, 0xF, kind, negated=True) for kind in pairs)),
    ]


def _no_truncation() -> list[Refused]:
    found = [Refused("truncate")]
    for name, flags in (("open", 1), ("openat", 2)):
        reading = Where(flags, _ACCESS_MODE, 0)
        found.append(Refused(name, (Where(flags, _TRUNCATE, _TRUNCATE), reading)))
    return found


def _pointer(argument: int) -> list[tuple[Where, ...]]:
    """The conditions of which one holds when a pointer is given."""
    return [(Where(argument, negated=True),), (Where(argument, negated=True, high=True),)]


_NEVER = (
    *("io_uring_setup", "io_uring_enter", "io_uring_register"),
    *("ptrace", "process_vm_readv", "process_vm_writev", "process_madvise", "kcmp", "pidfd_getfd"),
    *("mount", "umount2", "pivot_root", "chroot", "move_mount", "open_tree", "fsopen", "fsconfig", "fsmount"),
    *("fspick", "mount_setattr", "setns", "unshare", "swapon", "swapoff", "quotactl", "quotactl_fd", "acct"),
    *("bpf", "perf_event_open", "userfaultfd", "add_key", "request_key", "keyctl", "lookup_dcookie"),
    *("kexec_load", "kexec_file_load", "init_module", "finit_module", "delete_module", "reboot", "syslog"),
    *("settimeofday", "clock_settime", "adjtimex", "clock_adjtime", "iopl", "ioperm", "modify_ldt", "vhangup"),
    *("open_by_handle_at", "name_to_handle_at", "fanotify_init", "sethostname", "setdomainname", "nfsservctl"),
)
_KEEP_TOGETHER = (
    Refused("setsid"),
    Refused("setpgid"),
    *(
        Refused(name, (Where(0, negated=True),))
        for name in ("prlimit64", "sched_setscheduler", "sched_setparam", "sched_setaffinity", "sched_setattr")
    ),
    *(Refused(name, (Where(place, negated=True),)) for name in ("setpriority",) for place in (0, 1)),
    Refused("ioprio_set", (Where(1, negated=True),)),
    *(Refused(name, (Where(0, negated=True),)) for name in ("migrate_pages", "move_pages")),
    *(Refused(name) for name in ("shmget", "shmat", "shmctl", "semget", "semop", "semtimedop", "semctl")),
    *(Refused(name) for name in ("msgget", "msgsnd", "msgrcv", "msgctl", "mq_open", "mq_unlink")),
)
"""Without a namespace of its own, the command stays in one process group and leaves other processes alone."""
_NO_ATTRIBUTES = (
    *(Refused(name) for name in ("chmod", "fchmodat", "fchmodat2", "chown", "lchown", "fchownat")),
    *(Refused(name) for name in ("utime", "utimes", "futimesat", "setxattr", "lsetxattr", "setxattrat")),
    *(Refused(name) for name in ("removexattr", "lremovexattr", "removexattrat", "file_setattr")),
    *(Refused("utimensat", where) for where in _pointer(1)),
)
"""Landlock does not see to attributes of files, which read-only mounts do."""
_NO_SIGNALS = (
    Refused("kill", (Where(0, negated=True),)),
    *(Refused(name) for name in ("tkill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo", "pidfd_send_signal")),
    # Input and output may send signals too, to whom a file's owner is set to.
    *(Refused("fcntl", (Where(1, equals=command),)) for command in (8, 10, 15)),
    *(Refused("ioctl", (Where(1, equals=request),)) for request in (0x8901, 0x8902)),
)
"""A signal to a process by its number may hit anyone; to the own group it may be sent."""
