"""The few Linux calls that Python 3.11 does not offer, by ctypes; errors are `OSError` with the call's name.

Standard library only: `launcher` runs it in a process of its own.
"""

from __future__ import annotations

import array
import ctypes
import fcntl
import os
import platform
import socket
import struct
from typing import NoReturn

CLONE_NEWNS, CLONE_NEWCGROUP, CLONE_NEWUTS = 0x00020000, 0x02000000, 0x04000000
CLONE_NEWIPC, CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = (
    0x08000000, 0x10000000, 0x20000000, 0x40000000,
)  # fmt: skip
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT = 1, 2, 4, 8, 32
MS_BIND, MS_REC, MS_PRIVATE = 4096, 16384, 1 << 18
MNT_DETACH = 2
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_CAPBSET_DROP = 1, 4, 24
PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 36, 38
SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 1

_NUMBERS = {"x86_64": {"pivot_root": 155, "close_range": 436, "seccomp": 317, "openat2": 437},
            "aarch64": {"pivot_root": 41, "close_range": 436, "seccomp": 277, "openat2": 437}}  # fmt: skip
_libc = ctypes.CDLL(None, use_errno=True)


def supported() -> bool:
    return platform.system() == "Linux" and platform.machine() in _NUMBERS


def _check(name: str, result: int, detail: str = "") -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}{detail}: {os.strerror(number)}")
    return result


def _syscall(name: str, *arguments: object) -> int:
    number = _NUMBERS[platform.machine()][name]
    return _check(name, _libc.syscall(ctypes.c_long(number), *arguments))


def unshare(flags: int) -> None:
    _check("unshare", _libc.unshare(ctypes.c_int(flags)), f"({flags:#x})")


def setns(fd: int, flags: int) -> None:
    _check("setns", _libc.setns(ctypes.c_int(fd), ctypes.c_int(flags)), f"({flags:#x})")


def prctl(operation: int, value: int = 0) -> None:
    zero = ctypes.c_ulong(0)
    done = _libc.prctl(ctypes.c_int(operation), ctypes.c_ulong(value), zero, zero, zero)
    _check("prctl", done, f"({operation})")


def mount(source: str, target: str, kind: str = "", flags: int = 0, data: str = "") -> None:
    done = _libc.mount(
        source.encode(), target.encode(), kind.encode(), ctypes.c_ulong(flags), data.encode()
    )
    _check("mount", done, f" {kind or source} on {target}")


def bind(source: str, target: str, flags: int = 0) -> None:
    """A bind mount; `flags` take a second call, which has to repeat those that are locked."""
    mount(source, target, "", MS_BIND | (flags & MS_REC))
    if flags & ~MS_REC:
        held = os.statvfs(target).f_flag & (MS_NOSUID | MS_NODEV | MS_NOEXEC)
        mount("none", target, "", MS_BIND | MS_REMOUNT | held | (flags & ~MS_REC))


def umount(target: str, flags: int = 0) -> None:
    _check("umount2", _libc.umount2(target.encode(), ctypes.c_int(flags)), f" {target}")


def pivot_root(new: str, old: str) -> None:
    _syscall("pivot_root", new.encode(), old.encode())


def close_all_but(keep: set[int]) -> None:
    """Close every file descriptor from 3 on that is not in `keep`."""
    first = 3
    for fd in [*sorted(fd for fd in keep if fd >= 3), 1 << 30]:
        if fd > first:
            _syscall("close_range", ctypes.c_uint(first), ctypes.c_uint(fd - 1), ctypes.c_uint(0))
        first = fd + 1


def drop_capabilities(keep: set[int]) -> None:
    """Take all but `keep` out of the bounding set: no program started from here can gain them."""
    for capability in range(64):
        if capability in keep:
            continue
        try:
            prctl(PR_CAPBSET_DROP, capability)
        except OSError:
            return  # past the last one that this kernel knows


def bring_loopback_up() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        request = struct.pack("16sH14x", b"lo", 0)
        flags = struct.unpack("16sH14x", fcntl.ioctl(probe, SIOCGIFFLAGS, request))[1]
        fcntl.ioctl(probe, SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", flags | IFF_UP))


def install_seccomp(program: bytes) -> None:
    """Load a BPF program of 8-byte instructions for this process and all that it starts."""
    code = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(code))
    frame = ctypes.create_string_buffer(header, len(header))
    _syscall("seccomp", ctypes.c_uint(1), ctypes.c_uint(0), frame)


def send_fds(channel: socket.socket, data: bytes, fds: list[int]) -> None:
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
    channel.sendmsg([data], rights)


_PAUSE = {
    # pause() for ever
    "x86_64": (62, "b822000000 0f05 ebf7"),
    # ppoll(0, 0, 0, 0) for ever
    "aarch64": (183, "000080d2 010080d2 020080d2 030080d2 280980d2 010000d4 faffff17"),
}


def become_pause() -> NoReturn:
    """Replace this process by the smallest program that only waits: it holds one page of memory.

    An ELF file of one header, one segment and a loop of one system call, run from memory.
    """
    machine, code = _PAUSE[platform.machine()]
    start, base, body = 64 + 56, 0x400000, bytes.fromhex(code)
    size = start + len(body)
    header = struct.pack(
        "<16sHHIQQQIHHHHHH", b"\x7fELF\x02\x01\x01", 2, machine, 1, base + start, 64, 0, 0,
        64, 56, 1, 0, 0, 0,
    )  # fmt: skip
    segment = struct.pack("<IIQQQQQQ", 1, 5, 0, base, base, size, size, 0x1000)
    fd = os.memfd_create("init", os.MFD_CLOEXEC)
    os.write(fd, header + segment + body)
    os.execve(fd, ["init"], {})
