"""The site: which page one is on, what can be clicked there, and where that leads.

Pages are values and the site has no memory of its own: where a click leads is a function of the page, so
episodes share nothing (pitfalls 39, 40) and a page can be reached again by doing the same (`view`).

As in the reference: a search is possible from everywhere, forgets the product and its options, and finds
at most 50 products, ten a page; `< prev` of a sub-page keeps the options. Ours: `search` is no button,
for clicking it does nothing; a value that stands in two options sets the first one that has another.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache

from agentrl.tasks.webshop.products import Product
from agentrl.tasks.webshop.store import Store

BACK, NEXT, PREVIOUS, BUY = "back to search", "next >", "< prev", "buy now"
MAX_KEYWORDS = 1_000
"""Characters of a query that are kept."""
_CACHED_PAGES = 2_000


class Kind(StrEnum):
    SEARCH = "search"
    RESULTS = "results"
    ITEM = "item"
    DESCRIPTION = "description"
    FEATURES = "features"
    REVIEWS = "reviews"
    DONE = "done"


SUB_PAGES = (Kind.DESCRIPTION, Kind.FEATURES, Kind.REVIEWS)


@dataclass(frozen=True, slots=True)
class Page:
    kind: Kind = Kind.SEARCH
    keywords: str = ""
    number: int = 1
    """Of the page of results, from 1."""
    position: int = -1
    """Of the product."""
    chosen: tuple[tuple[str, str], ...] = ()
    """(option, value) in the order in which they were chosen."""


class Site:
    """`store`'s products, `per_page` of at most `results` found ones to a page."""

    def __init__(self, store: Store, per_page: int, results: int) -> None:
        self.store, self.per_page, self.results = store, per_page, results
        self.links = lru_cache(_CACHED_PAGES)(self._links)

    def search(self, keywords: str) -> Page:
        return Page(Kind.RESULTS, keywords[:MAX_KEYWORDS])

    def product(self, page: Page) -> Product:
        return self.store.product(page.position)

    def found(self, page: Page) -> tuple[int, ...]:
        """Positions of everything that the page's query finds, best first."""
        return self.store.search(page.keywords, self.results)

    def pages(self, page: Page) -> int:
        """How many pages of results there are; at least one."""
        return max(1, -(-len(self.found(page)) // self.per_page))

    def listed(self, page: Page) -> tuple[int, ...]:
        """Positions of the products on a page of results."""
        return self.found(page)[(page.number - 1) * self.per_page : page.number * self.per_page]

    def _links(self, page: Page) -> Mapping[str, Page]:
        """What can be clicked, in lower case and in the order of the page, and where it leads."""
        match page.kind:
            case Kind.RESULTS:
                return self._result_links(page)
            case Kind.ITEM:
                return self._item_links(page)
            case Kind.DESCRIPTION | Kind.FEATURES | Kind.REVIEWS:
                return {BACK: Page(), PREVIOUS: replace(page, kind=Kind.ITEM)}
            case _:
                return {}

    def click(self, page: Page, value: str) -> Page | None:
        """The page behind a button, link or option value; None where there is no such thing."""
        return self.links(page).get(value.strip().lower())

    def _result_links(self, page: Page) -> dict[str, Page]:
        links = {BACK: Page()}
        if page.number > 1:
            links[PREVIOUS] = replace(page, number=page.number - 1)
        if page.number < self.pages(page):
            links[NEXT] = replace(page, number=page.number + 1)
        for position in self.listed(page):
            item = replace(page, kind=Kind.ITEM, position=position)
            links.setdefault(self.store.product(position).asin.lower(), item)
        return links

    def _item_links(self, page: Page) -> dict[str, Page]:
        links = {
            BACK: Page(),
            PREVIOUS: Page(Kind.RESULTS, page.keywords, page.number),
            **{kind.value: replace(page, kind=kind) for kind in SUB_PAGES},
            BUY: replace(page, kind=Kind.DONE),
        }
        buttons = set(links)
        for name, values in self.product(page).options:
            for value in values:
                known = links.get(value)
                if value not in buttons and (known is None or known == page):
                    links[value] = _choose(page, name, value)
        return links


def _choose(page: Page, name: str, value: str) -> Page:
    """The page with one more choice; the same page where it was chosen already."""
    if dict(page.chosen).get(name) == value:
        return page
    kept = tuple(pair for pair in page.chosen if pair[0] != name)
    return replace(page, chosen=(*kept, (name, value)))
