"""A shopper that reads titles and prices, and knows which product the instruction was written for.

It searches for the words of the instruction and takes the first product on the page that is the one, or
(in generated shops) whose title has every word that is wanted at a price within the limit; it chooses the
options and buys. Of other products it knows only what the pages it is on say. Where the first search does
not lead there it searches for the product's title.

With `noise` n it errs with probability n at each decision, as a hurried buyer does: leaves out a word of
the search, takes another product of the page, the wrong value of an option, or none. A wrong product it
sometimes notices.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from random import Random

from agentrl.messages import Message
from agentrl.tasks.base import Expert, call_message
from agentrl.tasks.webshop.pages import BUY, NEXT, PREVIOUS, Kind, Page, Site
from agentrl.tasks.webshop.products import Goal

SEARCH_TOOL, CLICK_TOOL = "search_action", "click_action"
SECOND_THOUGHT = 0.3
"""Chance that it notices a wrong product on the item page."""
PAGES_BEFORE_ANOTHER_SEARCH = 2
PATIENCE = 3
"""Products that it leaves again before it wants the one and no other."""
_WORD = re.compile(r"[a-z0-9]+")


class WebShopExpert(Expert):
    """`reads_titles`: trust that a title says all there is to know of the product's kind."""

    def __init__(
        self, site: Site, goal: Goal, rng: Random, noise: float = 0.0, *, reads_titles: bool = True
    ) -> None:
        self.site, self.goal, self.rng, self.noise = site, goal, rng, noise
        self.reads_titles = reads_titles
        self.page = Page()
        self.words = " ".join([*goal.attributes, goal.query])
        self.searches = 0
        self.passed: set[int] = set()
        """Products that were looked at and left."""
        self.turned: set[str] = set()
        """Options that have been decided, for good or ill."""
        self.turns = 0

    def act(self, messages: Sequence[Message]) -> Message:
        self.turns += 1
        match self.page.kind:
            case Kind.RESULTS:
                return self._choose_product()
            case Kind.ITEM:
                return self._choose_option()
            case _:
                return self._search(self.words)

    # -- decisions

    def _search(self, words: str) -> Message:
        self.searches += 1
        parts = words.split()
        if len(parts) > 1 and self._slips():
            parts.pop(self.rng.randrange(len(parts)))
        keywords = " ".join(parts)
        self.page = self.site.search(keywords)
        return call_message(SEARCH_TOOL, {"keywords": keywords}, f"call_{self.turns}")

    def _choose_product(self) -> Message:
        listed = [each for each in self.site.listed(self.page) if each not in self.passed]
        right = next((each for each in listed if self._fits(each)), None)
        if listed and self._slips():
            right = self.rng.choice([each for each in listed if each != right] or listed)
        if right is not None:
            self.turned.clear()
            return self._click(self.site.store.product(right).asin.lower())
        more = NEXT in self.site.links(self.page)
        if more and (self.searches > 1 or self.page.number < PAGES_BEFORE_ANOTHER_SEARCH):
            return self._click(NEXT)
        if self.searches == 1:
            return self._search(self.goal.name)
        # Nothing fits: the first that is left is better than none.
        if listed:
            return self._click(self.site.store.product(listed[0]).asin.lower())
        return self._search(self.goal.query)

    def _choose_option(self) -> Message:
        options = dict(self.site.product(self.page).options)
        if self._regrets(options):
            self.passed.add(self.page.position)
            return self._click(PREVIOUS)
        for wanted in self.goal.options:
            name = next((name for name, values in options.items() if wanted in values), None)
            if name is None or name in self.turned:
                continue
            self.turned.add(name)
            if not self._slips():
                return self._click(wanted)
            others = [value for value in options[name] if value != wanted]
            if others and self.rng.random() < 0.5:
                return self._click(self.rng.choice(others))
        return self._click(BUY)

    def _click(self, value: str) -> Message:
        self.page = self.site.click(self.page, value) or self.page
        return call_message(CLICK_TOOL, {"value": value}, f"call_{self.turns}")

    # -- judgement

    def _slips(self) -> bool:
        return self.noise > 0 and self.rng.random() < self.noise

    def _is_the_one(self, position: int) -> bool:
        return self.site.store.product(position).asin == self.goal.asin

    def _fits(self, position: int) -> bool:
        """By what the row of a results page says."""
        if self._is_the_one(position):
            return True
        product = self.site.store.product(position)
        wanted = _words(" ".join([*self.goal.attributes, self.goal.query]))
        return (
            self.reads_titles
            and len(self.passed) < PATIENCE
            and wanted <= _words(product.name)
            and product.highest_price <= self.goal.price_upper
        )

    def _regrets(self, options: dict[str, tuple[str, ...]]) -> bool:
        """Whether to leave this product: before anything is chosen, where something is missing."""
        if self.turned or self._is_the_one(self.page.position):
            return False
        if self._fits(self.page.position):
            offered = {value for values in options.values() for value in values}
            return not offered.issuperset(self.goal.options)
        return self.rng.random() < SECOND_THOUGHT


def _words(text: str) -> set[str]:
    return set(_WORD.findall(text.lower()))
