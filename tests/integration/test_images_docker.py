"""Every image built by a daemon of ours, the stack of `compose.yaml` up, and an episode of each task in it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import docker
import image_seed
import pytest
from docker_daemon import missing, private_daemon
from typer.testing import CliRunner, Result

from agentrl import cli
from agentrl.config.models import TaskConfig
from agentrl.errors import AgentRLError, InfrastructureError
from agentrl.hosting.network.remote import RemoteController
from agentrl.images.contexts import describe
from agentrl.images.daemon import LABEL
from agentrl.messages import Status
from agentrl.tasks.base import Step
from agentrl.tasks.registry import TASKS, create_task

ROOT = Path(__file__).parents[2]
TOKEN, PASSWORD = "a-token-of-the-tests", "password1"
UP_SECONDS = 1500


@pytest.fixture(scope="module")
def client() -> Iterator[docker.DockerClient]:
    if (problem := missing() or image_seed.missing()) is not None:
        pytest.skip(problem)
    with private_daemon("10g") as host, pytest.MonkeyPatch.context() as patch:
        patch.setenv("DOCKER_HOST", host)
        with contextlib.closing(docker.DockerClient(host, timeout=600)) as made:
            image_seed.import_seed(made)
            yield made


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy, so that nobody edits the sources meanwhile."""
    place = tmp_path_factory.mktemp("repository")
    junk = shutil.ignore_patterns("__pycache__")
    for name in ("agentrl", "envs"):
        shutil.copytree(ROOT / name, place / name, ignore=junk)
    for name in ("pyproject.toml", "LICENSE"):
        shutil.copy(ROOT / name, place / name)
    return place


def images(repository: Path, *arguments: str) -> Result:
    command = ["images", *arguments, "--envs", str(repository / "envs")]
    done = CliRunner(env={"COLUMNS": "140"}).invoke(cli.app, command)
    if isinstance(done.exception, AgentRLError):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done


@pytest.fixture(scope="module")
def built(client: docker.DockerClient, repository: Path) -> dict[str, Any]:
    """Every image by name, as the daemon knows it."""
    images(repository, "build", "--network", "host", "--quiet")
    described = describe(repository / "envs")
    return {name: client.images.get(image.tag) for name, image in described.items()}


def test_every_image_says_what_it_is(built: dict[str, Any], repository: Path) -> None:
    described = describe(repository / "envs")
    for name, image in built.items():
        assert image.labels[LABEL] == described[name].context
        kept = {
            key.rpartition(".")[2] for key in image.labels if key.startswith("org.opencontainers.")
        }
        assert {"title", "description", "version"} <= kept
        assert set(image.tags) == {described[name].tag, f"agentrl/{name}:latest"}
        config = image.attrs["Config"]
        if not name.startswith("os-"):
            assert config["User"] in ("agentrl", "mysql", "virtuoso")
            assert name == "base" or config["Healthcheck"]["Test"][0].startswith("CMD")


def test_what_is_there_is_not_built_again(
    built: dict[str, Any], repository: Path, tmp_path: Path
) -> None:
    again = images(repository, "build", "webshop", "--manifest", str(tmp_path / "m.json"))
    base, webshop = (describe(repository / "envs")[name] for name in ("base", "webshop"))
    assert again.output == f"{base.tag}: there already\n{webshop.tag}: there already\n"
    assert json.loads((tmp_path / "m.json").read_text())["context"] == webshop.context
    listed = images(repository, "list").output
    assert listed.count("│ built ") == len(built)


def test_workers_hold_no_torch(client: docker.DockerClient, built: dict[str, Any]) -> None:
    code = "import importlib.util as u; print([m for m in ('torch', 'transformers', 'datasets') if u.find_spec(m)])"
    said = client.containers.run(
        built["webshop"], ["-c", code], entrypoint="python", network_mode="none", remove=True
    )
    assert said == b"[]\n"


# -- the stack


def compose() -> list[str]:
    """The command of whichever compose is here."""
    if shutil.which("docker-compose"):
        return ["docker-compose"]
    plugin = ["docker", "compose"]
    if (
        shutil.which("docker")
        and subprocess.run([*plugin, "version"], capture_output=True).returncode == 0
    ):
        return plugin
    pytest.skip("no docker-compose here (Debian: docker-compose)")


@pytest.fixture(scope="class")
def stack(client: docker.DockerClient, built: dict[str, Any], repository: Path) -> Iterator[str]:
    """`docker compose up`; the address of the controller's API."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    host = os.environ["DOCKER_HOST"]
    environment = {
        **os.environ, "AGENTRL_TOKEN": TOKEN, "AGENTRL_MYSQL_PASSWORD": PASSWORD, "DOCKER_GID": "0",
        "DOCKER_SOCKET": host.removeprefix("unix://"), "AGENTRL_PORT": str(port),
        "COMPOSE_PROJECT_NAME": "agentrltest",
    }  # fmt: skip
    command = [*compose(), "-f", str(repository / "envs" / "compose.yaml")]

    def call(*arguments: str) -> None:
        done = subprocess.run(
            [*command, *arguments],
            env=environment,
            capture_output=True,
            text=True,
            timeout=UP_SECONDS,
        )
        assert done.returncode == 0, done.stderr[-3000:] + logs(client)

    began = int(time.time())
    try:
        call("up", "-d")
        wait_until_healthy(client, since=began)
        yield f"http://127.0.0.1:{port}/api"
    finally:
        call("down", "-v", "-t", "120")
    assert client.containers.list(all=True) == [], "sandboxes were left"
    assert client.volumes.list() == []


def wait_until_healthy(client: docker.DockerClient, since: int) -> None:
    """Until every container that has a health check passed it once; the daemon tells when."""
    running = client.containers.list()
    waiting = {one.id for one in running if "Health" in one.attrs["State"]}
    wanted = {"event": "health_status", "type": "container"}
    with contextlib.closing(
        client.events(since=since, until=since + UP_SECONDS, filters=wanted, decode=True)
    ) as events:
        while waiting and (event := next(events, None)) is not None:
            if event["Action"].endswith(": healthy"):
                waiting.discard(event["id"])
    if waiting:
        pytest.fail(f"not healthy after {UP_SECONDS} s: {sorted(waiting)}{logs(client)}")


def logs(client: docker.DockerClient) -> str:
    return "".join(
        f"\n== {one.name} {one.status}\n{one.logs(tail=15).decode(errors='replace')}"
        for one in client.containers.list(all=True)
    )


async def play(address: str, name: str, index: int) -> Step:
    """The task's expert plays a sample that a container serves."""
    task = create_task(name, TaskConfig(prompt="agentbench"))  # as in stack.yaml; its own back ends
    sample = task.samples("std")[index]
    expert = task.expert(sample, seed=0)
    try:
        async with RemoteController(address, token=TOKEN) as client:
            opening = await client.start(sample, seed=0)
            new = opening.messages
            while True:
                step = await client.interact(opening.session, expert.act(new))
                new = step.messages
                if step.done:
                    return step
    finally:
        await task.close()


