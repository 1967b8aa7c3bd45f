"""A copy of the repository to run Snakemake in, with or without a stand-in for `agentrl`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PARTS = (
    "agentrl",
    "config",
    "environment.yml",
    "notebooks",
    "published",
    "pyproject.toml",
    "workflow",
)
Snakemake = Callable[..., subprocess.CompletedProcess[str]]


def copy_repository(target: Path) -> Path:
    """The parts that Snakemake and its jobs read; nothing that rules have made."""
    junk = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for name in PARTS:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, target / name, ignore=junk)
        elif source.is_file():
            shutil.copy(source, target / name)
    return target


def snakemake_in(folder: Path, python: Path) -> Snakemake:
    """`snakemake(*arguments)` in `folder`; stdout and stderr come back together."""
    environment = {**os.environ, "MADE_RESULTS": str(ROOT / "tests"), "PYTHONPATH": str(folder)}

    def snakemake(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [str(python), "-m", "snakemake", *arguments]
        return subprocess.run(
            command,
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=1500,
        )

    return snakemake


@pytest.fixture(scope="session")
def fake_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python with our packages and, beside it, the stand-in as `agentrl`."""
    home = tmp_path_factory.mktemp("fake")
    venv.EnvBuilder(symlinks=True).create(home)
    site = next((home / "lib").glob("python*")) / "site-packages"
    packages = sysconfig.get_path("purelib")
    (site / "parent.pth").write_text(f"import site; site.addsitedir({packages!r})\n")
    script = home / "bin" / "agentrl"
    fake = Path(__file__).with_name("fake_agentrl.py")
    script.write_text(f'#!/bin/sh\nexec "{home}/bin/python" "{fake}" "$@"\n')
    script.chmod(0o755)
    return home / "bin" / "python"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh copy of the repository, one a test module."""
    return copy_repository(tmp_path_factory.mktemp("project"))


@pytest.fixture(scope="module")
def snakemake(project: Path) -> Snakemake:
    """The real thing, in `project`."""
    return snakemake_in(project, Path(sys.executable))


@pytest.fixture(scope="module")
def fake_snakemake(project: Path, fake_python: Path) -> Snakemake:
    """Snakemake whose jobs are the stand-in's, in `project`."""
    return snakemake_in(project, fake_python)
