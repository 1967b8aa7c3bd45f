"""Headless Chromium, spoken to over its DevTools socket. One page, closed with everything it started."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import shutil
import signal
from contextlib import asynccontextmanager

import aiohttp

FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--disable-dev-shm-usage", "--remote-debugging-port=0", "--hide-scrollbars"),
)
PATIENCE = 300.0


def chromium():
    return shutil.which("chromium") or shutil.which("chromium-browser")


class Page:
    def __init__(self, socket):
        self._socket = socket
        self._answers = {}
        self._number = 0
        self.session = None
        self.requested = []
        """Every address that was asked for."""
        self.errors = []

    async def listen(self):
        async for message in self._socket:
            data = json.loads(message.data)
            if "id" in data:
                answer = self._answers.pop(data["id"], None)
                if answer is not None and not answer.done():
                    answer.set_result(data)
            elif data["method"] == "Network.requestWillBeSent":
                self.requested.append(data["params"]["request"]["url"])
            elif data["method"] == "Runtime.exceptionThrown":
                self.errors.append(data["params"]["exceptionDetails"])

    async def send(self, method, **parameters):
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self.session is not None:
            message["sessionId"] = self.session
        answer = self._answers[self._number] = asyncio.get_running_loop().create_future()
        await self._socket.send_json(message)
        async with asyncio.timeout(PATIENCE):
            data = await answer
        assert "error" not in data, data
        return data["result"]

    async def evaluate(self, expression):
        result = await self.send(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    async def until(self, expression):
        """Wait until a JavaScript expression is true."""
        async with asyncio.timeout(PATIENCE):
            while not (value := await self.evaluate(expression)):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
            return value

    async def size(self, width, height):
        await self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 500,
        )

    async def press(self, key, code=0, text=""):
        for kind in ("keyDown", "keyUp"):
            await self.send(
                "Input.dispatchKeyEvent",
                type=kind,
                key=key,
                windowsVirtualKeyCode=code,
                **({"text": text} if text and kind == "keyDown" else {}),
            )

    async def screenshot(self, path):
        result = await self.send("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(result["data"]))


@asynccontextmanager
async def open_page(url, profile):
    """A page at `url`; `profile` is a fresh folder."""
    process = await asyncio.create_subprocess_exec(
        chromium(),
        *FLAGS,
        f"--user-data-dir={profile}",
        "about:blank",
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(PATIENCE):
            while b"DevTools listening on " not in (line := await process.stderr.readline()):
                assert line, "chromium ended"
        address = line.decode().split("listening on ")[1].strip()
        drain = asyncio.create_task(process.stderr.read())
        async with (
            aiohttp.ClientSession() as client,
            client.ws_connect(address, max_msg_size=0) as socket,
        ):
            page = Page(socket)
            listening = asyncio.create_task(page.listen())
            target = await page.send("Target.createTarget", url="about:blank")
            attached = await page.send(
                "Target.attachToTarget", targetId=target["targetId"], flatten=True
            )
            page.session = attached["sessionId"]
            for domain in ("Network", "Page", "Runtime"):
                await page.send(f"{domain}.enable")
            await page.send("Page.navigate", url=url)
            yield page
            listening.cancel()
        drain.cancel()
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
