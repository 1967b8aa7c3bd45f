"""An environment of its own for the real packages, and their processes.

`AGENTRL_INTEROP_PYTHON` names its interpreter; without it the environment is made, once a test run.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

HERE = Path(__file__).parent
PACKAGES = ("agentrl-worker==0.4.0", "agentrl-eval==0.1.2")
CHECK = "from importlib.metadata import version as v; print(v('agentrl-worker'), v('agentrl-eval'))"


def _versions(python: str) -> str:
    done = subprocess.run(
        [python, "-c", CHECK], capture_output=True, text=True, timeout=120, cwd="/"
    )
    return done.stdout.strip()


@pytest.fixture(scope="session")
def interop_python(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    given = os.environ.get("AGENTRL_INTEROP_PYTHON")
    if given is None:
        folder = tmp_path_factory.mktemp("interop") / "venv"
        given = str(folder / "bin" / "python")
        for command in (
            [sys.executable, "-m", "venv", str(folder)],
            [given, "-m", "pip", "install", "-q", "--disable-pip-version-check", *PACKAGES],
        ):
            done = subprocess.run(command, capture_output=True, text=True, timeout=1200)
            if done.returncode:
                pytest.skip(f"the real packages cannot be installed: {done.stderr[-500:]}")
    assert _versions(given) == "0.4.0 0.1.2"
    yield given


def environment(**more: str) -> dict[str, str]:
    """Nothing of ours on the path: both packages are called agentrl."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "AGENTRL"))}
    return {**kept, "PYTHONUNBUFFERED": "1", "NO_PROXY": "127.0.0.1,localhost", **more}


class Official:
    """Runs the real packages. Everything it starts is killed with it."""

    def __init__(self, python: str, folder: Path) -> None:
        self.python, self.folder = python, folder
        self.port = 0

    @asynccontextmanager
    async def worker(self, controller, kind="Quiz", name="quiz-std", concurrency=16, port=0):
        """`controller`: as the worker is given it. Yields the process."""
        port = port or free_port()
        config = self.folder / f"{name}-{port}.json"
        parameters = {"name": name, "concurrency": concurrency}
        config.write_text(
            json.dumps({name: {"module": f"official_quiz.{kind}", "parameters": parameters}})
        )
        command = [
            *(self.python, "-m", "agentrl.worker", name, "--config", str(config)),
            *("--controller", controller, "--self", f"http://127.0.0.1:{port}/api"),
            *("--host", "127.0.0.1", "--port", str(port)),
        ]
        with (self.folder / f"worker-{port}.log").open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                *command, stdout=log, stderr=log, env=environment(PYTHONPATH=str(HERE)), cwd="/"
            )
        try:
            yield process
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()

    async def evaluate(self, controller_url, *options, limit=900.0):
        """Run agentrl-eval to its end; returns its rows by (model, index, run), and what it said."""
        output = self.folder / "results"
        command = [
            *(self.python, "-m", "agentrl.eval", "-c", f"{controller_url}/api"),
            *("--output", str(output), "--no-interactive", *options),
        ]
        process = await asyncio.create_subprocess_exec(
            *command,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env=environment(),
            cwd=self.folder,
        )
        try:
            async with asyncio.timeout(limit):
                said, _ = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        text = said.decode("utf-8", "replace")
        assert process.returncode == 0, text[-2000:]
        self.results = max(output.iterdir(), key=lambda path: path.stat().st_mtime_ns)
        lines = (self.results / "results.jsonl").read_text().splitlines()
        rows = [json.loads(line) for line in lines]
        return {(row["model"], index_of(row), row["run"]): row for row in rows}, text


def index_of(row):
    index = row["index"]
    return index["int_value"] if index["int_value"] is not None else index["str_value"]


def free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture
def official(interop_python: str, tmp_path: Path) -> Official:
    return Official(interop_python, tmp_path)
