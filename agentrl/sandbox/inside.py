# ruff: noqa: PTH101, PTH102, PTH103, PTH108, PTH110, PTH120, PTH123, PTH211
# (names in a sandbox are any bytes; plain calls keep them)
"""What the launcher's forked children do: build the root of a sandbox, open terminals, carry files.

Nothing here sees the host's file tree any more but `leave_host`, which gives it up. Standard library only.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import resource
import socket
import tarfile
import termios
from typing import Any

from agentrl.sandbox import linux

DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
READ_ONLY = ("sys", "bus", "fs", "irq", "sysrq-trigger")
"""Parts of /proc."""
WINDOW = (50, 240)
"""Rows and columns of a terminal: wide, so that listings are not cut."""


def raise_open_files() -> int:
    """As many open files as Docker allows: official records redirect descriptor 123321."""
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (1 << 20, 1 << 20))
    except (ValueError, OSError):
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[1]


def become_root_of_own_namespace() -> None:
    """For a user without privileges: root of a user namespace with one id, their own."""
    uid, gid = os.getuid(), os.getgid()
    linux.unshare(linux.CLONE_NEWUSER)
    for file, text in (
        ("setgroups", "deny"), ("uid_map", f"0 {uid} 1"), ("gid_map", f"0 {gid} 1"),
    ):  # fmt: skip
        with open(f"/proc/self/{file}", "w") as stream:
            stream.write(text)


def leave_host(root: str, binds: list[list[str]]) -> None:
    """Make a root of only what sandboxes are made from, and give up everything else."""
    linux.mount("none", "/", "", linux.MS_REC | linux.MS_PRIVATE)
    stage = "/tmp"
    sources = [(os.open(path, os.O_PATH | os.O_DIRECTORY), name) for path, name in
               [(root, "lower"), *((path, f"binds/{i}") for i, (path, _) in enumerate(binds))]]  # fmt: skip
    devices = [(os.open(f"/dev/{name}", os.O_PATH), name) for name in DEVICES]
    linux.mount("stage", stage, "tmpfs", 0, "mode=755,size=1m")
    for folder in ("box", "dev", "proc", "binds"):
        os.mkdir(f"{stage}/{folder}")
    for fd, name in sources:
        os.mkdir(f"{stage}/{name}")
        linux.bind(f"/proc/self/fd/{fd}", f"{stage}/{name}", linux.MS_RDONLY)
        os.close(fd)
    for fd, name in devices:
        with open(f"{stage}/dev/{name}", "w"):
            pass
        linux.bind(f"/proc/self/fd/{fd}", f"{stage}/dev/{name}")
        os.close(fd)
    linux.bind("/proc", f"{stage}/proc", linux.MS_REC)
    change_root(stage)


def change_root(path: str) -> None:
    """Make `path` the root, with nothing of the old one left."""
    os.chdir(path)
    linux.pivot_root(".", ".")
    linux.umount(".", linux.MNT_DETACH)
    os.chdir("/")


def mount_system(root: str) -> None:
    """/proc, /dev and an empty /sys, with what could touch the host read-only."""
    safe = linux.MS_NOSUID | linux.MS_NODEV | linux.MS_NOEXEC
    for folder in ("proc", "dev", "sys", "tmp", "root"):
        os.makedirs(f"{root}/{folder}", exist_ok=True)
    linux.mount("proc", f"{root}/proc", "proc", safe)
    for name in READ_ONLY:
        path = f"{root}/proc/{name}"
        if os.path.exists(path):
            linux.bind(path, path, linux.MS_RDONLY | safe)
    for path in (f"{root}/sys", f"{root}/proc/tty/driver"):
        if os.path.exists(path):
            linux.mount("empty", path, "tmpfs", safe | linux.MS_RDONLY, "mode=555,nr_inodes=1")
    dev = f"{root}/dev"
    linux.mount("dev", dev, "tmpfs", linux.MS_NOSUID, "mode=755,size=64k")
    for name in DEVICES:
        with open(f"{dev}/{name}", "w"):
            pass
        linux.bind(f"/dev/{name}", f"{dev}/{name}")
    for name, target in (
        ("fd", "/proc/self/fd"), ("stdin", "/proc/self/fd/0"), ("stdout", "/proc/self/fd/1"),
        ("stderr", "/proc/self/fd/2"), ("ptmx", "pts/ptmx"),
    ):  # fmt: skip
        os.symlink(target, f"{dev}/{name}")
    os.mkdir(f"{dev}/pts")
    os.mkdir(f"{dev}/shm")
    linux.mount("devpts", f"{dev}/pts", "devpts", linux.MS_NOSUID | linux.MS_NOEXEC,
                "newinstance,ptmxmode=0666,mode=620,max=64")  # fmt: skip
    linux.mount("shm", f"{dev}/shm", "tmpfs", safe, "mode=1777,size=16m")
    linux.mount(
        "dev", dev, "", linux.MS_BIND | linux.MS_REMOUNT | linux.MS_RDONLY | linux.MS_NOSUID
    )


def take_terminal(channel: int) -> None:
    """A new terminal of the sandbox as standard input, output and error; its master end goes away."""
    master, terminal = os.openpty()
    fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)
    termios.tcsetwinsize(terminal, WINDOW)
    with socket.socket(fileno=os.dup(channel)) as peer:
        linux.send_fds(peer, b"terminal", [master])
    for number in range(3):
        os.dup2(terminal, number)


# -- files


def list_changed(upper: str, stream: Any) -> None:
    for folder, folders, names in os.walk(upper):
        inner = folder.removeprefix(upper)
        for name in [*folders, *names]:
            stream.write(f"{inner}/{name}".encode("utf-8", "surrogateescape") + b"\0")


def read_files(paths: list[str], stream: Any) -> None:
    with tarfile.open(fileobj=stream, mode="w|", format=tarfile.PAX_FORMAT) as archive:
        for path in paths:
            if os.path.lexists(path):
                archive.add(path, path.lstrip("/"))


def write_files(stream: Any) -> None:
    with tarfile.open(fileobj=stream, mode="r|") as archive:
        for member in archive:
            path = "/" + member.name
            os.makedirs(os.path.dirname(path), 0o755, exist_ok=True)
            _write_file(archive, member, path)


def _write_file(archive: tarfile.TarFile, member: tarfile.TarInfo, path: str) -> None:
    if member.isdir():
        os.makedirs(path, exist_ok=True)
    else:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        if member.issym():
            os.symlink(member.linkname, path)
        else:
            data = archive.extractfile(member)
            with open(path, "wb") as file:
                while data is not None and (part := data.read(1 << 16)):
                    file.write(part)
    if member.uid or member.gid:
        os.chown(path, member.uid, member.gid, follow_symlinks=False)
    if not member.issym():
        os.chmod(path, member.mode)
    os.utime(path, (member.mtime, member.mtime), follow_symlinks=False)
