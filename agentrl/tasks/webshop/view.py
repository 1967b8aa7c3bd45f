"""The shop as web pages for a person: python -m agentrl.tasks.webshop.view --level easy

An address holds the whole visit, `/SPLIT/INDEX?do=search:red shirt&do=click:b07…`; a page is what these
actions lead to. So the server keeps nothing about its visitors, the browser's own buttons work, and a
page that somebody reports can be looked at again. Everything shown is escaped; only this machine is
served unless `--host` says otherwise; the product that is wanted is shown after the purchase only.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence
from functools import partial
from html import escape
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qsl, urlencode, urlsplit

from agentrl.config.models import TaskConfig
from agentrl.errors import AgentRLError
from agentrl.tasks.base import Sample
from agentrl.tasks.webshop.official import SPLITS
from agentrl.tasks.webshop.pages import NEXT, PREVIOUS, SUB_PAGES, Kind, Page
from agentrl.tasks.webshop.products import Goal, Product
from agentrl.tasks.webshop.prompts import label, sub_page
from agentrl.tasks.webshop.scoring import score
from agentrl.tasks.webshop.task import WebShopTask

MAX_ACTIONS = 200
_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; margin: 0; color: #1c1e21; background: #f4f5f7 }
main { max-width: 56rem; margin: 0 auto; padding: 1rem 1.5rem 3rem; background: #fff;
  min-height: 100vh; box-sizing: border-box }
.task { background: #fff7df; border-left: 4px solid #e0a800; padding: .6rem 1rem; margin: 0 0 1rem }
nav { display: flex; flex-wrap: wrap; gap: .5rem; margin: 1rem 0 } td nav { margin: 0 }
a.button, button { background: #2456a6; color: #fff; border: 0; border-radius: 4px; padding: .35rem .8rem;
  font: inherit; text-decoration: none; cursor: pointer }
a.quiet { background: #e4e7ec; color: #1c1e21 } a.chosen { outline: 3px solid #e0a800 }
a.buy { background: #1d7a3e; font-weight: 600 } input { font: inherit; padding: .35rem; width: 60% }
table { border-collapse: collapse; width: 100% } td, th { text-align: left; padding: .45rem .6rem;
  border-bottom: 1px solid #e4e7ec; vertical-align: top } .price { white-space: nowrap; font-weight: 600 }
"""


class Visit:
    """One sample and the actions so far. Raises `LookupError` for what does not exist."""

    def __init__(
        self, task: WebShopTask, sample: Sample, actions: Sequence[tuple[str, str]]
    ) -> None:
        self.task, self.sample, self.actions = task, sample, list(actions[:MAX_ACTIONS])
        self.goal: Goal = task.goal(sample)
        self.page = Page()
        for name, value in self.actions:
            self.page = self._after(name, value)

    def _after(self, name: str, value: str) -> Page:
        page = (
            self.task.site.search(value)
            if name == "search"
            else self.task.site.click(self.page, value)
        )
        if page is None or self.page.kind == Kind.DONE:
            raise LookupError(f"{value!r} cannot be clicked there")
        return page

    @property
    def path(self) -> str:
        return f"/{self.sample.split}/{self.sample.index}"

    def to(self, value: str) -> str:
        """The address behind a click."""
        pairs = [("do", ":".join(each)) for each in (*self.actions, ("click", value))]
        return escape(f"{self.path}?{urlencode(pairs)}")

    def html(self) -> str:
        body = {Kind.SEARCH: self._search, Kind.RESULTS: self._results, Kind.ITEM: self._item}
        body |= {Kind.DONE: self._done, **dict.fromkeys(SUB_PAGES, self._sub_page)}
        wanted = f'<p class="task" id="instruction">{escape(self.goal.instruction)}</p>'
        return document(f"WebShop: {self.page.kind}", wanted + body[self.page.kind]())

    def _button(self, value: str, style: str = "quiet") -> str:
        return f'<a class="button {style}" href="{self.to(value)}">{escape(label(value))}</a>'

    def _buttons(self, *values: str) -> str:
        links = self.task.site.links(self.page)
        return f"<nav>{''.join(self._button(value) for value in values if value in links)}</nav>"

    def _search(self) -> str:
        done = "".join(
            f'<input type="hidden" name="do" value="{escape(":".join(each))}">'
            for each in self.actions
        )
        return (
            f'<h1>Search</h1><form action="{self.path}">{done}<input name="search" id="search_input" '
            'autofocus required aria-label="keywords"> <button>Search</button></form>'
        )

    def _results(self) -> str:
        site, page = self.task.site, self.page
        rows = "".join(map(self._row, map(site.store.product, site.listed(page))))
        return (
            f"<h1>Results for “{escape(page.keywords)}”</h1>"
            f"<p>Page {page.number} of {site.pages(page)}, {len(site.found(page))} results</p>"
            f"{self._buttons('back to search', PREVIOUS, NEXT)}<table>{rows}</table>"
        )

    def _row(self, product: Product) -> str:
        return (
            f'<tr><td><a class="product" href="{self.to(product.asin.lower())}">'
            f"{escape(product.asin)}</a></td><td>{escape(product.name)}</td>"
            f'<td class="price">{escape(product.price_tag)}</td></tr>'
        )

    def _item(self) -> str:
        product = self.task.site.product(self.page)
        chosen = dict(self.page.chosen)
        options = ""
        for name, values in product.options:
            buttons = "".join(
                self._button(value, "quiet chosen" if chosen.get(name) == value else "quiet")
                for value in values
            )
            options += f"<tr><th>{escape(name)}</th><td><nav>{buttons}</nav></td></tr>"
        return (
            f"{self._buttons('back to search', PREVIOUS)}<h1>{escape(product.name)}</h1>"
            f'<p>Price: <span class="price">{escape(product.price_tag)}</span>, '
            f"rating: {escape(product.rating)}</p><table>{options}</table>"
            f"{self._buttons(*SUB_PAGES)}<nav>{self._button('buy now', 'buy')}</nav>"
        )

    def _sub_page(self) -> str:
        texts = "".join(f"<li>{escape(text)}</li>" for text in sub_page(self.task.site, self.page))
        heading = label(self.page.kind)
        return f"{self._buttons('back to search', PREVIOUS)}<h1>{heading}</h1><ul>{texts}</ul>"

    def _done(self) -> str:
        product = self.task.site.product(self.page)
        values = [value for _, value in self.page.chosen]
        earned = score(product, values, self.goal, self.task.nouns)
        parts = {
            "Kind of product": earned.type,
            "Attributes": earned.attributes,
            "Options": earned.options,
            "Price": earned.price,
        }
        rows = "".join(
            f"<tr><th>{name}</th><td>{part:.2f}</td></tr>" for name, part in parts.items()
        )
        return (
            f'<h1>Thank you for your purchase</h1><p>Reward: <b id="reward">{earned.reward:.3f}</b></p>'
            f"<table>{rows}</table><p>Bought: {escape(product.asin)}, {escape(product.name)} "
            f"({escape(', '.join(values) or 'no options')}). The instruction was written for "
            f'{escape(self.goal.asin)}, {escape(self.goal.name)}.</p><nav><a class="button" '
            f'href="/{self.sample.split}/{self.sample.index + 1}">Next one</a></nav>'
        )


