"""A private Virtuoso server in a temporary folder, for tests and for users without one.

    with private_server([quads_file]) as url:
        task = KnowledgeGraphTask(TaskConfig(options={"backend": "endpoint", "endpoint": {"url": url, ...}}))

It listens on two free ports of the loopback address, needs no root, keeps its data in memory where there is
a /dev/shm, and is gone afterwards, data and all.
Needs the binaries `virtuoso-t` and `isql-vt` (Debian: virtuoso-opensource-7-bin).
"""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
import tempfile
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from agentrl.errors import InfrastructureError

START_SECONDS = 180.0
LOAD_SECONDS = 300.0
ATTEMPTS = 3
"""A free port can be taken between the moment it was found and the start."""
PACKAGE = "Debian: apt-get install virtuoso-opensource-7-bin"
_READY = "Server online at"
_SETTINGS = """[Database]
DatabaseFile = {folder}/v.db
ErrorLogFile = {folder}/v.log
LockFile = {folder}/v.lck
TransactionFile = {folder}/v.trx
xa_persistent_file = {folder}/v.pxa
FileExtend = 200
[TempDatabase]
DatabaseFile = {folder}/t.db
TransactionFile = {folder}/t.trx
[Parameters]
ServerPort = 127.0.0.1:{sql}
CaseMode = 2
DisableUnixSocket = 1
MaxClientConnections = 16
CheckpointInterval = 0
DirsAllowed = {folder}
NumberOfBuffers = 10000
MaxDirtyBuffers = 6000
ThreadsPerQuery = 1
[HTTPServer]
ServerPort = 127.0.0.1:{http}
ServerRoot = {folder}
MaxClientConnections = 16
ServerThreads = 16
MaxKeepAlives = 16
KeepAliveTimeout = 10
Charset = UTF-8
[SPARQL]
ResultSetMaxRows = 100000
MaxQueryExecutionTime = {seconds}
"""


def available() -> bool:
    return bool(shutil.which("virtuoso-t") and shutil.which("isql-vt"))


@contextmanager
def private_server(quads: Sequence[Path] = (), seconds: int = 60) -> Iterator[str]:
    """Start a server, load N-Quads files, give the address of its SPARQL endpoint, stop it.

    `seconds` is the longest a query may take.
    """
    server, shell = shutil.which("virtuoso-t"), shutil.which("isql-vt")
    if server is None or shell is None:
        raise InfrastructureError(
            f"no Virtuoso here: virtuoso-t and isql-vt are needed ({PACKAGE})"
        )
    memory = Path("/dev/shm")
    fast = str(memory) if memory.is_dir() and os.access(memory, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="agentrl-virtuoso-", dir=fast) as name:
        folder, password = Path(name), f"p{secrets.token_hex(16)}"
        process, sql, http = _start(server, folder, seconds)
        try:
            _command(shell, sql, "dba", f"set password dba {password};\n")
            for number, path in enumerate(quads):
                copy = folder / f"{number}.nq"
                shutil.copyfile(path, copy)
                load = f"DB.DBA.TTLP_MT (file_open ('{copy}'), '', 'urn:agentrl', 512);\n"
                _command(shell, sql, password, f"log_enable (2);\n{load}checkpoint;\n")
            yield f"http://127.0.0.1:{http}/sparql"
        finally:
            process.kill()  # a gentle stop would first put data in order that is thrown away
            process.wait()


def _start(server: str, folder: Path, seconds: int) -> tuple[subprocess.Popen[str], int, int]:
    """(process, SQL port, HTTP port) of a server that answers."""
    said = ""
    for _ in range(ATTEMPTS):
        sql, http = _free_ports()
        settings = _SETTINGS.format(folder=folder, sql=sql, http=http, seconds=seconds)
        (folder / "v.ini").write_text(settings, encoding="utf-8")
        process = subprocess.Popen(
            [*_guard(), server, "+foreground", "+configfile", str(folder / "v.ini")],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            errors="replace", cwd=folder,
        )  # fmt: skip
        said = _wait(process)
        if not said:
            return process, sql, http
        (folder / "v.lck").unlink(missing_ok=True)
    raise InfrastructureError(f"{server} did not start: {said[-500:]}")


def _guard() -> list[str]:
    """Ends the server with the thread that started it, even where that one is killed."""
    guard = shutil.which("setpriv")
    return [guard, "--pdeathsig", "KILL"] if guard else []


def _wait(process: subprocess.Popen[str]) -> str:
    """ "" once the server is online; what it said, where it has ended instead."""
    assert process.stderr is not None
    log: deque[str] = deque(maxlen=20)
    watchdog = threading.Timer(START_SECONDS, process.kill)
    watchdog.start()
    try:
        for line in process.stderr:
            log.append(line)
            if _READY in line:
                threading.Thread(target=_drain, args=(process.stderr,), daemon=True).start()
                return ""
    except BaseException:
        process.kill()
        process.wait()
        raise
    finally:
        watchdog.cancel()
    process.wait()
    process.stderr.close()
    return "".join(log).strip() or "it said nothing"


def _free_ports() -> tuple[int, int]:
    with socket.socket() as first, socket.socket() as second:
        first.bind(("127.0.0.1", 0))
        second.bind(("127.0.0.1", 0))
        return first.getsockname()[1], second.getsockname()[1]


def _command(shell: str, port: int, password: str, script: str) -> None:
    done = subprocess.run(
        [shell, f"127.0.0.1:{port}", "dba", password, "VERBOSE=OFF", "ERRORS=STDOUT"],
        input=script, capture_output=True, text=True, errors="replace", timeout=LOAD_SECONDS,
    )  # fmt: skip
    if done.returncode != 0 or "*** Error" in done.stdout:
        raise InfrastructureError(f"{shell} failed: {(done.stderr + done.stdout).strip()[-500:]}")


def _drain(stream: IO[str]) -> None:
    """Read the log to its end, so that the server never blocks on a full pipe."""
    with stream:
        for _ in stream:
            pass