class TestStack:
    @pytest.mark.parametrize("task", TASKS)
    def test_an_episode_of_each_task_is_solved_in_its_container(
        self, stack: str, client: docker.DockerClient, task: str
    ) -> None:
        for index in (0, 7):
            try:
                step = asyncio.run(play(stack, task, index))
            except InfrastructureError as error:
                pytest.fail(f"{error}{logs(client)}")
            assert (step.status, step.reward) == (Status.COMPLETED, 1.0)

    def test_the_servers_behind_the_tasks_were_really_asked(
        self, stack: str, client: docker.DockerClient
    ) -> None:
        def inside(service: str, *command: str) -> str:
            [one] = client.containers.list(
                filters={"label": f"com.docker.compose.service={service}"}
            )
            status, said = one.exec_run(command)
            assert status == 0, said
            return str(said.decode())

        asyncio.run(play(stack, "dbbench", 1))
        query = "SHOW GLOBAL STATUS LIKE 'Com_create_table'"
        said = inside(
            "mariadb",
            "sh",
            "-c",
            f'mariadb --no-defaults -h 127.0.0.1 -u agentrl -p{PASSWORD} -N -e "{query}"',
        )
        assert int(said.split()[-1]) >= 1
        assert inside("virtuoso", "virtuoso-health") == ""
        graphs = inside("virtuoso", "sh", "-c", "ls /graphs; test -e /db/loaded")
        assert graphs == "std.nq\n"

    def test_nobody_comes_in_without_the_token(self, stack: str) -> None:
        import urllib.error
        import urllib.request

        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(f"{stack}/version", timeout=60)


# -- removing them again; last, because it does


def test_a_failing_build_is_one_line_and_leaves_nothing(
    client: docker.DockerClient, built: dict[str, Any], repository: Path
) -> None:
    folder = repository / "envs" / "broken"
    folder.mkdir()
    (folder / "Dockerfile").write_text(
        "ARG BASE=agentrl/os-default:latest\nFROM ${BASE}\nRUN echo about to fail && exit 7\n"
    )
    try:
        with pytest.raises(
            InfrastructureError, match=r"image broken cannot be built: .*code: 7.* about to fail"
        ):
            images(repository, "build", "broken", "--quiet")
    finally:
        shutil.rmtree(folder)
    assert client.containers.list(all=True) == []


def test_prune_removes_only_ours_that_are_out_of_date(
    client: docker.DockerClient, built: dict[str, Any], repository: Path, tmp_path: Path
) -> None:
    before = describe(repository / "envs")["os-packages"].tag  # of what the file says now
    (tmp_path / "Dockerfile").write_text("FROM agentrl/os-packages:latest\nENV OURS=no\n")
    theirs, _ = client.images.build(path=str(tmp_path), tag="someone/tool:1", rm=True)
    client.images.get("debian:bookworm-slim").tag(
        "agentrl/mine", "1"
    )  # their name, no label of ours
    theirs.tag("agentrl/another", "1")  # our name and our label, inherited
    dockerfile = repository / "envs" / "os-packages" / "Dockerfile"
    dockerfile.write_text(dockerfile.read_text() + "ENV EDITED=1\n")
    after = describe(repository / "envs")["os-packages"]
    images(repository, "build", "os-packages", "--network", "host", "--quiet")
    assert "1 images removed" in images(repository, "prune").output
    tags = {tag for image in client.images.list() for tag in image.tags}
    assert before not in tags and {after.tag, "agentrl/os-packages:latest"} <= tags
    assert client.images.get("agentrl/os-packages:latest").labels[LABEL] == after.context
    others = {"someone/tool:1", "agentrl/mine:1", "agentrl/another:1", "debian:bookworm-slim"}
    assert others <= tags

    used = client.containers.create(built["virtuoso"].id)
    said = images(repository, "prune", "--all").output
    virtuoso = describe(repository / "envs")["virtuoso"]
    assert f"{virtuoso.tag}: kept, " in said and f"{len(built) - 1} images removed" in said
    left = {tag for image in client.images.list() for tag in image.tags}
    assert left == {*others, virtuoso.tag}
    assert (
        client.containers.run("someone/tool:1", ["true"], network_mode="none", remove=True) == b""
    )
    used.remove(v=True)
    assert "1 images removed" in images(repository, "prune", "--all").output
