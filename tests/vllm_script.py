"""A scripted server that speaks what the engine needs of vLLM's HTTP API, and fails on request."""

import asyncio
import hashlib
import json
from pathlib import Path

from aiohttp import web
from safetensors import SafetensorError, safe_open


class ScriptedVllm:
    """`async with`. A token is (last id + 1) modulo 1000, its log-probability -id / 1000.

    Args:
        folder: of the weights that it starts with.
        die_after, hang_after: tokens of a completion after which the connection breaks, or nothing comes.
        model: name under which it serves.
        gate: if set, every token waits for `steps`.
    """

    def __init__(
        self, folder, *, model="policy", room=64, die_after=None, hang_after=None, gate=False
    ):
        self.folder, self.model, self.room = Path(folder), model, room
        self.die_after, self.hang_after = die_after, hang_after
        self.status = 200
        self.well = True
        self.requests, self.paths, self.salts = [], [], []
        self.ignores_reload = False
        self.running = 0
        self.steps = asyncio.Semaphore(0) if gate else None
        self.started = asyncio.Event()
        self._aborts = set()
        self._paused = False
        self._weights = _digest(self.folder)

    async def __aenter__(self):
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._serve)
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *_):
        await self._runner.cleanup()

    async def _serve(self, request):
        path = request.path
        self.paths.append(path)
        if path == "/health":
            return web.Response(status=200 if self.well else 503)
        if path == "/v1/models":
            return web.json_response({"data": [{"id": self.model, "max_model_len": self.room}]})
        if path == "/v1/completions":
            return await self._complete(request)
        if path == "/pause":
            self._paused = True
            for abort in self._aborts:
                abort.set()
            while self.running:  # noqa: ASYNC110
                await asyncio.sleep(0)
        elif path == "/resume":
            self._paused = False
        elif path == "/collective_rpc":
            body = await request.json()
            assert self._paused and body["method"] == "reload_weights"
            try:
                found = _digest(Path(body["kwargs"]["weights_path"]))
            except SafetensorError as error:
                return web.json_response({"error": {"message": str(error)}}, status=500)
            if not self.ignores_reload:
                self._weights = found
        elif path == "/weight_checker":
            return web.json_response({"checksums": {"w": self._weights}})
        elif path != "/reset_prefix_cache":
            return web.Response(status=404)
        return web.json_response({})

    async def _complete(self, request):
        body = await request.json()
        self.requests.append(body)
        if self.status != 200:
            return web.json_response({"error": {"message": "no KV space"}}, status=self.status)
        answer = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await answer.prepare(request)
        abort = asyncio.Event()
        self._aborts.add(abort)
        self.running += 1
        self.started.set()
        token, finish = body["prompt"][-1], None
        try:
            for place in range(body["max_tokens"]):
                if place == self.die_after:
                    self.well = False
                    request.transport.abort()
                    return answer
                if place == self.hang_after:
                    self.well = False
                    await asyncio.Event().wait()
                if self.steps is not None and not await _first(self.steps.acquire(), abort.wait()):
                    finish = "abort"
                    break
                token = (token + 1) % 1000
                stop = token in body["stop_token_ids"]
                last = stop or place + 1 == body["max_tokens"]
                finish = ("stop" if stop else "length") if last else None
                await _event(answer, [token], finish)
                if last:
                    break
        finally:
            self._aborts.discard(abort)
            self.running -= 1
        if finish == "abort":
            await _event(answer, [], finish)
        await answer.write(b"data: [DONE]\n\n")
        return answer


async def _first(work, other):
    """Whether `work` was done before `other`."""
    jobs = [asyncio.ensure_future(work), asyncio.ensure_future(other)]
    try:
        await asyncio.wait(jobs, return_when=asyncio.FIRST_COMPLETED)
        return not jobs[1].done()
    finally:
        for job in jobs:
            job.cancel()


async def _event(answer, ids, finish):
    found = {"token_logprobs": [-token / 1000 for token in ids]}
    choice = {"index": 0, "text": "", "token_ids": ids, "logprobs": found, "finish_reason": finish}
    await answer.write(f"data: {json.dumps({'choices': [choice]})}\n\n".encode())


def _digest(folder):
    with safe_open(folder / "model.safetensors", framework="pt") as opened:
        names = sorted(opened.keys())
        told = b"".join(opened.get_tensor(name).numpy().tobytes() for name in names)
    return hashlib.blake2b(told).hexdigest()
