"""How the site is told to an agent: two styles, neither of which says which product is meant.

`agentbench`: the visible text of a page on one line, its parts joined by `[SEP]`, then what can be
clicked, as AgentBench's task lays it out; instructions in our own words. `compact`: for policies of a
million parameters - lower case, every word after a space, no list of buttons, the task at the end of
every observation (spec/mini.md §2).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from agentrl.messages import Message
from agentrl.tasks.webshop.pages import BACK, BUY, NEXT, PREVIOUS, SUB_PAGES, Kind, Page, Site
from agentrl.tasks.webshop.products import Goal

SYSTEM = """You are shopping on a web site, for someone who tells you what to buy.
In every turn you see the page you are on and what can be clicked there. Answer with one tool call.
- search_action types keywords into the search box. Choose them well: the site looks for products that \
have these words in their text.
- click_action clicks a button, a product or an option. Its value must be one of the available actions, \
copied exactly.
Find a product that has everything the instruction asks for, choose the options that it names, and click \
"buy now". The purchase ends the task, and only the purchase counts. You never need to ask back."""
COMPACT_LIMIT = 400
"""Characters of a description, of features or of reviews in the compact style."""
SEPARATOR = " [SEP] "
LABELS = {BACK: "Back to Search", NEXT: "Next >", PREVIOUS: "< Prev", BUY: "Buy Now"}
"""How buttons are written on a page; they are clicked in lower case. Others: with a capital."""


@dataclass(frozen=True, slots=True)
class Style:
    prompt: Literal["compact", "agentbench"]

    def opening(self, site: Site, goal: Goal) -> tuple[Message, ...]:
        page = Page()
        if self.prompt == "compact":
            return (Message("user", self.remind(site, page, goal, _compact(site, page))),)
        text = self.remind(site, page, goal, "You are on the first page of the shop.")
        return (Message("system", SYSTEM), Message("user", text))

    def answer(self, site: Site, page: Page, action: str, problem: str = "") -> str:
        """What `action` brought; `problem` says why nothing happened. `remind` completes it."""
        if self.prompt == "compact":
            return problem or _compact(site, page)
        return f"Action: {action}\n\n{problem}" if problem else f"Action: {action}"

    def remind(self, site: Site, page: Page, goal: Goal, text: str) -> str:
        """The text with what every observation ends with: the task, or the page one is on."""
        if self.prompt == "compact":
            return f"{text} Task: {goal.instruction} ."
        actions = {"has_search_bar": page.kind == Kind.SEARCH, "clickables": [*site.links(page)]}
        parts = SEPARATOR.join(["Instruction:", goal.instruction, *visible(site, page)])
        return f"{text}\n\nObservation:\n{parts}\n\nAvailable Actions:\n{actions}"


def label(button: str) -> str:
    return LABELS.get(button, button.capitalize())


def visible(site: Site, page: Page) -> list[str]:
    """The texts of a page, as a person reads them."""
    if page.kind == Kind.SEARCH:
        return [label(Kind.SEARCH)]
    if page.kind == Kind.RESULTS:
        parts = [label(BACK), f"Page {page.number} (Total results: {len(site.found(page))})"]
        parts += [label(name) for name in (PREVIOUS, NEXT) if name in site.links(page)]
        for position in site.listed(page):
            product = site.store.product(position)
            parts += [product.asin, product.name, product.price_tag]
        return parts
    parts = [label(BACK), label(PREVIOUS)]
    if page.kind in SUB_PAGES:
        return parts + sub_page(site, page)
    product = site.product(page)
    for name, values in product.options:
        parts += [name, *values]
    parts += [product.name, f"Price: {product.price_tag}", f"Rating: {product.rating}"]
    parts += [f"Chosen: {name} {value}" for name, value in page.chosen]
    return [*parts, *map(label, (*SUB_PAGES, BUY))]


def sub_page(site: Site, page: Page) -> list[str]:
    product = site.product(page)
    match page.kind:
        case Kind.DESCRIPTION:
            return [product.description]
        case Kind.FEATURES:
            return list(product.features)
        case _:
            return list(product.reviews) or ["No reviews."]


def _compact(site: Site, page: Page) -> str:
    if page.kind == Kind.SEARCH:
        return "search page ."
    if page.kind == Kind.RESULTS:
        rows = [
            f"{product.asin.lower()} {product.name} {_price(product.price_tag)}"
            for product in map(site.store.product, site.listed(page))
        ]
        more = f" , {NEXT}" if NEXT in site.links(page) else ""
        return f"results {page.number} : {' , '.join(rows) or 'nothing'}{more} ."
    product = site.product(page)
    if page.kind != Kind.ITEM:
        text = " ".join(" ".join(sub_page(site, page)).split())
        return f"{page.kind} : {text[:COMPACT_LIMIT]} ."
    head = f"item {product.asin.lower()}"
    if page.chosen:  # the rest was told before the first choice
        return f"{head} . chosen : {' , '.join(value for _, value in page.chosen)} ."
    options = [f"{name} : {' , '.join(values)} ." for name, values in product.options]
    return " ".join([f"{head} : {product.name} {_price(product.price_tag)} .", *options])


def _price(tag: str) -> str:
    return tag.replace("$", "")
