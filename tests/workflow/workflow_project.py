"""A copy of the repository to run Snakemake in."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[2]
PARTS = (
    "agentrl",
    "config",
    "environment.yml",
    "envs",
    "LICENSE",
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
