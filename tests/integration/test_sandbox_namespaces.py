# ruff: noqa: ASYNC110, ASYNC221, ASYNC240, PTH115, PTH208
"""Namespace sandboxes: what they hold in, what they limit, and that nothing of them is left."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from os_sandboxes import groups

from agentrl.errors import InfrastructureError, UnavailableError
from agentrl.sandbox.base import BrokenSandbox, Limits
from agentrl.sandbox.cgroups import PREFIX
from agentrl.sandbox.files import File, TooLarge
from agentrl.sandbox.namespaces import NamespaceProvider, NamespaceSandbox
from agentrl.sandbox.trees import host_tree

ROOT = Path(__file__).parents[2]
PATIENCE = 900.0
"""Seconds; no test waits for it."""
LIMITS = Limits(memory=128 << 20, disk=32 << 20, processes=40, cpus=1.0)
NAMESPACES = ("user", "mnt", "pid", "net", "ipc", "uts")


def left_by(process: int) -> list[str]:
    """Everything on the host that belongs to one launcher."""
    held = [str(path) for path in groups() if path.name == f"{PREFIX}{process}"]
    children = Path(f"/proc/{process}/task/{process}/children")
    return held + (children.read_text().split() if children.exists() else [])


@pytest.fixture
async def provider(tmp_path: Path) -> AsyncIterator[NamespaceProvider]:
    made = NamespaceProvider(host_tree(tmp_path), LIMITS)
    try:
        await made.check()
    except UnavailableError as error:
        pytest.skip(str(error))
    assert made._client is not None
    launcher = made._client.process
    files = len(os.listdir("/proc/self/fd"))
    yield made
    assert len(os.listdir("/proc/self/fd")) == files, "descriptors were left open"
    await made.close()
    assert launcher.poll() is not None
    assert left_by(launcher.pid) == []
    assert "/box" not in Path("/proc/self/mounts").read_text()


@pytest.fixture
async def sandbox(provider: NamespaceProvider) -> AsyncIterator[NamespaceSandbox]:
    made = await provider.open()
    yield made
    await made.close()


async def output(sandbox: NamespaceSandbox, script: str) -> str:
    return (await sandbox.run(script, timeout=PATIENCE)).output


async def test_it_has_namespaces_of_its_own(sandbox: NamespaceSandbox) -> None:
    inside = (await output(sandbox, "cd /proc/self/ns; readlink " + " ".join(NAMESPACES))).split()
    outside = [os.readlink(f"/proc/self/ns/{name}") for name in NAMESPACES]
    assert len(inside) == len(outside) and not set(inside) & set(outside)


async def test_root_inside_is_nobody_outside_and_has_few_capabilities(
    sandbox: NamespaceSandbox,
) -> None:
    status = await output(sandbox, "cat /proc/self/status")
    capabilities = int(re.search(r"CapBnd:\s+(\w+)", status)[1], 16)  # type: ignore[index]
    for forbidden in (
        12,
        13,
        16,
        17,
        19,
        21,
        22,
        24,
        25,
        27,
    ):  # net, module, io, ptrace, admin, boot, ...
        assert not capabilities >> forbidden & 1, forbidden
    assert re.search(r"Seccomp:\s+2", status)
    mapping = (await output(sandbox, "cat /proc/self/uid_map")).split()
    assert mapping[0] == "0"
    assert int(mapping[1]) != 0, "root inside must not be root outside"


async def test_the_host_is_not_there(sandbox: NamespaceSandbox, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("host-secret")
    seen = await output(
        sandbox,
        f"cat {secret} /proc/*/root{secret} 2>&1; cat /proc/mounts; ls -d /work /root/.cache /home/* 2>&1",
    )
    assert "host-secret" not in seen
    assert str(Path(__file__).parents[2]) not in seen.replace("ls: cannot access", "")


async def test_no_network_but_its_own_loopback(sandbox: NamespaceSandbox) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.2)
        port = server.getsockname()[1]
        said = await sandbox.run(
            f"exec 3<>/dev/tcp/127.0.0.1/{port} && echo connected", timeout=PATIENCE
        )
        assert "connected" not in said.output and "refused" in said.errors
        with pytest.raises(TimeoutError):
            server.accept()
    devices = await output(sandbox, "cut -d: -f1 /proc/net/dev | tail -n +3")
    assert devices.split() == ["lo"]


async def test_the_disk_is_limited(sandbox: NamespaceSandbox) -> None:
    said = await sandbox.run(
        "head -c 30000000 /dev/zero > a && head -c 30000000 /dev/zero > b", timeout=60
    )
    assert "No space left" in said.errors
    assert (await sandbox.run("truncate -s 1T c", timeout=PATIENCE)).status != 0
    with pytest.raises(BrokenSandbox):
        await sandbox.put([File("/root/c", bytes(30 << 20))])
    assert await output(sandbox, "rm a b; echo freed > d; cat d") == "freed\n"


async def test_programs_and_memory_are_limited(
    provider: NamespaceProvider, sandbox: NamespaceSandbox
) -> None:
    said = await sandbox.run("for i in $(seq 100); do sleep 300 & done", timeout=PATIENCE)
    assert "fork: " in said.errors
    assert await sandbox.count() <= LIMITS.processes
    await sandbox.clear()
    assert await sandbox.count() == 0
    said = await sandbox.run("head -c 400000000 /dev/zero | tail | wc -c", timeout=PATIENCE)
    assert said.output != "400000000\n"
    assert await output(sandbox, "echo alive") == "alive\n"


async def test_orphans_leave_no_zombies(sandbox: NamespaceSandbox) -> None:
    await sandbox.run("for i in $(seq 20); do (sleep 0.01 &) ; done; sleep 0.2", timeout=PATIENCE)
    assert await output(sandbox, "grep -l 'State:.Z' /proc/[0-9]*/status | wc -l") == "0\n"


async def test_files_go_in_and_come_out(sandbox: NamespaceSandbox) -> None:
    await sandbox.put([
        File("/srv/a/b.txt", b"text", 0o640, modified=1_600_000_000),
        File("/srv/a/l", target="b.txt"), File("/srv/empty", None, 0o700),
    ])  # fmt: skip
    assert await output(sandbox, "cd /srv; stat -c '%n %a %Y %s' a/b.txt empty; cat a/l") == (
        "a/b.txt 640 1600000000 4\n" + (await output(sandbox, "stat -c 'empty 700 %Y %s' /srv/empty"))
        + "text"
    )  # fmt: skip
    await sandbox.run(
        "mkfifo /srv/pipe; ln -s /etc/passwd /srv/out; echo x > /srv/new", timeout=PATIENCE
    )
    found = await sandbox.get(["/srv", "/srv/a", "/nowhere"])
    assert sorted(found) == [
        "/srv", "/srv/a", "/srv/a/b.txt", "/srv/a/l", "/srv/empty", "/srv/new", "/srv/out",
    ]  # fmt: skip
    assert (found["/srv/a/b.txt"].content, found["/srv/a/b.txt"].mode) == (b"text", 0o640)
    assert (found["/srv/out"].kind, found["/srv/out"].target) == ("link", "/etc/passwd")
    assert {"/srv/new", "/srv/a/b.txt"} <= set(await sandbox.changed())


async def test_more_than_can_be_read_is_refused(
    sandbox: NamespaceSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    await sandbox.run("head -c 3000000 /dev/zero > /srv/big", timeout=PATIENCE)
    monkeypatch.setattr("agentrl.sandbox.namespaces.MAX_BYTES", 1 << 20)
    with pytest.raises(TooLarge):
        await sandbox.get(["/srv"])


async def test_a_copy_has_the_files_and_no_programs(sandbox: NamespaceSandbox) -> None:
    await sandbox.run("echo first > /srv/x; sleep 300 &", timeout=PATIENCE)
    copy = await sandbox.copy()
    assert (
        await output(copy, "cat /srv/x; echo second > /srv/x; rm -r /home; mkdir /home")
        == "first\n"
    )
    assert (await copy.count(), await sandbox.count()) == (0, 1)
    assert await output(sandbox, "cat /srv/x") == "first\n"
    second = await copy.copy()
    assert await output(second, "cat /srv/x") == "second\n"
    await second.close()
    await copy.close()


async def test_what_is_too_full_to_be_looked_at_is_broken_and_no_failure_of_ours(
    sandbox: NamespaceSandbox,
) -> None:
    await sandbox.run(
        "cat /dev/zero > /root/full; i=0; while : > /root/f$i; do i=$((i+1)); done 2> /dev/null",
        timeout=PATIENCE,
    )
    await sandbox.stop()
    with pytest.raises(BrokenSandbox):
        await sandbox.copy()
    with pytest.raises(TooLarge):
        await sandbox.get([f"/root/{'x' * 50}{i}" for i in range(1000)])


async def test_a_stopped_sandbox_runs_nothing_but_its_files_can_be_read(
    sandbox: NamespaceSandbox,
) -> None:
    await sandbox.run("date > /srv/x; (while :; do date >> /srv/x; done) &", timeout=PATIENCE)
    await sandbox.stop()
    first = await sandbox.get(["/srv/x"])
    assert first == await sandbox.get(["/srv/x"])
    with pytest.raises(BrokenSandbox):
        await sandbox.run("echo")
    copy = await sandbox.copy()
    assert await output(copy, "test -s /srv/x && echo there") == "there\n"
    await copy.close()


async def test_a_script_that_takes_too_long_is_killed(sandbox: NamespaceSandbox) -> None:
    said = await sandbox.run("echo begun; sleep 6000", timeout=5.0)
    assert (said.status, said.output) == (None, "begun\n")
    assert await sandbox.count() == 0


async def test_output_is_bounded_and_the_background_holds_nothing_up(
    sandbox: NamespaceSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentrl.sandbox.namespaces.OUTPUT_LIMIT", 1000)
    said = await sandbox.run(
        "head -c 5000000 /dev/zero | tr '\\0' x; sleep 300 &", timeout=PATIENCE
    )
    assert said.output == "x" * 1000 and said.status == 0


async def test_many_at_once_see_only_their_own(provider: NamespaceProvider) -> None:
    made = await asyncio.gather(*(provider.open() for _ in range(16)))
    await asyncio.gather(*(s.put([File("/srv/me", str(i).encode())]) for i, s in enumerate(made)))
    seen = await asyncio.gather(*(output(s, "cat /srv/me; ls /srv") for s in made))
    assert seen == [f"{i}me\n" for i in range(16)]
    await asyncio.gather(*(s.close() for s in made))


async def test_cancelled_and_failed_starts_leave_nothing(provider: NamespaceProvider) -> None:
    for _ in range(5):
        opening = asyncio.create_task(provider.open())
        await asyncio.sleep(0)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
    assert provider._client is not None
    inits = [name for name in left_by(provider._client.process.pid) if name.isdigit()]
    assert inits == []


async def test_a_killed_launcher_takes_its_sandboxes_along(provider: NamespaceProvider) -> None:
    sandbox = await provider.open()
    running = asyncio.create_task(sandbox.run("echo $$; sleep 600"))
    while await sandbox.count() == 0:
        await asyncio.sleep(0.01)
    client = provider._client
    assert client is not None
    inits = left_by(client.process.pid)
    os.kill(client.process.pid, signal.SIGKILL)
    with pytest.raises(InfrastructureError):
        await running
    with pytest.raises(InfrastructureError):
        await sandbox.count()
    await sandbox.close()
    client.close()
    for pid in filter(str.isdigit, inits):
        while Path(f"/proc/{pid}").exists():
            await asyncio.sleep(0.01)
    again = await provider.open()  # a new launcher; it removes the groups of the dead one
    assert await output(again, "echo again") == "again\n"
    assert left_by(client.process.pid) == []
    await again.close()


async def test_the_launcher_goes_when_its_owner_is_killed(tmp_path: Path) -> None:
    code = f"""
