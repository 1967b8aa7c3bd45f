"""Snakemake in a copy of the repository, with or without a stand-in for `agentrl`."""

from __future__ import annotations

import sys
import sysconfig
import venv
from pathlib import Path

import pytest
from workflow_project import Snakemake, copy_repository, snakemake_in


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
