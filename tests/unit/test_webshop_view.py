"""The pages for a person, without a browser: addresses, escaping, what is hidden until the end."""

from __future__ import annotations

import http.client
import re
import threading
from dataclasses import replace
from html import unescape
from http import HTTPStatus

import pytest

from agentrl.config.models import TaskConfig
from agentrl.tasks.webshop.pages import Site
from agentrl.tasks.webshop.store import in_memory
from agentrl.tasks.webshop.task import WebShopTask
from agentrl.tasks.webshop.view import main, open_server, respond


@pytest.fixture(scope="module")
def task() -> WebShopTask:
    return WebShopTask(TaskConfig(options={"products": 200}))


def get(task: WebShopTask, address: str) -> str:
    status, text, _ = respond(task, address)
    assert status == HTTPStatus.OK, text
    return text


def follow(task: WebShopTask, text: str, link: str) -> str:
    found = re.search(rf'href="([^"]+)">{re.escape(link)}</a>', text)
    assert found is not None, f"no link {link!r} in {text}"
    return get(task, unescape(found[1]))


def test_a_visit_from_the_first_page_to_the_reward(task: WebShopTask) -> None:
    goal = task.goal(task.samples("std")[0])
    first = get(task, "/std/0")
    assert goal.instruction in first and goal.asin not in first
    keywords = f"{goal.name} "
    status, _, location = respond(task, f"/std/0?search={keywords.replace(' ', '+')}")
    assert status == HTTPStatus.SEE_OTHER
    page = get(task, location)
    assert "Results for" in page
    while goal.asin not in page:
        page = follow(task, page, "Next &gt;")
    page = follow(task, page, goal.asin)
    described = follow(task, page, "Description")
    page = follow(task, described, "&lt; Prev")
    for value in goal.options:
        page = follow(task, page, value.capitalize())
        assert 'chosen" href' in page
    assert "instruction was written for" not in page
    page = follow(task, page, "Buy Now")
    assert '<b id="reward">1.000</b>' in page and goal.asin in page
    assert 'href="/std/1"' in page


@pytest.mark.parametrize(
    "address",
    [
        "/std", "/std/x", "/std/-1", "/test/0", "/std/0/1", "/std/0?do=click:buy+now", "/favicon.ico",
        "/std/0?do=search:lamp&do=click:nothing", "/std/99999999999999999999999x",
    ],
)  # fmt: skip
def test_what_does_not_exist_is_said(task: WebShopTask, address: str) -> None:
    status, text, _ = respond(task, address)
    assert status == HTTPStatus.NOT_FOUND and "There is no such page" in text


def test_the_first_page_leads_to_the_first_sample(task: WebShopTask) -> None:
    assert respond(task, "/") == (HTTPStatus.FOUND, "", "/std/0")


def test_everything_is_escaped() -> None:
    evil = "<script>alert('x')</script>&\""
    task = WebShopTask(TaskConfig(options={"products": 200}))
    plain = task.generator.product(0)
    product = replace(
        plain, asin=evil, name=evil, description=evil, price_tag=evil, reviews=(evil,), features=(evil,),
        options=((evil, (evil.lower(), "b")),),
    )  # fmt: skip
    goal = replace(task.goal(task.samples("std")[0]), instruction=evil, asin=evil, name=evil)
    task._site = Site(in_memory(([product], ())), 10, 50)
    task.goal = lambda sample: goal  # type: ignore[method-assign, assignment, misc]
    walk = "/std/0?do=search:script&do=click:%3Cscript%3Ealert%28%27x%27%29%3C%2Fscript%3E%26%22"
    again = "&do=click:%3Cscript%3Ealert%28%27x%27%29%3C%2Fscript%3E%26%22"
    for address in (
        "/std/0", "/std/0?do=search:%3Cscript%3E", "/std/0?do=search:script", walk, walk + again,
        walk + "&do=click:description", walk + "&do=click:features", walk + "&do=click:reviews",
        walk + again + "&do=click:buy+now", "/std/0?do=search:script&do=click:%3Cscript%3E", "/std/%3Cscript%3E",
    ):  # fmt: skip
        _, text, _ = respond(task, address)
        assert "<script" not in text.lower(), address


def test_the_server_answers_and_ends(task: WebShopTask) -> None:
    server = open_server(task)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        answers = []
        for address in ("/std/3", "/", "/nothing"):
            connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=30)
            connection.request("GET", address)
            answer = connection.getresponse()
            answers.append((answer.status, answer.getheader("Location"), len(answer.read()) > 100))
            assert "default-src 'none'" in (answer.getheader("Content-Security-Policy") or "")
            connection.close()
        assert answers == [(200, None, True), (302, "/std/0", False), (404, None, True)]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_bad_arguments_are_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--level", "extreme"]) == 1
    assert main(["--options", '{"products": 1}']) == 1
    assert main(["--source", "official"]) == 1
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 3 and "choose one of easy" in lines[0] and "data_root" in lines[2]
