"""Where a number comes from: commit, versions, machine, settings, and a digest of the code.

`code_digest` reads what the interpreter would run, so that comments, docstrings and layout do not
count: an edit to them neither trains again nor discards saved state (no source reads `__doc__`).
"""

from __future__ import annotations

import ast
import hashlib
import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from agentrl.errors import ConfigError

PACKAGE = Path(__file__).parent
DISTRIBUTIONS = ("torch", "transformers", "tokenizers", "numpy", "pyarrow", "snakemake")
FLOORS = {
    "base": ("training", "rollout", "tasks"),
    "clone": ("training", "rollout", "tasks"),
    "train": ("algorithms", "hosting", "pipeline", "rollout", "tasks", "training"),
    "evaluate": ("evaluation", "hosting", "rollout", "tasks"),
    "mixture": ("evaluation", "hosting", "rollout", "tasks"),
    "scaling": ("pipeline", "rollout"),
    "figures": ("reporting",),
}
"""Packages whose code decides the numbers of each kind of stage (`agentrl.config.stages`)."""
COMMON = ("messages.py", "randomness.py")


def provenance(settings: Mapping[str, Any], **facts: Any) -> dict[str, Any]:
    """A record to lie beside a result; `facts` are added as they are (seconds, tokens, …)."""
    return {
        **repository_state(PACKAGE.parent),
        "settings": dict(settings),
        "settings_digest": settings_digest(settings),
        "versions": versions(),
        "machine": machine(),
        "written": datetime.now(UTC).isoformat(timespec="seconds"),
        **facts,
    }


def write_provenance(path: Path, settings: Mapping[str, Any], **facts: Any) -> None:
    """`provenance` as JSON, complete or not there at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    text = json.dumps(provenance(settings, **facts), indent=1, sort_keys=True, default=str)
    part.write_text(text + "\n", encoding="utf-8")
    part.replace(path)


def settings_digest(settings: Mapping[str, Any]) -> str:
    """16 hex digits; independent of the order of keys."""
    text = json.dumps(settings, sort_keys=True, default=str)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def repository_state(root: Path) -> dict[str, Any]:
    """Commit and whether tracked files differ from it; both None outside a git checkout."""

    def git(*arguments: str) -> str | None:
        command = ["git", "-C", str(root), *arguments]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=20)
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    commit = git("rev-parse", "HEAD")
    status = git("status", "--porcelain", "--untracked-files=no") if commit else None
    return {"commit": commit, "dirty": None if status is None else bool(status)}


def versions() -> dict[str, str]:
    """Of the interpreter, this package and the libraries that decide numbers."""
    found = {"python": platform.python_version()}
    for name in ("agentrl-reproducible", *DISTRIBUTIONS):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def machine() -> dict[str, Any]:
    """Processor, cores and GPUs; GPUs only where this process has torch loaded anyway."""
    torch = sys.modules.get("torch")
    gpus = (
        [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
        if torch is not None and torch.cuda.is_available()
        else []
    )
    return {
        "system": f"{platform.system()} {platform.machine()}",
        "processor": _processor(),
        "cores": os.cpu_count(),
        "gpus": gpus,
    }


def code_digest(stage: str, modules: Iterable[str] = ()) -> str:
    """Digest of the code that decides a stage's numbers: `algorithms:1f… hosting:a0… …`.

    `stage` is a name of `agentrl.config.stages` ("base", "clone-cloned", "train-multi-task",
    "evaluate") or "figures". One short digest a package, so that a changed one can be named.
    `modules` are further ones by name, where tasks of one's own live; raises `ConfigError` for one
    that cannot be found.
    """
    floors = FLOORS[stage.partition("-")[0]]
    parts = {floor: _digest_files(PACKAGE / floor) for floor in floors}
    parts["common"] = _digest(PACKAGE / name for name in COMMON)
    parts |= {name: _digest([_source(name)]) for name in sorted(set(modules))}
    return " ".join(f"{name}:{digest}" for name, digest in parts.items())


@cache
def _digest_files(folder: Path) -> str:
    # `hosting/network` is another process's and `evaluation/api` is not of the chain: no stage runs them.
    junk = {"__pycache__", ".ipynb_checkpoints", "network", "api"}
    return _digest(p for p in folder.rglob("*") if p.is_file() and not junk & set(p.parts))


def _digest(files: Iterable[Path]) -> str:
    state = hashlib.blake2b(digest_size=6)
    for path in sorted(files):
        content = path.read_bytes()
        if path.suffix == ".py":
            content = meaning(content.decode("utf-8")).encode()
        name = path.relative_to(PACKAGE).as_posix() if PACKAGE in path.parents else path.name
        state.update(f"{name}\0{len(content)}\0".encode() + content)
    return state.hexdigest()


def meaning(source: str) -> str:
    """Python source as its syntax tree, without comments, layout and docstrings."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            node.body = [part for part in node.body if not _is_text(part)]
    return ast.dump(tree)


def _source(module: str) -> Path:
    try:
        found = find_spec(module)
    except ImportError:
        found = None
    if found is None or found.origin is None:
        raise ConfigError(f"module {module!r} of a task's factory is not on the Python path")
    return Path(found.origin)


def _is_text(node: ast.stmt) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor())
