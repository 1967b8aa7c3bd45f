"""How fast the controller and its workers are, what they add, and whether they stay clean for long.

    bench_hosting.py ratio [--official PYTHON] [--seconds 10]
        our worker over the real one, and the controller over a plain FastAPI echo: interactions/s, in one run
    bench_hosting.py load [--sessions 2000] [--workers 8] [--seconds 60] [--hold 10000]
        that many sessions at once, then that many held open: errors, added latency, rate, memory
    bench_hosting.py soak [--minutes 20] [--every 5]
        a fault about every five seconds: started = ended, leaks, memory

Loopback only; every loop is bounded in time. Prints one JSON object a measurement.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import resource
import signal
import sys
import time
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import aiohttp

TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS), str(TESTS / "integration")]

from hosting_process import process  # noqa: E402
from interop.conftest import environment, free_port  # noqa: E402

SAY = json.dumps({"messages": [{"role": "assistant", "content": "Are you done?"}]}).encode()
JSON = {"content-type": "application/json"}


def client():
    return aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), headers=JSON)


def memory(pid):
    """Resident MiB of a process."""
    text = Path(f"/proc/{pid}/status").read_text()
    return round(int(text.split("VmRSS:")[1].split()[0]) / 1024, 1)


def percentiles(values):
    values = sorted(values)
    if not values:
        return None
    return {f"p{p}_ms": round(1000 * values[len(values) * p // 100], 2) for p in (50, 99)}


async def post(session, url, body, headers=None):
    async with session.post(url, data=body, headers=headers) as response:
        return response.status, await response.read(), response.headers


async def hammer(call, tasks, seconds):
    """Calls a second of `tasks` callers in turn, and how many failed."""
    end = time.perf_counter() + seconds
    done = failed = 0

    async def one(number):
        nonlocal done, failed
        while time.perf_counter() < end:
            if await call(number):
                done += 1
            else:
                failed += 1

    began = time.perf_counter()
    await asyncio.gather(*(one(number) for number in range(tasks)))
    return done / (time.perf_counter() - began), failed


async def direct_worker(url, seconds, tasks=32):
    """Interactions/s of a worker that is called directly: whole episodes of four turns."""
    async with client() as session:
        ids = iter(range(1, 10**9))

        live = {}

        async def call(number):
            if number not in live:
                live[number] = next(ids)
                body = json.dumps({"index": 3, "session_id": live[number]}).encode()
                status, _, _ = await post(session, f"{url}/start_sample", body)
                return status == 200
            body = b'{"session_id": %d, %s' % (live[number], SAY[1:])
            status, answer, _ = await post(session, f"{url}/interact", body)
            if status == 200 and b'"finish":true' in answer.replace(b" ", b""):
                del live[number]
            return status == 200

        return await hammer(call, tasks, seconds)


async def through_controller(url, seconds, tasks=32):
    async with client() as session:
        start = json.dumps({"name": "quiz-std", "index": 3}).encode()
        live = {}

        async def call(number):
            if number not in live:
                status, _, headers = await post(session, f"{url}/api/start_sample", start)
                if status == 200:
                    live[number] = headers["session_id"]
                return status == 200
            status, answer, _ = await post(
                session, f"{url}/api/interact", SAY, {"session_id": live[number]}
            )
            if status != 200 or b'"finish":true' in answer:
                del live[number]
            return status == 200

        return await hammer(call, tasks, seconds)


ECHO = """
import sys, uvicorn
from fastapi import FastAPI
app = FastAPI()
@app.post("/echo")
async def echo(body: dict) -> dict:
    return body
