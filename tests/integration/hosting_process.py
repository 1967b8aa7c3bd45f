"""A controller or a worker of the quiz as a process of its own: `hosting_process.py ROLE SETTINGS`."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
import threading
from contextlib import asynccontextmanager
from pathlib import Path

TESTS = Path(__file__).parents[1]


@asynccontextmanager
async def process(role, prefix=(), **settings):
    """Starts one, waits for its first line of output; kills it at the end if it lives still."""
    command = [*prefix, sys.executable, __file__, role, json.dumps(settings)]
    child = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(TESTS), "OMP_NUM_THREADS": "1"},
    )
    try:
        async with asyncio.timeout(300):
            child.said = (await child.stdout.readline()).decode()
        assert child.said, f"{role} ended with status {await child.wait()}"
        yield child
    finally:
        if child.returncode is None:
            child.kill()
        await child.wait()


def _end_with_parent():
    """Whoever started this holds our standard input open, until it ends, however it ends."""
    sys.stdin.buffer.read()
    os._exit(1)


def main(role, text):
    import uvloop
    from interop.quiz import QuizTask

    from agentrl.hosting.network.controller import run_controller
    from agentrl.hosting.network.settings import ControllerSettings, WorkerSettings
    from agentrl.hosting.network.worker_process import run_worker

    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    settings = json.loads(text)
    if role == "controller":
        serving = run_controller(ControllerSettings(**settings))
    else:
        serving = run_worker(QuizTask, "std", WorkerSettings(**settings), 0)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:  # as the commands do
        runner.run(serving)


if __name__ == "__main__":
    main(*sys.argv[1:])
