"""Images in the workflow: built when their context changes, and asked for by nothing that does not need them."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_workflow_reruns import FIGURES, SMALL, dry_run, overlay
from workflow_project import Snakemake, snakemake_in

WORKERS = {"alfworld", "dbbench", "knowledgegraph", "os_interaction", "webshop", "controller"}
OTHERS = {"base", "mariadb", "virtuoso", "os-default", "os-packages"}
SANDBOXES = ("os-default", "os-packages")
DOCKER = "tasks: {os_interaction: {max_turns: 4, options: {sandbox: docker}}}\nwarm_start: {episodes_per_step: {os_interaction: 1}}\n"


@pytest.fixture(scope="module", autouse=True)
def built(fake_snakemake: Snakemake) -> None:
    done = fake_snakemake("--cores", "2", "images")
    assert done.returncode == 0, done.stdout[-3000:]


@pytest.fixture
def dockerfile(project: Path) -> Iterator[Path]:
    path = project / "envs" / "os-default" / "Dockerfile"
    kept = path.read_text()
    yield path
    path.write_text(kept)


def test_there_is_a_manifest_an_image(project: Path, fake_snakemake: Snakemake) -> None:
    manifests = {
        path.stem: json.loads(path.read_text()) for path in (project / "results/images").glob("*")
    }
    assert set(manifests) == WORKERS | OTHERS
    assert all(
        found["tag"] == f"agentrl/{name}:{found['context']}" for name, found in manifests.items()
    )
    assert dry_run(fake_snakemake, "images") == {}


def test_an_edit_builds_the_image_and_what_starts_from_it(
    project: Path, fake_snakemake: Snakemake, dockerfile: Path
) -> None:
    dockerfile.write_text(dockerfile.read_text() + "\nENV EDITED=1\n")
    assert dry_run(fake_snakemake, "images") == {"build_image": 2, "images": 1}


def test_an_edit_of_the_package_builds_what_installs_it(
    project: Path, fake_snakemake: Snakemake
) -> None:
    module = project / "agentrl" / "messages.py"
    kept = module.read_text()
    module.write_text(kept + "\nEDITED = 1\n")
    assert dry_run(fake_snakemake, "images") == {"build_image": len(WORKERS) + 1, "images": 1}
    module.write_text(kept)
    assert dry_run(fake_snakemake, "images") == {}


def test_embedded_back_ends_build_nothing(fake_snakemake: Snakemake) -> None:
    assert "build_image" not in dry_run(fake_snakemake, *SMALL)
    assert "build_image" not in dry_run(fake_snakemake, "--config", "scale=mini")


def test_settings_that_ask_for_containers_wait_for_their_images(
    project: Path, fake_snakemake: Snakemake, dockerfile: Path
) -> None:
    with_docker = overlay(project, DOCKER)
    done = fake_snakemake("--cores", "2", *with_docker)
    assert done.returncode == 0, done.stdout[-3000:]
    assert dry_run(fake_snakemake, *with_docker) == {}
    dockerfile.write_text(dockerfile.read_text() + "\nENV EDITED=1\n")
    again = dry_run(fake_snakemake, *with_docker)
    assert again["build_image"] == 2, "an image that others play in is another experiment"
    assert again["train_policy"] == 5 and again["evaluate_policy"] > 0
    assert set(FIGURES) <= set(again)


def test_without_a_daemon_the_job_says_so_in_one_line(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none")
    real = snakemake_in(project, Path(sys.executable))
    done = real("--cores", "1", "--forcerun", "build_image", "--", "results/images/virtuoso.json")
    assert done.returncode == 1
    line = f"error: no Docker daemon answers at unix://{tmp_path}/none: start one"
    assert line in done.stdout
    assert "the embedded back ends need no images" in done.stdout
    assert "Traceback" not in done.stdout
