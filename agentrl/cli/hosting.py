"""`agentrl controller` and `agentrl worker TASK`: options in, settings out. Imports nothing heavy."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import typer
from pydantic import BaseModel, ValidationError

from agentrl.config import load
from agentrl.config.models import TaskConfig
from agentrl.errors import AgentRLError, ConfigError

Model = TypeVar("Model", bound=BaseModel)
LogFormat = Literal["text", "json"]

Host = Annotated[str, typer.Option(help="Address to listen on.")]
LogOption = Annotated[LogFormat, typer.Option("--log", help="Format of the log on stderr.")]
Ca = Annotated[
    Path | None, typer.Option(help="PEM file of whom to trust, besides the public ones.")
]
Certificate = Annotated[Path | None, typer.Option("--tls-certificate", help="PEM file.")]
Key = Annotated[Path | None, typer.Option("--tls-key", help="PEM file.")]


def controller(
    host: Host = "127.0.0.1",
    port: Annotated[int, typer.Option(help="For clients, HTTP workers, the dashboard.")] = 5020,
    grpc_port: Annotated[int, typer.Option(help="For workers over gRPC; -1: none.")] = 5022,
    state: Annotated[
        Path | None, typer.Option(help="File of what outlives a restart; 'none': nothing does.")
    ] = Path("state/controller.sqlite"),
    wait: Annotated[float, typer.Option(help="Seconds a start may wait for a slot.")] = 3600,
    queued: Annotated[int, typer.Option(help="Starts of a task that may wait.")] = 10_000,
    start: Annotated[float, typer.Option(help="Seconds a worker may take to start.")] = 600,
    call: Annotated[float, typer.Option(help="Seconds a worker may take for a turn.")] = 600,
    idle: Annotated[float, typer.Option(help="Seconds without a call that end a session.")] = 900,
    silent_after: Annotated[float, typer.Option(help="Seconds without a heartbeat.")] = 20,
    lost_after: Annotated[float, typer.Option(help="Then its sessions end as failed.")] = 60,
    ca: Ca = None,
    tls_certificate: Certificate = None,
    tls_key: Key = None,
    log_format: LogOption = "json",
) -> None:
    """Route episodes to workers: HTTP for clients and workers, gRPC for workers, a dashboard at /.

    The token that callers must give is read from AGENTRL_TOKEN; without one, only this machine is served.
    """
    settings_class = _import("settings", "ControllerSettings")
    settings = _settings(
        settings_class,
        host=host,
        port=port,
        grpc_port=None if grpc_port < 0 else grpc_port,
        state=None if state is None or str(state) == "none" else state,
        wait=wait,
        queued=queued,
        start=start,
        call=call,
        idle=idle,
        silent_after=silent_after,
        lost_after=lost_after,
        ca=ca,
        certificate=tls_certificate,
        private_key=tls_key,
        token=os.environ.get("AGENTRL_TOKEN") or None,
    )
    _logging(log_format)
    _run(_import("controller", "run_controller")(settings))


def worker(
    task: Annotated[str, typer.Argument(help="Task to serve, as in the config.")],
    split: Annotated[str, typer.Option(help="Of its samples; served as TASK-SPLIT.")] = "std",
    config: Annotated[
        Path | None, typer.Option(help="YAML file with the task's settings; default: its own.")
    ] = None,
    to: Annotated[
        str, typer.Option("--controller", help="http://host:port/api, or grpc://host:port.")
    ] = "http://127.0.0.1:5020/api",
    host: Host = "127.0.0.1",
    port: Annotated[int, typer.Option(help="HTTP; each further process takes the next.")] = 5021,
    address: Annotated[
        str | None, typer.Option("--self", help="Where the controller reaches this worker.")
    ] = None,
    concurrency: Annotated[int, typer.Option(help="Sessions of each process.")] = 16,
    processes: Annotated[int, typer.Option(min=1, help="Processes, each a worker.")] = 1,
    seed: Annotated[int, typer.Option(min=0, help="For episodes whose client gives none.")] = 0,
    empty_message_renews: Annotated[
        bool, typer.Option(help="An empty message is no turn (agentrl-eval --controller-renew).")
    ] = False,
    ca: Ca = None,
    tls_certificate: Certificate = None,
    tls_key: Key = None,
    log_format: LogOption = "json",
) -> None:
    """Serve the episodes of a task to a controller. The token is read from AGENTRL_TOKEN."""
    given: dict[str, Any] = {
        "controller": to,
        "host": host,
        "port": port,
        "address": address,
        "concurrency": concurrency,
        "empty_message_renews": empty_message_renews,
        "ca": ca,
        "certificate": tls_certificate,
        "private_key": tls_key,
        "token": os.environ.get("AGENTRL_TOKEN") or None,
    }
    if processes > 1 and address is not None:
        raise ConfigError("--self names one process; leave it out with --processes")
    _settings(_import("settings", "WorkerSettings"), **given)
    arguments = (task, split, config, given, seed, log_format)
    if processes == 1:
        _one_worker(*arguments, 0)
    else:
        _logging(log_format)
        _import("worker_process", "supervise")(partial(_one_process, *arguments), processes)


def _one_worker(
    name: str,
    split: str,
    config: Path | None,
    given: dict[str, Any],
    seed: int,
    log_format: LogFormat,
    place: int,
) -> None:
    from agentrl.tasks.registry import create_task

    _logging(log_format)
    port = given["port"] + place if given["port"] else 0
    settings = _settings(_import("settings", "WorkerSettings"), **{**given, "port": port})
    whole = None if config is None else load([config])
    if whole is not None and name not in whole.tasks:
        raise ConfigError(f"task {name!r}: not in {config}; it has {', '.join(whole.tasks)}")
    task_config = TaskConfig() if whole is None else whole.tasks[name]
    root = None if whole is None else whole.data_root
    run = _import("worker_process", "run_worker")
    _run(run(lambda: create_task(name, task_config, root), split, settings, seed))


def _one_process(*arguments: Any) -> None:
    try:
        _one_worker(*arguments)
    except AgentRLError as error:
        sys.exit(f"error: {error}")


def _settings(model: type[Model], **values: Any) -> Model:
    try:
        return model(**values)
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0]).replace("_", "-") if first["loc"] else "settings"
        shown = "" if name == "token" else f" (got {first['input']!r})"
        raise ConfigError(f"--{name}: {first['msg']}{shown}") from None


def _import(module: str, name: str) -> Any:
    from importlib import import_module

    try:
        return getattr(import_module(f"agentrl.hosting.network.{module}"), name)
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"{error.name} is not installed: pip install 'agentrl-reproducible[hosting]'"
        ) from None


def _logging(log_format: LogFormat) -> None:
    handler = logging.StreamHandler(sys.stderr)
    if log_format == "json":
        handler.setFormatter(_import("watch", "JsonLines")())
    else:
        handler.setFormatter(logging.Formatter("%(asctime)s %(name)s %(levelname)s %(message)s"))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO)
    for noisy in ("uvicorn", "grpc", "asyncio"):
        logging.getLogger(noisy).setLevel(logging.WARNING)


def _run(main: Any) -> None:
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main)
