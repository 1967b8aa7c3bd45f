"""A Docker daemon of the tests' own, and an image made without any registry.

It has its own folders, socket and process files below one temporary folder, no bridge and no firewall rules, and
is stopped on every path, together with the containerd that it starts.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tarfile
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import docker

from agentrl.sandbox.trees import BASE

IMAGE = "agentrl-test/os-default"
PREFIX = "agentrl-docker-"
START_SECONDS, STOP_SECONDS = 300.0, 120.0


def missing() -> str | None:
    """Why there can be no daemon here."""
    if os.geteuid() != 0:
        return "a Docker daemon of its own needs root"
    if not (shutil.which("dockerd") and shutil.which("containerd")):
        return "no dockerd and containerd here (Debian: docker.io)"
    return None


@contextlib.contextmanager
def private_daemon(size: str = "6g") -> Iterator[str]:
    """Start a daemon and give its address; what it holds is removed in the end.

    Images and containers lie in memory, in a file system of `size` at most: quick, and no container can fill
    the disk.
    """
    _sweep()
    with tempfile.TemporaryDirectory(prefix=PREFIX, ignore_cleanup_errors=True) as name:
        folder = Path(name)
        (folder / "owner").write_text(str(os.getpid()))
        data, log = folder / "data", folder / "log"
        data.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "agentrl", data], check=True)
        (folder / "daemon.json").write_text("{}")
        host = f"unix://{folder}/sock"
        with log.open("wb") as output:
            daemon = subprocess.Popen(
                [
                    "setpriv", "--pdeathsig=TERM", "--", "dockerd", f"--config-file={folder}/daemon.json", f"--data-root={data}",
                    f"--exec-root={folder}/exec", f"--pidfile={folder}/pid", f"--host={host}",
                    "--bridge=none", "--iptables=false", "--ip-masq=false", "--group=root",
                    "--exec-opt=native.cgroupdriver=cgroupfs", "--cgroup-parent=/agentrl-test-docker",
                ],
                stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=folder,
            )  # fmt: skip
        try:
            _wait(daemon, host, log)
            yield host
        finally:
            daemon.terminate()
            try:
                daemon.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
            _unmount(folder)
            _remove_groups()


def _wait(daemon: subprocess.Popen[bytes], host: str, log: Path) -> None:
    waiting = threading.Event()
    for _ in range(int(START_SECONDS * 5)):
        if daemon.poll() is not None:
            raise RuntimeError(f"dockerd ended: {log.read_text(errors='replace')[-1500:]}")
        with (
            contextlib.suppress(Exception),
            contextlib.closing(docker.DockerClient(host)) as client,
        ):
            if client.ping():
                return
        waiting.wait(0.2)
    raise RuntimeError(f"dockerd does not answer: {log.read_text(errors='replace')[-1500:]}")


def _sweep() -> None:
    """Remove the folders of daemons whose tests were killed; the daemons went with them."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        owner = folder / "owner"
        if owner.is_file() and not Path("/proc", owner.read_text()).exists():
            _unmount(folder)
            shutil.rmtree(folder, ignore_errors=True)


def _unmount(folder: Path) -> None:
    for place in sorted(mounts_below(folder), reverse=True):
        subprocess.run(["umount", "-l", place], check=False)


def mounts_below(folder: Path) -> list[str]:
    mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
    return [place for place in mounts if place.startswith(f"{folder}/")]


def _remove_groups() -> None:
    for group in Path("/sys/fs/cgroup").glob("*/agentrl-test-docker"):
        with contextlib.suppress(OSError):
            group.rmdir()


def import_tree(client: docker.DockerClient, tree: Path, image: str = IMAGE) -> None:
    """Make an image of a sandbox's file tree, with the owners that it has inside."""
    read, write = os.pipe()

    def pack() -> None:
        with os.fdopen(write, "wb") as stream, tarfile.open(fileobj=stream, mode="w|") as archive:
            archive.add(tree, ".", filter=_owned)

    packer = threading.Thread(target=pack)
    packer.start()
    with os.fdopen(read, "rb") as stream:
        repository, _, tag = image.partition(":")
        client.api.import_image_from_stream(stream, repository=repository, tag=tag or "latest")
    packer.join()
    client.images.get(image)


def _owned(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid, member.gid = max(0, member.uid - BASE), max(0, member.gid - BASE)
    member.uname = member.gname = ""
    return member
