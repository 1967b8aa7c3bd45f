# ruff: noqa: PTH101, PTH103, PTH116, PTH123, PTH208
# (pathlib for a few calls would only slow down what is forked a lot)
"""The helper process of the namespace sandboxes: makes them, starts programs in them, ends them.

    main()    (with a SOCK_SEQPACKET socket as standard input)

Every request is one JSON message with file descriptors; so is every answer (`id`) and every notice of an exit
(`exit`). The process is single-threaded, so that `fork` is safe, and small, so that it is quick.

Invariants. It gives up the host's file tree before the first sandbox: what a sandbox is made from holds the
root file system, /proc and a few devices, nothing else. Each sandbox has user, mount, pid, network, IPC, UTS
and cgroup namespaces of its own; what enters it is closed to tracing until it has become a program of the
sandbox, and keeps no descriptor of the host. When the socket closes, or the launcher
dies, every sandbox dies (invariant 11).
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import resource
import select
import signal
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NoReturn

from agentrl.sandbox import inside, linux, seccomp
from agentrl.sandbox.cgroups import Cgroups

MESSAGE = 1 << 16
HANDSHAKE_SECONDS = 60.0
NAMESPACES = (
    linux.CLONE_NEWPID | linux.CLONE_NEWNET | linux.CLONE_NEWIPC | linux.CLONE_NEWUTS
    | linux.CLONE_NEWCGROUP
)  # fmt: skip
ENTERED = NAMESPACES & ~linux.CLONE_NEWPID | linux.CLONE_NEWNS | linux.CLONE_NEWUSER
KEPT_CAPABILITIES = {0, 1, 3, 4, 5, 6, 7, 10}
"""CHOWN, DAC_OVERRIDE, FOWNER, FSETID, KILL, SETGID, SETUID, NET_BIND_SERVICE."""
HOST_NAME = "sandbox"
FILES_SECONDS = 60
KILL_TRIES, KILL_SECONDS = 2000, 0.005


@dataclass
class Box:
    """One sandbox. `layers` are the folders of its files, newest first, as its mount namespace sees them."""

    name: str
    init: int
    user: int
    holder: int
    """The mount namespace in which the files of the sandbox lie outside its root."""
    inside: int
    """The mount namespace of its programs."""
    pid: int
    """Its pid namespace."""
    handle: int
    """A pidfd of process 1: its other namespaces."""
    layers: tuple[str, ...]
    spawned: set[int] = field(default_factory=set)
    alive: bool = True
    closing: int | None = None
    """The request to answer when all of it is gone."""
    stopping: list[int] = field(default_factory=list)


class Launcher:
    def __init__(self, channel: socket.socket) -> None:
        self.channel = channel
        self.boxes: dict[str, Box] = {}
        self.owners: dict[int, tuple[str, int]] = {}
        """Which sandbox each child process belongs to, and which request it was started for."""

    def begin(self, settings: dict[str, Any]) -> None:
        self.memory, self.disk = int(settings["memory"]), int(settings["disk"])
        self.processes, self.cpus = int(settings["processes"]), float(settings["cpus"])
        self.base, self.count = int(settings["base"]), int(settings["count"])
        self.privileged = os.geteuid() == 0
        self.cgroups = Cgroups()
        linux.prctl(linux.PR_SET_CHILD_SUBREAPER, 1)
        self.open_files = inside.raise_open_files()
        if not self.privileged:
            inside.become_root_of_own_namespace()
            self.base, self.count = 0, 1
        linux.unshare(linux.CLONE_NEWNS)
        inside.leave_host(settings["root"], settings["binds"])
        self.binds = [inner for _, inner in settings["binds"]]
        self.filter = seccomp.program()
        gc.collect()
        gc.freeze()

    # -- sandboxes

    def open(self, name: str, parent: Box | None) -> None:
        self.cgroups.make(name, self.memory, self.processes, self.cpus)
        (first_ours, first), (init_ours, init) = socket.socketpair(), socket.socketpair()
        fds: list[int] = []
        child = 0
        try:
            child = os.fork()
            if child == 0:
                _child(lambda: self._first(first, init, name, parent), first)
            first.close()
            init.close()
            if parent is None:
                _hear(first_ours)
                self._map_ids(child)
                first_ours.send(b"mapped\n")
            number = int(_hear(first_ours))
            for kind in ("user", "mnt", "pid_for_children"):
                fds.append(os.open(f"/proc/{child}/ns/{kind}", os.O_RDONLY))
            first_ours.send(b"leave\n")
            os.waitpid(child, 0)
            child = 0
            layers = json.loads(_hear(init_ours))
            fds.append(os.open(f"/proc/{number}/ns/mnt", os.O_RDONLY))
            fds.append(os.pidfd_open(number))
            init_ours.send(b"go\n")
            if problem := init_ours.recv(1024):
                raise OSError(problem.decode("utf-8", "replace"))
        except BaseException:
            for fd in fds:
                os.close(fd)
            if child:
                os.kill(child, signal.SIGKILL)  # process 1 hears its channel close, and ends
                os.waitpid(child, 0)
            self.cgroups.remove(name)
            raise
        finally:
            for channel in (first_ours, first, init_ours, init):
                channel.close()
        user, holder, pid, inside, handle = fds
        box = Box(name, number, user, holder, inside, pid, handle, tuple(layers))
        self.boxes[name] = box
        self.owners[number] = name, 0

    def _map_ids(self, pid: int) -> None:
        line = f"0 {self.base} {self.count}\n"
        for file, text in (("setgroups", "deny"), ("uid_map", line), ("gid_map", line)):
            if file == "setgroups" and self.privileged:
                continue
            with open(f"/proc/{pid}/{file}", "w") as stream:
                stream.write(text)

    def _first(
        self, channel: socket.socket, inner: socket.socket, name: str, parent: Box | None
    ) -> NoReturn:
        """Makes the namespaces and the place of the files, and process 1, and leaves."""
        self.cgroups.join(name)
        if parent is None:
            linux.unshare(linux.CLONE_NEWUSER)
            channel.send(b"user\n")
            _hear(channel)
        else:
            linux.setns(parent.user, linux.CLONE_NEWUSER)
            linux.setns(parent.holder, linux.CLONE_NEWNS)
        self._take_root()
        linux.prctl(linux.PR_SET_DUMPABLE, 1)  # until the launcher has opened its namespaces
        linux.unshare(linux.CLONE_NEWNS)
        if parent is None:
            linux.mount("none", "/", "", linux.MS_REC | linux.MS_PRIVATE)
            limits = f"size={self.disk},nr_inodes={max(1024, self.disk // 4096)},mode=755"
            linux.mount("box", "/box", "tmpfs", 0, limits)
        lower = parent.layers if parent else ("/lower",)
        for part in ("upper", "work", "root"):
            os.makedirs(f"/box/{name}/{part}")
        linux.unshare(NAMESPACES)
        init = os.fork()
        if init == 0:
            channel.close()
            _child(lambda: self._init(inner, name, lower), inner)
        channel.send(f"{init}\n".encode())
        _hear(channel)
        os._exit(0)

    def _take_root(self) -> None:
        if self.privileged:
            os.setgroups([])
        os.setresgid(0, 0, 0)
        os.setresuid(0, 0, 0)

    def _init(self, channel: socket.socket, name: str, lower: tuple[str, ...]) -> NoReturn:
        """Process 1: builds the root, and then becomes a program that only keeps the namespaces alive."""
        linux.unshare(linux.CLONE_NEWNS)
        root, upper = f"/box/{name}/root", f"/box/{name}/upper"
        os.chmod(upper, os.stat(lower[0]).st_mode & 0o7777)
        data = f"lowerdir={':'.join(lower)},upperdir={upper},workdir=/box/{name}/work,userxattr"
        linux.mount("overlay", root, "overlay", 0, data)
        for number, inner in enumerate(self.binds):
            os.makedirs(root + inner, exist_ok=True)
            linux.bind(f"/binds/{number}", root + inner, linux.MS_REC)
        inside.mount_system(root)
        inside.change_root(root)
        socket.sethostname(HOST_NAME)
        linux.bring_loopback_up()
        os.umask(0o022)
        channel.send(json.dumps([upper, *lower]).encode() + b"\n")
        _hear(channel)
        linux.drop_capabilities(set())
        linux.prctl(linux.PR_SET_PDEATHSIG, signal.SIGKILL)
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # orphans are reaped by the kernel
        nothing = os.open("/dev/null", os.O_RDWR)
        for number in range(3):
            os.dup2(nothing, number)
        linux.close_all_but({channel.fileno()})
        linux.install_seccomp(self.filter)
        linux.become_pause()  # which closes the channel

    # -- programs

    def spawn(self, box: Box, request: dict[str, Any], fds: list[int]) -> int:
        """Start a program in a sandbox. `fds`: standard output and error, or a socket for a terminal."""
        if not box.alive:
            raise OSError("the sandbox has ended")
        return self._fork_inside(
            box, request["id"], lambda: self._program(box, request, fds), fds[-1]
        )

    def _fork_inside(
        self, box: Box, request: int, work: Callable[[], NoReturn], report: Any = None
    ) -> int:
        """Fork a child into the sandbox's pid namespace.

        Through one that enters it and leaves at once: without privileges there is no way back.
        """
        read, write = os.pipe()
        between = os.fork()
        if between == 0:
            _child(lambda: _fork_again(box, work, report, write), report)
        os.close(write)
        number = os.read(read, 32)
        os.close(read)
        os.waitpid(between, 0)
        if not number:
            raise OSError("no process can be started in the sandbox")
        return self._note(box, int(number), request)

    def _note(self, box: Box, child: int, request: int) -> int:
        box.spawned.add(child)
        self.owners[child] = box.name, request
        return child

    def _program(self, box: Box, request: dict[str, Any], fds: list[int]) -> NoReturn:
        linux.prctl(linux.PR_SET_DUMPABLE, 0)
        self.cgroups.join(box.name)
        self.enter(box)
        os.setsid()
        if request["terminal"]:
            inside.take_terminal(fds[0])
        else:
            for number, fd in enumerate([os.open("/dev/null", os.O_RDONLY), *fds]):
                os.dup2(fd, number)
        self._limit()
        linux.drop_capabilities(KEPT_CAPABILITIES)
        for number in (signal.SIGINT, signal.SIGPIPE, signal.SIGXFSZ):  # else children ignore them
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        os.umask(0o022)
        linux.install_seccomp(self.filter)
        linux.close_all_but(set())
        with contextlib.suppress(OSError):
            os.chdir(request["folder"])
        try:
            os.execve(request["command"][0], request["command"], request["environment"])
        except OSError as error:
            os.write(2, f"{request['command'][0]}: {error.strerror}\n".encode())
            os._exit(127)

    def _limit(self) -> None:
        limits = {
            resource.RLIMIT_NPROC: self.processes,
            resource.RLIMIT_NOFILE: self.open_files,
            resource.RLIMIT_FSIZE: self.disk,
            resource.RLIMIT_CORE: 0,
            resource.RLIMIT_MEMLOCK: 1 << 16,
        }
        if "memory" not in self.cgroups.controllers:
            limits[resource.RLIMIT_AS] = self.memory
        for which, value in limits.items():
            hard = resource.getrlimit(which)[1]
            if hard != resource.RLIM_INFINITY:
                value = min(value, hard)
            resource.setrlimit(which, (value, value))

    def enter(self, box: Box) -> None:
        """Become root of the sandbox, its namespaces and files; pid namespaces take a fork."""
        linux.setns(box.handle, ENTERED)
        self._take_root()
        linux.prctl(linux.PR_SET_DUMPABLE, 0)

    # -- files

    def files(self, box: Box, request: dict[str, Any], fds: list[int]) -> int:
        """A child that carries files in or out as a tar stream; its end is the answer."""
        child = os.fork()
        if child == 0:
            _child(lambda: self._carry(box, request, fds[0]))
        return self._note(box, child, request["id"])

    def _carry(self, box: Box, request: dict[str, Any], fd: int) -> NoReturn:
        signal.alarm(FILES_SECONDS)
        if request["op"] == "put" and box.alive:
            self.cgroups.join(box.name)  # what it writes counts
        changed = request["op"] == "changed"
        linux.setns(box.user, linux.CLONE_NEWUSER)
        linux.setns(box.holder if changed else box.inside, linux.CLONE_NEWNS)
        self._take_root()
        linux.prctl(linux.PR_SET_DUMPABLE, 0)
        os.umask(0)
        with os.fdopen(fd, "wb" if request["op"] != "put" else "rb") as stream:
            if changed:
                inside.list_changed(box.layers[0], stream)
            elif request["op"] == "count":
                stream.write(str(sum(name.isdigit() for name in os.listdir("/proc")) - 1).encode())
            elif request["op"] == "get":
                inside.read_files(request["paths"], stream)
            else:
                inside.write_files(stream)
        os._exit(0)

    # -- ends

    def kill(self, box: Box) -> None:
        if box.alive:
            os.kill(box.init, signal.SIGKILL)

    def clear(self, box: Box, request: int) -> int:
        """A child that kills every program of the sandbox but its process 1; it ends when they are gone."""
        if not box.alive:
            raise OSError("the sandbox has ended")
        return self._fork_inside(box, request, lambda: self._kill_all(box))

    def _kill_all(self, box: Box) -> NoReturn:
        linux.prctl(linux.PR_SET_DUMPABLE, 0)
        self.enter(box)
        with contextlib.suppress(ProcessLookupError):
            for _ in range(KILL_TRIES):  # a fork bomb forks meanwhile
                os.kill(-1, signal.SIGKILL)
                time.sleep(KILL_SECONDS)
        os._exit(0)

    def reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            name, request = self.owners.pop(pid, ("", 0))
            box = self.boxes.get(name)
            if box is None:
                continue
            if pid == box.init:
                box.alive = False
                for waiting in box.stopping:
                    self.say({"id": waiting})
                box.stopping = []
            else:
                box.spawned.discard(pid)
                self.say({"exit": request, "status": os.waitstatus_to_exitcode(status)})
            self.finish(box)

    def finish(self, box: Box) -> None:
        """Give back what a closing sandbox held, when nothing of it runs."""
        if box.closing is None or box.alive or box.spawned:
            return
        for fd in (box.user, box.holder, box.inside, box.pid, box.handle):
            os.close(fd)
        del self.boxes[box.name]
        self.cgroups.remove(box.name)
        self.say({"id": box.closing})

    # -- the loop

    def say(self, answer: dict[str, Any]) -> None:
        self.channel.send(json.dumps(answer).encode())

    def handle(self, request: dict[str, Any], fds: list[int]) -> None:
        operation, box = request["op"], self.boxes.get(request.get("box", ""))
        if operation == "open":
            self.open(request["name"], self.boxes[request["parent"]] if request["parent"] else None)
            self.say({"id": request["id"]})
        elif box is None:
            raise OSError("no such sandbox")
        elif operation == "spawn":
            self.say({"id": request["id"], "pid": self.spawn(box, request, fds)})
        elif operation in ("get", "put", "changed", "count"):
            self.say({"id": request["id"], "pid": self.files(box, request, fds)})
        elif operation == "kill":
            with contextlib.suppress(ProcessLookupError):
                if request["pid"] in box.spawned:
                    os.killpg(request["pid"], signal.SIGKILL)
            self.say({"id": request["id"]})
        elif operation == "clear":
            self.say({"id": request["id"], "pid": self.clear(box, request["id"])})
        elif operation == "stop":
            if box.alive:
                box.stopping.append(request["id"])
                self.kill(box)
            else:
                self.say({"id": request["id"]})
        elif operation == "close":
            box.closing = request["id"]
            self.kill(box)
            for child in box.spawned:  # also those that carry files
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)
            self.finish(box)

    def serve(self) -> None:
        wake, alarm = os.pipe()
        os.set_blocking(alarm, False)
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(alarm, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        poll = select.poll()
        poll.register(self.channel, select.POLLIN)
        poll.register(wake, select.POLLIN)
        while True:
            for fd, _ in poll.poll():
                if fd == wake:
                    with contextlib.suppress(BlockingIOError):
                        os.read(wake, 4096)
                    continue
                data, fds, _, _ = socket.recv_fds(self.channel, MESSAGE, 4)
                if not data:
                    return
                self._answer(json.loads(data), list(fds))
            self.reap()

    def _answer(self, request: dict[str, Any], fds: list[int]) -> None:
        try:
            self.handle(request, fds)
        except (OSError, TimeoutError) as error:
            self.say({"id": request["id"], "error": str(error)})
        finally:
            for fd in fds:
                os.close(fd)

    def end(self) -> None:
        """Kill every sandbox, wait for the processes, remove the groups."""
        for box in self.boxes.values():
            self.kill(box)
        for box in self.boxes.values():
            for child in box.spawned:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while True:
                os.waitpid(-1, 0)
        self.cgroups.close()


# -- what children do


def _child(work: Callable[[], NoReturn], report: Any = None) -> NoReturn:
    """Run `work` in a forked child; whatever happens, the child ends here. Errors go to `report`."""
    try:
        gc.disable()  # a collection would copy every page that is still shared
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        work()
    except BaseException as error:
        text = f"{type(error).__name__}: {error}".encode()[:500]
        with contextlib.suppress(OSError):
            if isinstance(report, socket.socket):
                report.send(b"error " + text.replace(b"\n", b" ") + b"\n")
            elif report is not None:
                os.write(report, text)
    finally:
        os._exit(125)


def _fork_again(box: Box, work: Callable[[], NoReturn], report: Any, write: int) -> NoReturn:
    linux.setns(box.pid, linux.CLONE_NEWPID)
    child = os.fork()
    if child == 0:
        os.close(write)
        _child(work, report)
    os.write(write, str(child).encode())
    os._exit(0)


def _hear(channel: socket.socket) -> str:
    """One line of a handshake."""
    line = b""
    while not line.endswith(b"\n"):
        got = channel.recv(1)
        if not got:
            raise OSError("a process of the sandbox ended while it was made")
        line += got
    text = line.decode().strip()
    if text.startswith("error "):
        raise OSError(text.removeprefix("error "))
    return text


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C at a terminal is for the owner
    channel = socket.socket(fileno=os.dup(0))
    os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
    launcher = Launcher(channel)
    request = json.loads(channel.recv(MESSAGE))
    try:
        launcher.begin(request)
    except OSError as error:
        launcher.say({"error": str(error)})
        return
    launcher.say({"id": 0, "limits": launcher.cgroups.controllers})
    try:
        # An owner that goes in the middle of a request leaves nobody to answer.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            launcher.serve()
    finally:
        launcher.end()
