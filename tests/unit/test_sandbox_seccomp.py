"""The system-call filter, run by an interpreter of its own language."""

from __future__ import annotations

import errno
import re
import struct
from pathlib import Path

import pytest

from agentrl.sandbox.seccomp import _REFUSED, program

ALLOW, KILL = 0x7FFF0000, 0x80000000
ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
I386 = 0x40000003


def decide(machine: str, number: int, *arguments: int, architecture: int | None = None) -> int:
    """What the filter returns for one call: classic BPF on `struct seccomp_data`."""
    values = [*arguments, *[0] * (6 - len(arguments))]
    data = struct.pack("<IIQ6Q", number, architecture or ARCHITECTURES[machine], 0, *values)
    code = [struct.unpack("<HBBI", program(machine)[i : i + 8]) for i in
            range(0, len(program(machine)), 8)]  # fmt: skip
    at, accumulator = 0, 0
    while True:
        operation, yes, no, value = code[at]
        at += 1
        if operation == 0x20:
            accumulator = struct.unpack_from("<I", data, value)[0]
        elif operation == 0x06:
            return int(value)
        else:
            test = {
                0x15: accumulator == value,
                0x35: accumulator >= value,
                0x45: bool(accumulator & value),
            }
            at += yes if test[operation] else no


def refused(number: int) -> int:
    return 0x00050000 | number


# names and numbers as the kernel's headers have them
X86_64 = {
    "read": 0, "execve": 59, "fork": 57, "kill": 62, "chown": 92, "mount": 165, "unshare": 272, "setns": 308,
    "ptrace": 101, "bpf": 321, "keyctl": 250, "io_uring_setup": 425, "reboot": 169, "init_module": 175,
    "open_by_handle_at": 304, "pivot_root": 155, "userfaultfd": 323, "clock_settime": 227,
}  # fmt: skip
AARCH64 = {
    "read": 63, "execve": 221, "kill": 129, "fchownat": 54, "mount": 40, "unshare": 97, "setns": 268,
    "ptrace": 117, "bpf": 280, "keyctl": 219, "io_uring_setup": 425, "reboot": 142, "init_module": 105,
    "open_by_handle_at": 265, "pivot_root": 41, "userfaultfd": 282, "clock_settime": 112,
}  # fmt: skip
FREE = {"read", "execve", "fork", "kill", "chown", "fchownat"}


@pytest.mark.parametrize(("machine", "calls"), [("x86_64", X86_64), ("aarch64", AARCH64)])
def test_what_a_shell_needs_is_allowed_and_what_opens_the_kernel_is_not(
    machine: str, calls: dict[str, int]
) -> None:
    for name, number in calls.items():
        expected = ALLOW if name in FREE else refused(errno.EPERM)
        assert decide(machine, number) == expected, name


@pytest.mark.parametrize(
    ("machine", "clone", "clone3"), [("x86_64", 56, 435), ("aarch64", 220, 435)]
)
def test_processes_but_no_namespaces(machine: str, clone: int, clone3: int) -> None:
    sigchld, threads = 17, 0x3D0F00  # as fork and pthread_create call it
    assert decide(machine, clone, sigchld) == ALLOW
    assert decide(machine, clone, threads) == ALLOW
    for flag in (
        0x00020000,
        0x02000000,
        0x04000000,
        0x08000000,
        0x10000000,
        0x20000000,
        0x40000000,
    ):
        assert decide(machine, clone, flag | sigchld) == refused(errno.EPERM), hex(flag)
    assert decide(machine, clone3, 0) == refused(errno.ENOSYS)


@pytest.mark.parametrize(("machine", "call"), [("x86_64", 41), ("x86_64", 53), ("aarch64", 198)])
def test_local_and_ip_sockets_only(machine: str, call: int) -> None:
    for family in (1, 2, 10, 16):  # unix, inet, inet6, netlink
        assert decide(machine, call, family) == ALLOW
    for family in (17, 38, 40, 44):  # packet, alg, vsock, xdp
        assert decide(machine, call, family) == refused(errno.EAFNOSUPPORT)


def test_no_typing_into_terminals_and_no_strange_personalities() -> None:
    assert decide("x86_64", 16, 0, 0x5401) == ALLOW  # TCGETS
    assert decide("x86_64", 16, 0, 0x5412) == refused(errno.EPERM)  # TIOCSTI
    assert decide("x86_64", 135, 0xFFFFFFFF) == ALLOW
    assert decide("x86_64", 135, 0x0400000) == refused(errno.EPERM)  # READ_IMPLIES_EXEC


def test_other_tables_of_calls_are_closed() -> None:
    assert decide("x86_64", 0, architecture=I386) == KILL
    assert decide("x86_64", 0x40000000) == refused(errno.ENOSYS)  # x32
    assert decide("x86_64", 463) == decide("aarch64", 999) == refused(errno.ENOSYS)


@pytest.mark.parametrize(
    ("column", "header"),
    [
        (0, "/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
        (1, "/usr/include/asm-generic/unistd.h"),
    ],
)
def test_numbers_are_those_of_the_kernel_headers(column: int, header: str) -> None:
    if not Path(header).is_file():
        pytest.skip(f"no {header} (Debian: linux-libc-dev)")
    found = dict(re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", Path(header).read_text()))
    known = {name: numbers[column] for name, numbers in _REFUSED.items() if name in found}
    assert len(known) >= 40
    assert {name: int(found[name]) for name in known} == known
