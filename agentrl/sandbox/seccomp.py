"""The system-call filter of a sandbox, as classic BPF.

What a shell user never needs and what has let programs out of containers is refused: new namespaces and
mounts, tracing, kernel modules and keys, BPF, io_uring, clocks, sockets other than local and IP ones (AF_VSOCK
reaches the hypervisor from any network namespace), typing into terminals. Calls newer than this list are
"not implemented", so that a new kernel opens nothing. Standard library only.
"""

from __future__ import annotations

import errno
import platform
import struct

_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_X32 = 0x40000000
_LAST = 462
"""The newest system call that was looked at (mseal)."""

# name: number on x86_64, on aarch64; None where it does not exist
_REFUSED: dict[str, tuple[int | None, int | None]] = {
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51),
    "open_tree": (428, 428), "move_mount": (429, 429), "fsopen": (430, 430), "fsconfig": (431, 431),
    "fsmount": (432, 432), "fspick": (433, 433), "mount_setattr": (442, 442),
    "statmount": (457, 457), "listmount": (458, 458),
    "unshare": (272, 97), "setns": (308, 268),
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271),
    "process_madvise": (440, 440), "pidfd_getfd": (438, 438), "kcmp": (312, 272),
    "userfaultfd": (323, 282), "perf_event_open": (298, 241), "bpf": (321, 280),
    "io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427),
    "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219),
    "init_module": (175, 105), "finit_module": (313, 273), "delete_module": (176, 106),
    "kexec_load": (246, 104), "kexec_file_load": (320, 294), "reboot": (169, 142),
    "open_by_handle_at": (304, 265), "name_to_handle_at": (303, 264), "fanotify_init": (300, 262),
    "quotactl": (179, 60), "quotactl_fd": (443, 443), "swapon": (167, 224), "swapoff": (168, 225),
    "acct": (163, 89), "syslog": (103, 116), "vhangup": (153, 58), "lookup_dcookie": (212, 18),
    "sethostname": (170, 161), "setdomainname": (171, 162),
    "settimeofday": (164, 170), "clock_settime": (227, 112), "clock_adjtime": (305, 266), "adjtimex": (159, 171),
    "mbind": (237, 235), "set_mempolicy": (238, 237), "migrate_pages": (256, 238),
    "move_pages": (279, 239), "set_mempolicy_home_node": (450, 450),
    "iopl": (172, None), "ioperm": (173, None), "modify_ldt": (154, None), "uselib": (134, None),
    "ustat": (136, None), "sysfs": (139, None), "_sysctl": (156, None), "nfsservctl": (180, 42),
}  # fmt: skip
_CLONE, _CLONE3, _SOCKET, _SOCKETPAIR, _IOCTL, _PERSONALITY = (
    (56, 220), (435, 435), (41, 198), (53, 199), (16, 29), (135, 92),
)  # fmt: skip
_NEW_NAMESPACES = 0x7E020000
"""Every CLONE_NEW* flag that clone takes."""
_FAMILIES = (1, 2, 10, 16)
"""AF_UNIX, AF_INET, AF_INET6, AF_NETLINK."""
_TERMINAL_INPUT = (0x5412, 0x541C)
"""TIOCSTI and TIOCLINUX put bytes into a terminal's input."""
_PERSONALITIES = (0, 8, 0x0040000, 0xFFFFFFFF)
"""Linux, Linux on 32 bits, without randomised addresses, and the question which one is set."""

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _KILL, _ERROR = 0x7FFF0000, 0x80000000, 0x00050000
_NUMBER, _ARCHITECTURE, _FIRST, _SECOND = 0, 4, 16, 24


def program(machine: str | None = None) -> bytes:
    """The filter for `machine` (this one), 8 bytes an instruction."""
    name = machine or platform.machine()
    column = list(_ARCHITECTURES).index(name)
    out = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_EQUAL, 1, 0, _ARCHITECTURES[name]),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER),
    ]
    if name == "x86_64":
        out += _refuse(_AT_LEAST, _X32, errno.ENOSYS)
    out += _refuse(_AT_LEAST, _LAST + 1, errno.ENOSYS)
    # glibc falls back to clone, whose flags a filter can read
    out += _refuse(_EQUAL, _CLONE3[column], errno.ENOSYS)
    for numbers in _REFUSED.values():
        if (number := numbers[column]) is not None:
            out += _refuse(_EQUAL, number, errno.EPERM)
    out += _argument(_CLONE[column], _FIRST, _refuse(_ANY_BIT, _NEW_NAMESPACES, errno.EPERM))
    terminal = [i for request in _TERMINAL_INPUT for i in _refuse(_EQUAL, request, errno.EPERM)]
    out += _argument(_IOCTL[column], _SECOND, terminal)
    for number in (_SOCKET[column], _SOCKETPAIR[column]):
        out += _argument(number, _FIRST, _only(_FAMILIES, errno.EAFNOSUPPORT))
    out += _argument(_PERSONALITY[column], _FIRST, _only(_PERSONALITIES, errno.EPERM))
    out.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(struct.pack("HBBI", *instruction) for instruction in out)


Instruction = tuple[int, int, int, int]


def _refuse(test: int, value: int, error: int) -> list[Instruction]:
    return [(test, 0, 1, value), (_RETURN, 0, 0, _ERROR | error)]


def _only(values: tuple[int, ...], error: int) -> list[Instruction]:
    allowed = [i for value in values for i in ((_EQUAL, 0, 1, value), (_RETURN, 0, 0, _ALLOW))]
    return [*allowed, (_RETURN, 0, 0, _ERROR | error)]


def _argument(number: int, where: int, tests: list[Instruction]) -> list[Instruction]:
    """`tests` on one argument of call `number`; the call is allowed where none of them decides."""
    body = [(_LOAD, 0, 0, where), *tests, (_RETURN, 0, 0, _ALLOW)]
    return [(_EQUAL, 0, len(body), number), *body]
