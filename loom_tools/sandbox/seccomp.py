"""The system calls that a confined command may not make, and the seccomp program that refuses them.

Everything else is let through: files are Landlock's part, other processes and the network that of the namespaces.
Where there are none of those, more is refused here.
"""

import functools
import struct
from dataclasses import dataclass
from errno import ENOSYS, EPERM

from loom_tools.sandbox.syscalls import MACHINE

# The numbers of the system calls that `seccomp` names, by architecture.


# fmt: off
NUMBERS = {
    "x86_64": {
        "acct": 163, "add_key": 248, "adjtimex": 159, "bpf": 321, "chmod": 90, "chown": 92, "chroot": 161,
        "clock_adjtime": 305, "clock_settime": 227, "clone": 56, "clone3": 435, "creat": 85, "delete_module": 176,
        "fanotify_init": 300, "fchmod": 91, "fchmodat": 268, "fchmodat2": 452, "fchownat": 260, "fcntl": 72,
        "file_setattr": 469, "finit_module": 313, "fsconfig": 431, "fsmount": 432, "fsopen": 430, "fspick": 433,
        "futimesat": 261, "init_module": 175, "io_uring_enter": 426, "io_uring_register": 427, "io_uring_setup": 425,
        "ioctl": 16, "ioperm": 173, "iopl": 172, "ioprio_set": 251, "kcmp": 312, "kexec_file_load": 320,
        "kexec_load": 246, "keyctl": 250, "kill": 62, "lchown": 94, "lookup_dcookie": 212, "lremovexattr": 198,
        "lsetxattr": 189, "migrate_pages": 256, "mknod": 133, "mknodat": 259, "modify_ldt": 154, "mount": 165,
        "mount_setattr": 442, "move_mount": 429, "move_pages": 279, "mq_open": 240, "mq_unlink": 241, "msgctl": 71,
        "msgget": 68, "msgrcv": 70, "msgsnd": 69, "name_to_handle_at": 303, "nfsservctl": 180, "open": 2,
        "open_by_handle_at": 304, "open_tree": 428, "openat": 257, "openat2": 437, "perf_event_open": 298,
        "pidfd_getfd": 438, "pidfd_send_signal": 424, "pivot_root": 155, "prlimit64": 302, "process_madvise": 440,
        "process_vm_readv": 310, "process_vm_writev": 311, "ptrace": 101, "quotactl": 179, "quotactl_fd": 443,
        "reboot": 169, "removexattr": 197, "removexattrat": 466, "request_key": 249, "rt_sigqueueinfo": 129,
        "rt_tgsigqueueinfo": 297, "sched_setaffinity": 203, "sched_setattr": 314, "sched_setparam": 142,
        "sched_setscheduler": 144, "semctl": 66, "semget": 64, "semop": 65, "semtimedop": 220, "setdomainname": 171,
        "sethostname": 170, "setns": 308, "setpgid": 109, "setpriority": 141, "setsid": 112, "settimeofday": 164,
        "setxattr": 188, "setxattrat": 463, "shmat": 30, "shmctl": 31, "shmget": 29, "socket": 41, "socketpair": 53,
        "swapoff": 168, "swapon": 167, "syslog": 103, "tgkill": 234, "tkill": 200, "truncate": 76, "umount2": 166,
        "unshare": 272, "userfaultfd": 323, "utime": 132, "utimensat": 280, "utimes": 235, "vhangup": 153,
    },
    "aarch64": {
        "acct": 89, "add_key": 217, "adjtimex": 171, "bpf": 280, "chroot": 51, "clock_adjtime": 266,
        "clock_settime": 112, "clone": 220, "clone3": 435, "delete_module": 106, "fanotify_init": 262, "fchmod": 52,
        "fchmodat": 53, "fchmodat2": 452, "fchownat": 54, "fcntl": 25, "file_setattr": 469, "finit_module": 273,
        "fsconfig": 431, "fsmount": 432, "fsopen": 430, "fspick": 433, "init_module": 105, "io_uring_enter": 426,
        "io_uring_register": 427, "io_uring_setup": 425, "ioctl": 29, "ioprio_set": 30, "kcmp": 272,
        "kexec_file_load": 294, "kexec_load": 104, "keyctl": 219, "kill": 129, "lookup_dcookie": 18,
        "lremovexattr": 15, "lsetxattr": 6, "migrate_pages": 238, "mknodat": 33, "mount": 40, "mount_setattr": 442,
        "move_mount": 429, "move_pages": 239, "mq_open": 180, "mq_unlink": 181, "msgctl": 187, "msgget": 186,
        "msgrcv": 188, "msgsnd": 189, "name_to_handle_at": 264, "nfsservctl": 42, "open_by_handle_at": 265,
        "open_tree": 428, "openat": 56, "openat2": 437, "perf_event_open": 241, "pidfd_getfd": 438,
        "pidfd_send_signal": 424, "pivot_root": 41, "prlimit64": 261, "process_madvise": 440, "process_vm_readv": 270,
        "process_vm_writev": 271, "ptrace": 117, "quotactl": 60, "quotactl_fd": 443, "reboot": 142, "removexattr": 14,
        "removexattrat": 466, "request_key": 218, "rt_sigqueueinfo": 138, "rt_tgsigqueueinfo": 240,
        "sched_setaffinity": 122, "sched_setattr": 274, "sched_setparam": 118, "sched_setscheduler": 119,
        "semctl": 191, "semget": 190, "semop": 193, "semtimedop": 192, "setdomainname": 162, "sethostname": 161,
        "setns": 268, "setpgid": 154, "setpriority": 140, "setsid": 157, "settimeofday": 170, "setxattr": 5,
        "setxattrat": 463, "shmat": 196, "shmctl": 195, "shmget": 194, "socket": 198, "socketpair": 199,
        "swapoff": 225, "swapon": 224, "syslog": 116, "tgkill": 131, "tkill": 130, "truncate": 45, "umount2": 39,
        "unshare": 97, "userfaultfd": 282, "utimensat": 88, "vhangup": 58,
    },
}



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
    numbers = NUMBERS[MACHINE]
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
