"""A server that speaks the three protocols strictly, plays the echo task, and fails on request.

Requests are checked against the types of OpenAI's own package, and by hand for Anthropic's rules;
what breaks them is answered with 400, as the real endpoints do.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Callable
from typing import Any

from aiohttp import web
from openai.types.chat import completion_create_params
from openai.types.responses import response_create_params
from pydantic import TypeAdapter

KEY = "sk-test-0123456789"
CHAT = TypeAdapter(completion_create_params.CompletionCreateParamsNonStreaming)
RESPONSES = TypeAdapter(response_create_params.ResponseCreateParamsNonStreaming)

Call = tuple[str, str]
"""Name and arguments, as text."""


class BadRequest(Exception):
    pass


def echo(heard: list[str], turn: int) -> tuple[str, list[Call]]:
    """Solves the echo task: says the number, then stops."""
    word = "stop" if turn else heard[-1].split()[-1]
    return "Well.", [("say", json.dumps({"text": word}))]


class ApiServer:
    """`async with`; `faults` are used up in order, then everything is well."""

    def __init__(self, play: Callable[[list[str], int], tuple[str, list[Call]]] = echo) -> None:
        self.play = play
        self.faults: deque[str] = deque()
        self.requests: list[tuple[str, dict[str, str], dict[str, Any]]] = []
        self.problems: list[str] = []
        self.at_once = self.most_at_once = 0
        self.open = asyncio.Event()
        """While it is not set nobody is answered."""
        self.open.set()
        self._changed = asyncio.Event()
        self.served: str | None = None
        self.keys = {KEY}
        self._hung: list[asyncio.Future[None]] = []

    async def __aenter__(self) -> ApiServer:
        app = web.Application()
        for path, answer in (
            ("chat/completions", self._chat),
            ("responses", self._responses),
            ("messages", self._messages),
        ):
            app.router.add_post(f"/v1/{path}", self._handler(path, answer))
        self._runner = web.AppRunner(app, handle_signals=False, shutdown_timeout=1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}/v1"
        return self

    async def __aexit__(self, *error: object) -> None:
        for future in self._hung:
            future.cancel()
        await self._runner.cleanup()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for requests until `condition` holds."""
        while not condition():
            self._changed.clear()
            await self._changed.wait()

    def _handler(self, path: str, answer: Callable[[dict[str, Any]], dict[str, Any]]) -> Any:
        async def handle(request: web.Request) -> web.StreamResponse:
            body = await request.json()
            self.requests.append((path, dict(request.headers), body))
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
            self._changed.set()
            try:
                await self.open.wait()
                return await self._answer(request, body, answer)
            except BadRequest as problem:
                self.problems.append(f"{path}: {problem}")
                error = {"type": "invalid_request_error", "message": str(problem)}
                return web.json_response({"error": error}, status=400)
            finally:
                self.at_once -= 1

        return handle

    async def _answer(self, request: web.Request, body: dict[str, Any], answer: Any) -> Any:
        key = request.headers.get("x-api-key") or request.headers.get("authorization", "")[7:]
        fault = self.faults.popleft() if self.faults else ""
        if key not in self.keys:
            # Some endpoints repeat the key that they refuse.
            return web.json_response(
                {"error": {"message": f"Incorrect API key: {key}"}}, status=401
            )
        name, _, detail = fault.partition(" ")
        if name.isdecimal():
            headers = {"retry-after": detail} if detail else {}
            words = {"error": {"message": f"Told to fail, {key}", "code": detail}}
            return web.json_response(words, status=int(name), headers=headers)
        if name == "context":
            words = {"error": {"message": "This model's maximum context length is 8 tokens."}}
            return web.json_response(words, status=400)
        if name == "html":
            return web.Response(text="<html>Bad gateway</html>", content_type="text/html")
        if name == "half":
            return web.Response(text=json.dumps(answer(body))[:40], content_type="application/json")
        if name == "empty":
            return web.json_response({})
        if name == "error200":
            return web.json_response({"error": {"message": "upstream", "code": 502}})
        if name in ("cut", "cut-before"):
            if name == "cut":
                response = web.StreamResponse(headers={"content-length": "1000"})
                await response.prepare(request)
                await response.write(b'{"choices": [')
            assert request.transport is not None
            request.transport.abort()
            return web.Response()
        if name == "hang":
            self._hung.append(asyncio.get_running_loop().create_future())
            await self._hung[-1]
        said = answer(body)
        if name == "no-usage":
            del said["usage"]
        return web.json_response(said)

    def _chat(self, body: dict[str, Any]) -> dict[str, Any]:
        _check(CHAT, body)
        waiting: set[str] = set()
        heard: list[str] = []
        turn = 0
        for message in body["messages"]:
            if message["role"] == "tool":
                _expect(message["tool_call_id"] in waiting, "a result of no call")
                waiting.discard(message["tool_call_id"])
                heard.append(message["content"])
                continue
            _expect(not waiting, f"calls without a result: {waiting}")
            if message["role"] == "assistant":
                turn += 1
                for call in message.get("tool_calls") or ():
                    _object(call["function"]["arguments"])
                    waiting.add(_new_id(call["id"], waiting))
            else:
                heard.append(message["content"])
        text, calls = self.play(heard, turn)
        return {
            "id": "x",
            "model": self.served or body["model"],
            "choices": [
                {
                    "index": 0,
                    "finish_reason": "tool_calls" if calls else "stop",
                    "message": {
                        "role": "assistant",
                        "content": text,
                        "tool_calls": [
                            {
                                "id": f"functions.say:{n}",  # not an id that all protocols take
                                "type": "function",
                                "function": {"name": name, "arguments": arguments},
                            }
                            for n, (name, arguments) in enumerate(calls)
                        ],
                    },
                }
            ],
            "usage": {
                "prompt_tokens": 100,
                "completion_tokens": 10,
                "prompt_tokens_details": {"cached_tokens": 40},
            },
        }

    def _responses(self, body: dict[str, Any]) -> dict[str, Any]:
        _check(RESPONSES, body)
        _expect(body.get("store") is False, "something is to be stored")
        waiting: set[str] = set()
        heard: list[str] = []
        turn = 0
        spoke = False
        for item in body["input"]:
            kind = item.get("type", "message")
            by_model = kind in ("function_call", "reasoning") or item.get("role") == "assistant"
            turn += by_model and not spoke
            spoke = by_model
            if kind == "function_call":
                _object(item["arguments"])
                waiting.add(_new_id(item["call_id"], waiting))
            elif kind == "function_call_output":
                _expect(item["call_id"] in waiting, "an output of no call")
                waiting.discard(item["call_id"])
                heard.append(item["output"])
            elif kind == "message":
                heard.append(item["content"])
        _expect(not waiting, f"calls without an output: {waiting}")
        text, calls = self.play(heard, turn)
        output: list[dict[str, Any]] = [
            {
                "type": "reasoning",
                "id": f"rs_{turn}",
                "summary": [],
                "encrypted_content": "c2VjcmV0",
            },
            {
                "type": "message",
                "id": f"msg_{turn}",
                "role": "assistant",
                "status": "completed",
                "content": [{"type": "output_text", "text": text, "annotations": []}],
            },
        ]
        output += [
            {
                "type": "function_call",
                "id": f"fc_{turn}_{n}",
                "call_id": f"call_{turn}x{n}",
                "name": name,
                "arguments": arguments,
                "status": "completed",
            }
            for n, (name, arguments) in enumerate(calls)
        ]
        return {
            "id": "resp",
            "status": "completed",
            "model": self.served or body["model"],
            "output": output,
            "usage": {
                "input_tokens": 100,
                "input_tokens_details": {"cached_tokens": 40},
                "output_tokens": 10,
            },
        }

    def _messages(self, body: dict[str, Any]) -> dict[str, Any]:
        _expect(isinstance(body.get("max_tokens"), int), "max_tokens: Field required")
        roles = [message["role"] for message in body["messages"]]
        _expect(roles == ["user", "assistant"] * (len(roles) // 2) + ["user"], f"roles {roles}")
        waiting: list[str] = []
        heard: list[str] = []
        for message in body["messages"]:
            blocks = message["content"]
            _expect(bool(blocks), "content is empty")
            results = [b["tool_use_id"] for b in blocks if b["type"] == "tool_result"]
            if message["role"] == "user":
                _expect(results == waiting, f"results {results} of calls {waiting}")
                first = [block["type"] for block in blocks[: len(results)]]
                _expect(set(first) <= {"tool_result"}, "text before results")
            waiting = [b["id"] for b in blocks if b["type"] == "tool_use"]
            for block in blocks:
                if block["type"] == "text":
                    _expect(bool(block["text"].strip()), "text must not be blank")
                if block["type"] == "tool_use":
                    _expect(isinstance(block["input"], dict), "input: Input should be an object")
                heard.append(block.get("text") or block.get("content") or "")
        turn = len(roles) // 2
        text, calls = self.play([h for h in heard if h], turn)
        content: list[dict[str, Any]] = [
            {"type": "thinking", "thinking": f"thought {turn}", "signature": f"signed {turn}"}
        ]
        content += [{"type": "text", "text": text}] if text else []
        for number, (name, arguments) in enumerate(calls):
            # What Anthropic's endpoint gives is always parsed, whatever the model wrote.
            block = {"type": "tool_use", "id": f"toolu_{turn}_{number}", "name": name}
            content.append({**block, "input": json.loads(arguments)})
        return {
            "type": "message",
            "role": "assistant",
            "model": self.served or body["model"],
            "content": content,
            "stop_reason": "tool_use" if calls else "end_turn",
            "usage": {
                "input_tokens": 50,
                "cache_read_input_tokens": 40,
                "cache_creation_input_tokens": 10,
                "output_tokens": 10,
            },
        }


def _expect(holds: bool, problem: str) -> None:
    if not holds:
        raise BadRequest(problem)


def _check(adapter: TypeAdapter[Any], body: dict[str, Any]) -> None:
    try:
        _walk(adapter.validate_python(body))
    except ValueError as error:
        raise BadRequest(str(error)) from None


def _walk(value: Any) -> None:
    """Iterables are checked only when somebody looks."""
    if isinstance(value, dict):
        value = value.values()
    elif isinstance(value, str) or not hasattr(value, "__iter__"):
        return
    for inner in value:
        _walk(inner)


def _object(arguments: str) -> None:
    try:
        value = json.loads(arguments, parse_constant=lambda name: 1 / 0)
    except (ValueError, ZeroDivisionError):
        raise BadRequest(f"arguments {arguments!r} are not JSON") from None
    _expect(isinstance(value, dict), f"arguments {arguments!r} are no object")


def _new_id(call_id: str, known: set[str]) -> str:
    _expect(bool(call_id) and call_id not in known, f"id {call_id!r}")
    return call_id


__all__ = ["KEY", "ApiServer", "BadRequest", "echo"]
