"""The shop's pages in headless Chromium: a person's whole visit, link by link as the browser shows it."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import struct
import subprocess
import threading
from collections.abc import Iterator
from html import unescape
from pathlib import Path

import pytest

from agentrl.config.models import TaskConfig
from agentrl.tasks.webshop.task import WebShopTask
from agentrl.tasks.webshop.view import open_server

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--window-size=1000,900",
)  # fmt: skip
pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="no chromium on the path: apt-get install chromium"
)


class Browser:
    def __init__(self, profiles: Path, port: int) -> None:
        self.profiles, self.site, self.started = profiles, f"http://127.0.0.1:{port}", 0

    def open(self, address: str) -> str:
        """The document as the browser has it after loading."""
        return self._run("--dump-dom", self.site + address).decode()

    def follow(self, document: str, link: str) -> tuple[str, str]:
        """(address, document) behind the link with this text."""
        found = re.search(rf'<a [^>]*href="([^"]+)">{re.escape(link)}</a>', document)
        assert found is not None, f"no link {link!r} in {document}"
        address = unescape(found[1])
        return address, self.open(address)

    def picture(self, address: str, path: Path) -> bytes:
        self._run(f"--screenshot={path}", self.site + address)
        return path.read_bytes()

    def _run(self, *arguments: str) -> bytes:
        """What the browser printed. Into files: its helpers may keep a pipe open after it."""
        self.started += 1
        profile = self.profiles / str(self.started)  # a fresh one each time
        command = [str(CHROMIUM), *FLAGS, f"--user-data-dir={profile}", *arguments]
        printed, said = profile.with_suffix(".out"), profile.with_suffix(".err")
        with printed.open("wb") as out, said.open("wb") as err:
            process = subprocess.Popen(command, stdout=out, stderr=err, start_new_session=True)
            try:
                assert process.wait(timeout=300) == 0, said.read_text()[-2000:]
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        return printed.read_bytes()


@pytest.fixture(scope="module")
def task() -> WebShopTask:
    return WebShopTask(TaskConfig(level="medium", options={"products": 300}))


@pytest.fixture(scope="module")
def browser(task: WebShopTask, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    server = open_server(task)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield Browser(tmp_path_factory.mktemp("chromium"), server.server_port)
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_visit(browser: Browser, task: WebShopTask, tmp_path: Path) -> None:
    goal = task.goal(task.samples("std")[0])
    first = browser.open("/")
    assert goal.instruction in unescape(first), "led on to the first sample"
    assert '<input name="search"' in first and goal.asin not in first
    page = browser.open(f"/std/0?search={goal.name.replace(' ', '+')}")
    assert "<title>WebShop: results</title>" in page
    address, page = browser.follow(page, goal.asin)
    for value in goal.options:
        address, page = browser.follow(page, value.capitalize())
        assert re.search(
            rf'class="button quiet chosen"[^>]*>{re.escape(value.capitalize())}<', page
        )
    picture = browser.picture(address, tmp_path / "item.png")
    assert picture.startswith(b"\x89PNG") and struct.unpack(">II", picture[16:24]) == (1000, 900)
    _, done = browser.follow(page, "Buy Now")
    assert '<b id="reward">1.000</b>' in done
