# ruff: noqa: ASYNC110
"""Sandboxes of Docker, on a daemon of the tests' own: held in, limited, warm, given back; the same episodes."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import docker
import pytest
from docker_daemon import IMAGE, import_tree, missing, mounts_below, private_daemon
from hostile_commands import FAMILIES
from os_sandboxes import ROOT, TREES, debian, make, play_all, unsolved
from test_os_hostile import LIMITS as HOSTILE_LIMITS
from test_os_hostile import Host, attack_all

from agentrl.errors import InfrastructureError, UnavailableError
from agentrl.sandbox.base import BrokenSandbox, Limits
from agentrl.sandbox.docker import LABEL, DockerProvider
from agentrl.sandbox.files import File
from agentrl.sandbox.shell import Shell
from agentrl.sandbox.trees import debian_folder

LIMITS = Limits(memory=128 << 20, disk=32 << 20, processes=40, cpus=1.0)
TIMEOUT = 900.0


@pytest.fixture(scope="module")
def daemon() -> Iterator[str]:
    if (problem := missing()) is not None:
        pytest.skip(problem)
    debian()
    with private_daemon() as host:
        client = docker.DockerClient(host)
        import_tree(client, debian_folder(TREES))
        yield host
        assert client.containers.list(all=True) == [], "containers were left"
        assert [image.tags for image in client.images.list()] == [[f"{IMAGE}:latest"]]
        client.close()
    assert mounts_below(Path(host.removeprefix("unix://")).parent) == []


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine answers late; that must not look like a shell that does not answer."""
    monkeypatch.setattr("agentrl.sandbox.shell.INTERRUPT_SECONDS", TIMEOUT)
    monkeypatch.setattr("agentrl.sandbox.shell.START_SECONDS", TIMEOUT)


def provider_of(host: str, pool: int = 0, limits: Limits = LIMITS) -> DockerProvider:
    return DockerProvider({"default": IMAGE}, limits, host, pool)


@pytest.fixture
async def provider(daemon: str) -> AsyncIterator[DockerProvider]:
    made = provider_of(daemon)
    await made.check()
    yield made
    await made.close()


def containers(host: str) -> int:
    client = docker.DockerClient(host)
    try:
        return len(client.containers.list(all=True))
    finally:
        client.close()


async def test_a_container_is_held_in_and_limited(provider: DockerProvider) -> None:
    sandbox = await provider.open()
    seen = (
        await sandbox.run(
            "cat /proc/self/status; ls /sys/class/net; cat /proc/self/uid_map", timeout=TIMEOUT
        )
    ).output
    capabilities = int(re.search(r"CapBnd:\s+(\w+)", seen)[1], 16)  # type: ignore[index]
    for forbidden in (12, 13, 16, 17, 18, 19, 21, 22, 24, 25, 27):
        assert not capabilities >> forbidden & 1, forbidden
    assert re.search(r"Seccomp:\s+2", seen) and "eth" not in seen
    said = await sandbox.run("for i in $(seq 100); do sleep 300 & done", timeout=TIMEOUT)
    assert "fork: " in said.errors
    await sandbox.clear()
    assert await sandbox.count() == 0
    said = await sandbox.run("head -c 400000000 /dev/zero | tail | wc -c", timeout=TIMEOUT)
    assert said.output != "400000000\n"
    said = await sandbox.run(
        "head -c 40000000 /dev/zero > /root/big; ls -s /root/big", timeout=TIMEOUT
    )
    assert "File size limit" in said.errors or "too large" in said.errors
    await sandbox.close()


async def test_files_copies_and_the_end(provider: DockerProvider) -> None:
    sandbox = await provider.open()
    await sandbox.put(
        [File("/srv/a/b.txt", b"text", 0o640, 5, 6), File("/srv/l", target="a/b.txt")]
    )
    assert (
        await sandbox.run("cat /srv/l; stat -c %a%u%g /srv/a/b.txt", timeout=TIMEOUT)
    ).output == "text64056\n"
    assert "/srv/a/b.txt" in await sandbox.changed()
    copy = await sandbox.copy()
    assert (
        await copy.run("cat /srv/l; echo second > /srv/a/b.txt", timeout=TIMEOUT)
    ).output == "text"
    await sandbox.stop()
    found = await sandbox.get(["/srv", "/nowhere"])
    assert found["/srv/a/b.txt"].content == b"text" and found["/srv/l"].target == "a/b.txt"
    assert "/nowhere" not in found
    with pytest.raises(BrokenSandbox):
        await sandbox.run("echo")
    await copy.close()
    await sandbox.close()
    await sandbox.close()


async def test_one_shell_for_many_scripts(provider: DockerProvider) -> None:
    sandbox = await provider.open()
    shell = Shell(sandbox)
    await shell.run("x=5; cd /tmp; f() { echo f; }", TIMEOUT)
    assert (await shell.run("echo $x; pwd; f; cat", TIMEOUT)).output == "5\n/tmp\nf\n"
    long = "\n".join(f"echo 'line {i} {'x' * 200}'" for i in range(60))
    assert (await shell.run(long, TIMEOUT)).output.endswith(f"line 59 {'x' * 200}\n")
    assert "interrupted" in (await shell.run("sleep 600", 1.0)).note
    assert (await shell.run("echo $x", TIMEOUT)).output == "5\n"
    assert "the shell ended" in (await shell.run("sleep 600 & exit", TIMEOUT)).note
    assert (await shell.run("echo again", TIMEOUT)).output == "again\n"
    await shell.close()
    await sandbox.close()


