"""A controller elsewhere, as an agent loop sees one: `EnvironmentClient` over HTTP.

Invariants: a failure of the controller, the network or the environment is an `InfrastructureError` and
never a reward (4); a session is cancelled wherever its start may have come through (11). A sample is the
controller's task `TASK-SPLIT`; sessions that wait for their agent are kept alive while this client lives.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import aiohttp
from pydantic_core import from_json

from agentrl.errors import InfrastructureError
from agentrl.hosting.client import Opening
from agentrl.hosting.network.settings import trust
from agentrl.hosting.network.wire import tool_spec, write
from agentrl.messages import Message, Status
from agentrl.tasks.base import Sample, Step

log = logging.getLogger(__name__)


class RemoteController:
    """`async with RemoteController("http://127.0.0.1:5020/api") as client:`."""

    def __init__(
        self, url: str, *, token: str | None = None, ca: Path | None = None, renew: float = 120
    ) -> None:
        self.url = url.rstrip("/")
        self._headers = {"content-type": "application/json", "x-agentrl-client": uuid.uuid4().hex}
        if token is not None:
            self._headers["authorization"] = f"Bearer {token}"
        self._ca, self._renew = ca, renew
        self._live: set[int] = set()

    async def __aenter__(self) -> RemoteController:
        self._session = aiohttp.ClientSession(
            headers=self._headers,
            # No limits here: the controller has them, and a start may wait for a slot.
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=60, ssl=trust(self._ca)),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=10),
        )
        self._renewing = asyncio.get_running_loop().create_task(self._renew_all())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._renewing.cancel()
        with suppress(asyncio.CancelledError):
            await self._renewing
        for session in list(self._live):
            with suppress(InfrastructureError):
                await self.cancel(session)
        await self._session.close()

    async def indices(self, task: str, split: str) -> list[Any]:
        found = await self._get("get_indices", {"name": f"{task}-{split}"})
        return list(found)

    async def slots(self) -> dict[str, int]:
        """Episodes that the workers can hold at once, by `TASK-SPLIT`."""
        found = await self._get("list_workers", {})
        return {
            name: sum(
                worker["capacity"]
                for worker in offer["workers"].values()
                if worker["status"] == "ALIVE" and not worker["stale"]
            )
            for name, offer in found.items()
        }

    async def start(self, sample: Sample, seed: int) -> Opening:
        body = {"name": f"{sample.task}-{sample.split}", "index": sample.index, "seed": seed}
        answer, session = await self._post("start_sample", body)
        if session is None:
            raise InfrastructureError(f"{self.url}: start_sample answered without a session")
        if answer["finish"]:
            raise InfrastructureError(
                f"task {sample.task!r}, sample {sample.split}/{sample.index}: start failed: the "
                f"worker ended it with status {answer['status_detail']!r}: {answer.get('result', '')}"
            )
        self._live.add(session)
        messages = tuple(Message.from_openai(message) for message in answer["messages"])
        return Opening(session, messages, tuple(tool_spec(tool) for tool in answer["tools"] or ()))

    async def interact(self, session: int, message: Message) -> Step:
        if session not in self._live:
            raise KeyError(session)
        ended = True
        try:
            answer, _ = await self._post("interact", {"messages": [message.to_openai()]}, session)
            ended = answer["finish"]
        finally:
            if ended:
                self._live.discard(session)
        return Step(
            tuple(Message.from_openai(reply) for reply in answer["messages"]),
            answer["reward"],
            answer["finish"],
            _status(answer["status_detail"]),
            answer["metrics"],
        )

    async def cancel(self, session: int) -> None:
        if session not in self._live:
            return
        self._live.discard(session)
        await self._post("cancel", None, session, unknown_is_fine=True)

    async def _renew_all(self) -> None:
        while True:
            await asyncio.sleep(self._renew)
            if self._live:
                try:
                    await self._post("renew", {"sessions": sorted(self._live)})
                except InfrastructureError as error:
                    log.warning("sessions could not be renewed: %s", error)

    async def _get(self, path: str, query: dict[str, str]) -> Any:
        try:
            async with self._session.get(f"{self.url}/{path}", params=query) as response:
                return self._read(path, response.status, await response.read())
        except (aiohttp.ClientError, OSError) as error:
            raise self._broken(error) from None

    async def _post(
        self, path: str, body: Any, session: int | None = None, *, unknown_is_fine: bool = False
    ) -> tuple[Any, int | None]:
        headers = {} if session is None else {"session_id": str(session)}
        data = None if body is None else write(body)
        try:
            async with self._session.post(
                f"{self.url}/{path}", data=data, headers=headers
            ) as response:
                text = await response.read()
                if unknown_is_fine and response.status == 400:
                    return None, None
                given = response.headers.get("session_id")
                answer = self._read(path, response.status, text)
                return answer, None if given is None else int(given)
        except (aiohttp.ClientError, OSError) as error:
            raise self._broken(error) from None

    def _read(self, path: str, status: int, body: bytes) -> Any:
        try:
            answer = from_json(body)
        except ValueError:
            answer = {"message": body[:300].decode("utf-8", "replace")}
        if status != 200:
            cause = answer.get("error", status) if isinstance(answer, dict) else status
            text = answer.get("message", "") if isinstance(answer, dict) else ""
            raise InfrastructureError(f"controller {self.url}: {path} failed ({cause}): {text}")
        return answer

    def _broken(self, error: Exception) -> InfrastructureError:
        what = str(error) or type(error).__name__
        return InfrastructureError(f"controller {self.url}: the connection broke: {what}")


def _status(text: str) -> Status:
    try:
        return Status(text)
    except ValueError:
        return Status.UNKNOWN