uvicorn.run(app, port=int(sys.argv[1]), log_level="warning", access_log=False)
"""


@asynccontextmanager
async def child(*command, **options):
    running = await asyncio.create_subprocess_exec(*command, **options)
    try:
        yield running
    finally:
        if running.returncode is None:
            running.kill()
        await running.wait()


async def answers(url, method="get", running=None):
    """Wait until `url` answers; `running` is the process that is to do so."""
    async with client() as session, asyncio.timeout(300):
        while running is None or running.returncode is None:
            try:
                async with session.request(method, url) as response:
                    await response.read()
                    return
            except aiohttp.ClientError:
                await asyncio.sleep(0.1)
    sys.exit(f"what was to answer at {url} ended with status {running.returncode}")


async def ratio(options):
    seconds = options.seconds
    async with AsyncExitStack() as stack:
        port, echo_port = free_port(), free_port()
        controller = {"port": free_port(), "grpc_port": free_port()}
        url = f"http://127.0.0.1:{controller['port']}"
        await stack.enter_async_context(child(sys.executable, "-c", ECHO, str(echo_port)))
        await stack.enter_async_context(process("controller", **controller))
        ours = {"port": port, "controller": f"{url}/api", "concurrency": 64}
        await stack.enter_async_context(process("worker", **ours))
        await answers(f"http://127.0.0.1:{echo_port}/docs")
        found = {}
        found["our worker"] = await direct_worker(f"http://127.0.0.1:{port}/api", seconds)
        if options.official:
            theirs = free_port()
            config = Path(options.folder) / "quiz.json"
            config.write_text(
                json.dumps(
                    {
                        "quiz-std": {
                            "module": "official_quiz.Quiz",
                            "parameters": {"name": "quiz-std", "concurrency": 64},
                        }
                    }
                )
            )
            command = [
                *(options.official, "-m", "agentrl.worker", "quiz-std", "--config", str(config)),
                *(
                    "--controller",
                    "http://127.0.0.1:9/api",
                    "--port",
                    str(theirs),
                    "--host",
                    "127.0.0.1",
                ),
                *("--log-level", "WARNING"),
            ]
            async with child(
                *command,
                env=environment(PYTHONPATH=str(TESTS / "interop")),
                cwd="/",  # nothing of ours on the path: both packages are called agentrl
                stdout=asyncio.subprocess.DEVNULL,
            ) as real:
                await answers(f"http://127.0.0.1:{theirs}/api/worker_status", running=real)
                found["the real worker"] = await direct_worker(
                    f"http://127.0.0.1:{theirs}/api", seconds
                )
        async with client() as session:

            async def echo(number):
                return (await post(session, f"http://127.0.0.1:{echo_port}/echo", SAY))[0] == 200

            found["FastAPI echo"] = await hammer(echo, 32, seconds)
        found["controller, worker over HTTP"] = await through_controller(url, seconds)
        for name, (rate, failed) in found.items():
            print(json.dumps({"what": name, "interactions_s": round(rate, 1), "failed": failed}))
        rates = {name: rate for name, (rate, _) in found.items()}
        if options.official:
            print(
                json.dumps(
                    {
                        "our worker / the real one": round(
                            rates["our worker"] / rates["the real worker"], 2
                        )
                    }
                )
            )
        over = rates["controller, worker over HTTP"] / rates["FastAPI echo"]
        print(json.dumps({"controller / FastAPI echo": round(over, 2)}))


async def load(options):
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    async with AsyncExitStack() as stack:
        controller = {"port": free_port(), "grpc_port": free_port()}
        url = f"http://127.0.0.1:{controller['port']}"
        target = f"grpc://127.0.0.1:{controller['grpc_port']}" if options.grpc else f"{url}/api"
        main = await stack.enter_async_context(process("controller", **controller, idle=3600))
        slots = -(-max(options.sessions, options.hold) // options.workers)
        workers = []
        for _ in range(options.workers):
            port = free_port()
            settings = {"port": port, "controller": target, "concurrency": slots}
            running = await stack.enter_async_context(process("worker", **settings))
            workers.append((running, f"http://127.0.0.1:{port}/api"))
        session = await stack.enter_async_context(client())
        start = json.dumps({"name": "quiz-std", "index": 3}).encode()
        taken, errors = [], 0
        end = time.perf_counter() + options.seconds

        async def play(number):
            nonlocal errors
            await asyncio.sleep(number / options.sessions)
            while time.perf_counter() < end:
                status, _, headers = await post(session, f"{url}/api/start_sample", start)
                finished = status != 200
                errors += finished
                while not finished:
                    began = time.perf_counter()
                    status, answer, _ = await post(
                        session, f"{url}/api/interact", SAY, {"session_id": headers["session_id"]}
                    )
                    taken.append(time.perf_counter() - began)
                    errors += status != 200
                    finished = status != 200 or b'"finish":true' in answer

        before = memory(main.pid)
        began = time.perf_counter()
        await asyncio.gather(*(play(number) for number in range(options.sessions)))
        rate = len(taken) / (time.perf_counter() - began)
        print(
            json.dumps(
                {
                    "sessions": options.sessions,
                    "interactions_s": round(rate, 1),
                    "errors": errors,
                    "latency_under_load": percentiles(taken),
                    "controller_mib": [before, memory(main.pid)],
                }
            )
        )
        # what the controller adds, where nothing waits for a processor: one call after the other
        added = {"direct": [], "controller": []}
        for turn in range(options.samples if not options.grpc else 0):
            for where in added:
                if where == "direct":
                    id_ = {"session_id": 10**12 + turn}
                    body = json.dumps({**id_, "index": 3}).encode()
                    await post(session, f"{workers[0][1]}/start_sample", body)
                    address, say, headers = (
                        workers[0][1],
                        json.dumps({**id_, **json.loads(SAY)}).encode(),
                        None,
                    )
                else:
                    _, _, given = await post(session, f"{url}/api/start_sample", start)
                    address, say, headers = f"{url}/api", SAY, {"session_id": given["session_id"]}
                for _ in range(4):
                    began = time.perf_counter()
                    await post(session, f"{address}/interact", say, headers)
                    added[where].append(time.perf_counter() - began)
        if added["direct"]:
            print(json.dumps({where: percentiles(values) for where, values in added.items()}))
        if options.hold:
            held, errors, room = [], 0, asyncio.Semaphore(200)

            async def hold():
                nonlocal errors
                async with room:
                    status, _, headers = await post(session, f"{url}/api/start_sample", start)
                    errors += status != 200
                    if status == 200:
                        held.append(headers["session_id"])

            await asyncio.gather(*(hold() for _ in range(options.hold)))
            async with session.get(f"{url}/api/overview") as response:
                live = (await response.json())["live"]
            print(
                json.dumps(
                    {
                        "held": live,
                        "errors": errors,
                        "controller_mib": memory(main.pid),
                        "worker_mib": memory(workers[0][0].pid),
                    }
                )
            )


async def soak(options):
    """Faults: a worker is killed, stopped for a while, a client hangs up, a cancel in mid-turn, the
    controller is restarted. Sessions that nobody ends are ended by the idle time-out."""
    draw = random.Random(options.seed)
    state = Path(options.folder) / "soak.sqlite"
    ports = {"port": free_port(), "grpc_port": free_port()}
    url = f"http://127.0.0.1:{ports['port']}"
    timers = {
        "idle": 20,
        "silent_after": 4,
        "lost_after": 10,
        "sync": 5,
        "cancel": 10,
        "call": 30,
        "wait": 60,
    }
    stop = asyncio.Event()
    faults, seen = {}, {}
    workers: dict[int, object] = {}
    stacks: dict[str, AsyncExitStack] = {}

    async def run(name, role, **settings):
        stack = AsyncExitStack()
        running = await stack.enter_async_context(process(role, **settings))
        stacks[name] = stack
        return running

    async def start_controller():
        workers[-1] = await run("controller", "controller", **ports, state=str(state), **timers)

    async def start_worker(place):
        target = f"{url}/api" if place % 2 else f"grpc://127.0.0.1:{ports['grpc_port']}"
        settings = {"controller": target, "port": 0, "concurrency": 16, "heartbeat": 1.0}
        workers[place] = await run(f"worker {place}", "worker", **settings)

    await start_controller()
    for place in range(4):
        await start_worker(place)
    session = client()

    async def play():
        while not stop.is_set():
            try:
                async with asyncio.timeout(draw.uniform(0.5, 60)):
                    body = json.dumps({"name": "quiz-std", "index": draw.randrange(200)}).encode()
                    status, _, headers = await post(session, f"{url}/api/start_sample", body)
                    finished = status != 200
                    id_ = {"session_id": headers.get("session_id", "")}
                    while not finished:
                        if draw.random() < 0.02:
                            await post(session, f"{url}/api/cancel", None, id_)
                        status, answer, _ = await post(session, f"{url}/api/interact", SAY, id_)
                        finished = status != 200 or b'"finish":true' in answer
                        await asyncio.sleep(draw.uniform(0, 0.2))
                    seen[status] = seen.get(status, 0) + 1
                    if status >= 400:
                        await asyncio.sleep(0.5)
            except TimeoutError:
                seen["hung up"] = seen.get("hung up", 0) + 1
            except aiohttp.ClientError:
                seen["no controller"] = seen.get("no controller", 0) + 1
                await asyncio.sleep(0.5)

    async def fault():
        kind = draw.choices(["kill", "stop", "terminate", "restart"], [4, 4, 2, 1])[0]
        faults[kind] = faults.get(kind, 0) + 1
        place = draw.randrange(4)
        if kind == "restart":
            workers[-1].send_signal(draw.choice([signal.SIGKILL, signal.SIGTERM]))
            await workers[-1].wait()
            await stacks["controller"].aclose()
            await start_controller()
        elif kind == "stop":
            workers[place].send_signal(signal.SIGSTOP)
            await asyncio.sleep(draw.uniform(1, 15))
            workers[place].send_signal(signal.SIGCONT)
        else:
            workers[place].send_signal(signal.SIGKILL if kind == "kill" else signal.SIGTERM)
            await workers[place].wait()
            await stacks[f"worker {place}"].aclose()
            await start_worker(place)

    players = [asyncio.create_task(play()) for _ in range(options.players)]
    end = time.monotonic() + 60 * options.minutes
    sizes = []
    while time.monotonic() < end:
        await asyncio.sleep(options.every)
        await fault()
        sizes.append(memory(workers[-1].pid))
    stop.set()
    await asyncio.wait(players, timeout=120)
    for player in players:
        player.cancel()
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        async with session.get(f"{url}/api/overview") as response:
            overview = await response.json()
        busy = [w for w in overview["workers"] if w["live"] or w["stuck"] or w["comparing"]]
        if not overview["live"] and not busy:
            break
        await asyncio.sleep(1)
    (task,) = overview["tasks"]
    ended = sum(task["ends"].values())
    print(
        json.dumps(
            {
                "minutes": options.minutes,
                "faults": faults,
                "started": task["started"],
                "ended": ended,
                "by_cause": task["ends"],
                "live": overview["live"],
                "stuck": sum(w["stuck"] for w in overview["workers"]),
                "clients_saw": {str(k): v for k, v in seen.items()},
                "controller_mib": sizes[:1] + sizes[-1:],
                "most_mib": max(sizes),
            }
        )
    )
    await session.close()
    for stack in stacks.values():
        await stack.aclose()
    if task["started"] != ended + overview["live"] or overview["live"]:
        raise SystemExit("sessions are unaccounted for")


def main():
    import tempfile

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("ratio")
    one.add_argument("--official", default=os.environ.get("AGENTRL_INTEROP_PYTHON"))
    one.add_argument("--seconds", type=float, default=10)
    one.set_defaults(run=ratio)
    one = commands.add_parser("load")
    one.add_argument("--sessions", type=int, default=2000)
    one.add_argument("--workers", type=int, default=8)
    one.add_argument("--seconds", type=float, default=60)
    one.add_argument("--samples", type=int, default=200)
    one.add_argument("--hold", type=int, default=10_000)
    one.add_argument("--grpc", action="store_true")
    one.set_defaults(run=load)
    one = commands.add_parser("soak")
    one.add_argument("--minutes", type=float, default=20)
    one.add_argument("--every", type=float, default=5)
    one.add_argument("--players", type=int, default=40)
    one.add_argument("--seed", type=int, default=0)
    one.set_defaults(run=soak)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        options.folder = folder
        asyncio.run(options.run(options))


if __name__ == "__main__":
    main()