async def test_a_container_that_writes_too_much_is_ended(provider: DockerProvider) -> None:
    if provider.quota:
        pytest.skip("this daemon has quotas")
    sandbox = await provider.open()
    shell = Shell(sandbox)
    script = "for i in 1 2 3; do head -c 20000000 /dev/zero > /root/f$i; done; sleep 600"
    reply = await shell.run(script, TIMEOUT)
    assert "the shell ended" in reply.note
    with pytest.raises(BrokenSandbox):
        await shell.run("echo", TIMEOUT)
    await sandbox.close()


async def test_warm_containers_are_ready_and_given_back(daemon: str) -> None:
    provider = provider_of(daemon, pool=2)
    await provider.check()
    while len(provider._warm) < 2:
        await asyncio.sleep(0.05)
    made = await asyncio.gather(*(provider.open() for _ in range(3)))
    assert len({sandbox.container.id for sandbox in made}) == 3
    await asyncio.gather(*(sandbox.close() for sandbox in made))
    await provider.close()
    assert containers(daemon) == 0


async def test_cancelled_starts_leave_no_container(daemon: str) -> None:
    provider = provider_of(daemon)
    await provider.check()
    starts = [asyncio.create_task(provider.open()) for _ in range(3)]
    await asyncio.sleep(0.05)
    for start in starts:
        start.cancel()
    assert all(
        isinstance(result, asyncio.CancelledError)
        for result in await asyncio.gather(*starts, return_exceptions=True)
    )
    await provider.close()
    assert containers(daemon) == 0


async def test_what_a_killed_process_left_is_removed(daemon: str, provider: DockerProvider) -> None:
    host = provider.owner.partition("/")[0]
    for owner in (f"{host}/999999999", f"elsewhere/{os.getpid()}", f"{host}/{os.getpid()}"):
        provider.client.containers.create(IMAGE, ["true"], labels={LABEL: owner})
    second = provider_of(daemon)
    await second.check()
    left = provider.client.containers.list(all=True, filters={"label": LABEL})
    assert sorted(container.labels[LABEL] for container in left) == sorted(
        [f"elsewhere/{os.getpid()}", f"{host}/{os.getpid()}"]
    )
    for container in left:
        container.remove()
    await second.close()


async def test_what_is_missing_is_said_in_one_line(daemon: str, tmp_path: Path) -> None:
    for provider, text in (
        (DockerProvider({"default": "no/such"}, LIMITS, daemon), "Docker has no image 'no/such'"),
        (provider_of(f"unix://{tmp_path}/none"), "no Docker daemon answers at"),
    ):
        with pytest.raises(UnavailableError, match=text) as caught:
            await provider.check()
        assert "\n" not in str(caught.value)
        await provider.close()


def options(host: str, **more: Any) -> dict[str, Any]:
    return {"sandbox": "docker", "docker_host": host, "images": {"default": IMAGE}, "pool": 2,
            **more}  # fmt: skip


@pytest.mark.parametrize("level", ["easy", "hard"])
async def test_the_expert_solves_what_is_generated(daemon: str, level: str) -> None:
    task = make(options(daemon), level=level)
    played = await play_all(task, [task.samples("train")[i] for i in range(25)], together=2)
    await task.close()
    assert unsolved(played) == set()


@pytest.mark.skipif(not (ROOT / "os_interaction").is_dir(), reason=f"no official records in {ROOT}")
async def test_official_records_with_their_examples(daemon: str) -> None:
    """A few of every folder: 98 of 100, of those that run without a network."""
    task = make(options(daemon), source="official", prompt="agentbench")
    stride = int(os.environ.get("AGENTRL_OS_STRIDE", "6"))
    samples = [*task.samples("std")[::stride], *task.samples("dev")[::stride]]
    samples += task.samples("train")[:: stride * 10]
    samples = [
        s for s in samples if (s.split, s.index) not in {("std", 52), ("std", 53), ("std", 55)}
    ]
    played = await play_all(task, samples, together=2)
    failed = [sample for sample in samples if (sample.split, sample.index) in unsolved(played)]
    again = unsolved(await play_all(task, failed, together=1))
    await task.close()
    print(
        f"\nofficial in Docker: {len(samples) - len(again)} of {len(samples)}; failed: {sorted(again)}"
    )
    for sample in failed:
        print(sample, played[sample])
    assert len(again) <= max(1, 0.02 * len(samples))


async def test_hostile_scripts_end_with_a_status(
    daemon: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of each family; most of the 500 run in namespaces, which start faster."""
    monkeypatch.setattr("agentrl.sandbox.shell.INTERRUPT_SECONDS", 1.0)
    host = Host(tmp_path)
    try:
        listed = [
            (family, member.replace("{secret}", str(host.secret)).replace("{port}", str(host.port)))
            for family, members in FAMILIES.items()
            for member in members[:: int(os.environ.get("AGENTRL_HOSTILE_STRIDE", "6"))]
        ]
        task = make(options(daemon, **HOSTILE_LIMITS))
        endings = await attack_all(task, listed, together=2)
        await task.close()
        host.check()
        print(f"\n{len(listed)} hostile scripts in Docker: {dict(endings)}")
    finally:
        host.close()


async def test_a_daemon_that_is_gone_is_infrastructure(daemon: str) -> None:
    provider = provider_of(daemon)
    await provider.check()
    sandbox = await provider.open()
    real, provider.client.api.base_url = provider.client.api.base_url, "http://127.0.0.1:1"
    provider.client.api._custom_adapter, adapter = None, provider.client.api._custom_adapter
    with pytest.raises(InfrastructureError):
        await sandbox.run("echo")
    provider.client.api.base_url, provider.client.api._custom_adapter = real, adapter
    await sandbox.close()
    await provider.close()