def document(title: str, body: str) -> str:
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f"<style>{_STYLE}</style></head><body><main>{body}</main></body></html>"
    )


def respond(task: WebShopTask, address: str) -> tuple[HTTPStatus, str, str]:
    """(status, text, location) for a GET of `address`; with a location the text is empty."""
    url = urlsplit(address)
    if url.path == "/":
        return HTTPStatus.FOUND, "", "/std/0"
    query = parse_qsl(url.query)
    actions = [value.partition(":")[::2] for name, value in query if name == "do"]
    try:
        _, split, number = url.path.split("/")
        if split not in SPLITS:
            raise LookupError(f"no split {split!r}")
        index = int(number)
        if index < 0:
            raise LookupError(f"no sample {index}")
        found = next((value for name, value in query if name == "search"), None)
        visit = Visit(task, Sample(task.name, split, index), actions)
        if found is not None:  # a form cannot build the address itself
            pairs = [("do", ":".join(each)) for each in (*visit.actions, ("search", found))]
            return HTTPStatus.SEE_OTHER, "", f"{visit.path}?{urlencode(pairs)}"
        return HTTPStatus.OK, visit.html(), ""
    except (LookupError, ValueError) as error:
        text = f"<h1>There is no such page</h1><p>{escape(str(error))}</p>"
        return HTTPStatus.NOT_FOUND, document("WebShop: not found", text), ""


class _Handler(BaseHTTPRequestHandler):
    def __init__(self, task: WebShopTask, *arguments: object) -> None:
        self.task = task
        super().__init__(*arguments)  # type: ignore[arg-type]

    def do_GET(self) -> None:
        status, text, location = respond(self.task, self.path)
        body = text.encode()
        self.send_response(status)
        if location:
            self.send_header("Location", location)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        """Silent: the address says it all."""


def open_server(task: WebShopTask, host: str = "127.0.0.1", port: int = 0) -> ThreadingHTTPServer:
    """A server that listens already; `serve_forever` answers, `server_close` ends it."""
    _ = task.site  # opened here, where an error is one line, and by one thread
    return ThreadingHTTPServer((host, port), partial(_Handler, task))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m agentrl.tasks.webshop.view", description="Shop."
    )
    parser.add_argument("--level", default="easy")
    parser.add_argument("--source", default="generated", choices=("generated", "official"))
    parser.add_argument("--data-root", type=Path)
    parser.add_argument("--options", default="{}", help="JSON, as under tasks.webshop.options")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    given = parser.parse_args(arguments)
    try:
        config = TaskConfig(
            source=given.source, level=given.level, options=json.loads(given.options)
        )
        task = WebShopTask(config, given.data_root)
        server = open_server(task, given.host, given.port)
    except (AgentRLError, OSError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    print(f"http://{given.host}:{server.server_port}/", flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        print()
    finally:
        server.server_close()
        asyncio.run(task.close())
    return 0


if __name__ == "__main__":
    sys.exit(main())
