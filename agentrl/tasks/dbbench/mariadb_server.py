"""A private MariaDB server in a temporary folder, for tests and for users without one.

    with private_server() as options:
        backend = MysqlBackend(options)

It listens on a Unix socket only, needs no configuration file and no root, keeps its data in memory
where there is a /dev/shm, and is gone afterwards, data and all. Needs the binaries `mariadbd` and `mariadb-install-db` (Debian: mariadb-server).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from agentrl.errors import InfrastructureError
from agentrl.tasks.dbbench.options import ServerOptions

START_SECONDS = 60.0
STOP_SECONDS = 30.0
_LOG_SIZE = "--innodb-log-file-size=8M"
_SYSTEM_FOLDERS = "/usr/sbin:/usr/local/sbin:/usr/libexec"


def find_binary(*names: str) -> str | None:
    """The first of `names` on PATH or in the usual folders for servers."""
    path = f"{os.environ.get('PATH', '')}{os.pathsep}{_SYSTEM_FOLDERS}"
    return next((found for name in names if (found := shutil.which(name, path=path))), None)


def available() -> bool:
    return bool(find_binary("mariadbd", "mysqld") and find_binary("mariadb-install-db"))


@contextmanager
def private_server(statement_timeout: float = 30.0) -> Iterator[ServerOptions]:
    """Start a server, give its address, stop it and remove its files."""
    server, install = find_binary("mariadbd", "mysqld"), find_binary("mariadb-install-db")
    if server is None or install is None:
        raise InfrastructureError(
            "no MariaDB server here: mariadbd and mariadb-install-db are needed "
            "(Debian: apt-get install mariadb-server)"
        )
    memory = Path("/dev/shm")
    fast = str(memory) if memory.is_dir() and os.access(memory, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="agentrl-mariadb-", dir=fast) as folder:
        data, socket = Path(folder, "data"), Path(folder, "s")
        owner = ["--user=root"] if os.geteuid() == 0 else []
        _install(install, data, owner)
        process = _start(server, data, socket, owner)
        try:
            yield ServerOptions(unix_socket=socket, statement_timeout=statement_timeout)
        finally:
            _stop(process)


def _install(install: str, data: Path, owner: list[str]) -> None:
    command = [install, "--no-defaults", f"--datadir={data}", "--skip-test-db",
               "--auth-root-authentication-method=normal", _LOG_SIZE, *owner]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=START_SECONDS)
    if done.returncode != 0:
        raise InfrastructureError(
            f"{install} failed: {(done.stderr or done.stdout).strip()[-300:]}"
        )


def _start(server: str, data: Path, socket: Path, owner: list[str]) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [
            server, "--no-defaults", f"--datadir={data}", f"--socket={socket}", "--skip-networking",
            f"--pid-file={data / 'server.pid'}", "--character-set-server=utf8mb4",
            "--innodb-buffer-pool-size=32M", _LOG_SIZE,
            "--innodb-flush-log-at-trx-commit=0", "--performance-schema=OFF", "--skip-log-bin",
            "--max-connections=256", *owner,
        ],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        errors="replace",
    )  # fmt: skip
    assert process.stderr is not None
    log: deque[str] = deque(maxlen=20)
    watchdog = threading.Timer(START_SECONDS, process.kill)
    watchdog.start()
    try:
        for line in process.stderr:
            log.append(line)
            if "ready for connections" in line:
                break
        else:
            process.wait()
            process.stderr.close()
            raise InfrastructureError(f"{server} did not start: {''.join(log).strip()[-500:]}")
    finally:
        watchdog.cancel()
    threading.Thread(target=_drain, args=(process.stderr,), daemon=True).start()
    return process


def _drain(stream: IO[str]) -> None:
    """Read the log to its end, so that the server never blocks on a full pipe."""
    with stream:
        for _ in stream:
            pass


def _stop(process: subprocess.Popen[str]) -> None:
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