import asyncio, os
from pathlib import Path
from agentrl.sandbox.base import Limits
from agentrl.sandbox.namespaces import NamespaceProvider
from agentrl.sandbox.trees import host_tree
async def main():
    provider = NamespaceProvider(host_tree(Path({str(tmp_path)!r})), Limits())
    await provider.check()
    await (await provider.open()).run('sleep 600 &')
    print(provider._client.process.pid, flush=True)
    os.kill(os.getpid(), 9)
asyncio.run(main())
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE
    )
    if "UnavailableError" in done.stderr:
        pytest.skip(done.stderr.splitlines()[-1])
    launcher = int(done.stdout)
    while Path(f"/proc/{launcher}").exists():
        await asyncio.sleep(0.01)
    assert left_by(launcher) == []


def test_a_user_without_privileges_has_sandboxes_too(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("the tests above run without privileges already")
    python = Path("/usr/bin/python3")
    if not python.exists():
        pytest.skip("no Python that other users may run")
    package = tmp_path / "agentrl"
    shutil.copytree(ROOT / "agentrl" / "sandbox", package / "sandbox")
    for name in ("__init__.py", "errors.py"):
        shutil.copy(ROOT / "agentrl" / name, package)
    for folder in [tmp_path, *list(tmp_path.parents)[:3]]:
        folder.chmod(folder.stat().st_mode | 0o055)
    (tmp_path / "cache").mkdir()
    os.chown(tmp_path / "cache", 65534, 65534)
    code = f"""
import sys; sys.path.insert(0, {str(tmp_path)!r})
import asyncio
from pathlib import Path
from agentrl.sandbox.base import Limits
from agentrl.sandbox.files import File
from agentrl.sandbox.namespaces import NamespaceProvider
from agentrl.sandbox.trees import host_tree
async def main():
    provider = NamespaceProvider(host_tree(Path({str(tmp_path / "cache")!r})), Limits())
    sandbox = await provider.open()
    await sandbox.put([File('/srv/x', b'1')])
    print((await sandbox.run('id -u; cat /srv/x; echo; cat /proc/self/uid_map; mount -t tmpfs x /mnt')).output)
    copy = await sandbox.copy()
    print((await copy.get(['/srv/x']))['/srv/x'].content)
    await copy.close(); await sandbox.close(); await provider.close()
asyncio.run(main())
"""
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    done = subprocess.run(
        [python, "-I", "-c", code], capture_output=True, text=True, timeout=PATIENCE, user=65534, group=65534,
        extra_groups=[], env=environment, cwd="/",
    )  # fmt: skip
    if "UnavailableError" in done.stderr:
        pytest.skip(done.stderr.splitlines()[-1])
    # one id only; what it stands for shows as the launcher's own root
    assert done.stdout.split() == ["0", "1", "0", "0", "1", "b'1'"], done.stderr
