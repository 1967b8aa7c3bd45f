"""The dashboard in a real browser: what it shows, that it is live, that keys suffice, at three widths.

Screenshots go to AGENTRL_SCREENSHOTS, where it is set.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hosting_kit import Raw, cluster, controller_settings, eventually, said
from integration.browser import chromium, open_page
from interop.quiz import QuizTask

pytestmark = pytest.mark.skipif(chromium() is None, reason="no chromium: apt-get install chromium")
WIDTHS = ((375, 812), (768, 1024), (1440, 900))
EVIL = (
    '<img src="http://127.0.0.1:9/x" onerror="window.owned = 1"><script>window.owned = 1</script>'
)
SHOWS = "document.body.innerText.includes({0!r})"


async def test_the_dashboard(tmp_path):
    shots = Path(os.environ.get("AGENTRL_SCREENSHOTS", tmp_path))
    assert shots.is_dir()  # noqa: ASYNC240
    async with (
        cluster(QuizTask, workers=2, concurrency=4, settings=controller_settings(call=30)) as (
            controller,
            workers,
        ),
        Raw(f"{controller.url}/api") as raw,
        open_page(controller.url, tmp_path / "profile") as page,
    ):
        await page.until("document.querySelectorAll('#workers tbody tr').length === 2")
        assert await page.evaluate(SHOWS.format("No live session."))

        # live: sessions that start, speak, end and fail appear by themselves
        sessions = [(await raw.start(index))[0] for index in (3, 7, 11, 5, 9)]
        await raw.post("interact", {"messages": [said(EVIL)]}, sessions[0])
        for index in range(40):
            done, _ = await raw.start(index)
            while not (await raw.say(done))[1]["finish"]:
                pass
        broken, _ = await raw.start(3)
        workers[0].worker.task.start = workers[1].worker.task.start = _broken
        await raw.start(1)
        for worker in workers:
            del worker.worker.task.start
        await raw.post("cancel", session=broken)
        await eventually(lambda: broken not in controller.service.router.sessions)
        await page.until(f"document.querySelectorAll('#live tbody tr').length === {len(sessions)}")
        await page.until(SHOWS.format("task error"))
        await page.until("document.querySelectorAll('#failures tbody tr').length === 1")

        # a transcript is text, whatever a model says
        await page.evaluate(
            f"document.querySelector('[data-key=\"session {sessions[0]}\"]').click()"
        )
        await page.until("document.querySelector('#transcript pre')?.isConnected")
        texts = await page.until(
            "(t => t.length >= 3 && t)([...document.querySelectorAll('#transcript pre')]"
            ".map(p => p.textContent))"
        )
        assert texts[:2] == ["Question 3", EVIL]
        assert await page.evaluate("window.owned === undefined")

        # draining by keys alone
        button = "document.querySelector('[data-key^=drain]')"
        worker_id = await page.evaluate(f"{button}.dataset.key.slice(6)")
        for _ in range(60):
            await page.press("Tab", 9)
            if await page.evaluate(f"document.activeElement.dataset.key === 'drain {worker_id}'"):
                break
        else:
            raise AssertionError("the drain button is not reached by Tab")
        await page.press("Enter", 13, "\r")
        known = controller.service.router.workers
        await eventually(lambda: known[worker_id].drained)
        await page.until(SHOWS.format("drained"))
        # a redraw keeps the focus where it was
        await page.until(f"{button}.textContent === 'Undrain'")
        assert await page.evaluate(f"document.activeElement.dataset.key === 'drain {worker_id}'")
        await page.press("Enter", 13, "\r")
        await eventually(lambda: not known[worker_id].drained)

        for width, height in WIDTHS:
            await page.size(width, height)
            await page.until(f"window.innerWidth === {width}")
            wide = await page.evaluate("document.documentElement.scrollWidth")
            assert wide <= width, f"at {width} pixels the page is {wide} wide"
            small = await page.evaluate(
                "[...document.querySelectorAll('button, input')]"
                ".filter(b => b.getBoundingClientRect().height < 36).length"
            )
            assert small == 0, "too small for a finger"
            await page.screenshot(shots / f"dashboard-{width}.png")

        assert page.errors == []
        outside = [url for url in page.requested if not url.startswith(controller.url)]
        assert [url for url in outside if not url.startswith(("data:", "about:"))] == []

        # the API page, too, without an asset from outside
        await page.send("Page.navigate", url=f"{controller.url}/docs")
        await page.until("document.querySelectorAll('.opblock').length > 10")
        outside = [url for url in page.requested if not url.startswith(controller.url)]
        assert [url for url in outside if not url.startswith(("data:", "about:"))] == []
        for session in sessions:
            await raw.post("cancel", session=session)


async def _broken(sample, seed):
    raise OSError("no container")


async def test_metrics_and_api_description():
    async with cluster(QuizTask) as (controller, _), Raw(controller.url) as raw:
        api = Raw(f"{controller.url}/api")
        async with api:
            session, _ = await api.start(1)
            await api.say(session)
        status, text = await raw.get("metrics")
        assert status == 200
        for line in (
            'agentrl_sessions_started_total{task="quiz-std"} 1.0',
            'agentrl_turns_total{task="quiz-std"} 1.0',
            'agentrl_call_seconds_count{endpoint="interact"} 1.0',
        ):
            assert line in text.splitlines(), text
        assert "agentrl_worker_capacity" in text and "agentrl_worker_up" in text
        status, described = await raw.get("openapi.json")
        assert status == 200
        assert {"/api/start_sample", "/api/interact", "/api/cancel"} <= set(described["paths"])
        interact = described["paths"]["/api/interact"]["post"]
        assert interact["parameters"][0]["name"] == "session_id"
