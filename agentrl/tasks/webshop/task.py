"""The WebShop task: search, look, choose, buy. One shop for all episodes, one page for each.

Invariants: the reward is computed from the product and the options on our page, at the purchase and only
then (invariant 10); an episode holds a page and nothing else, so there is nothing to give back
(invariant 11, pitfall 39); keywords are words and never operators; what cannot be clicked is answered
as such and counted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

from agentrl.config.models import TaskConfig
from agentrl.errors import ConfigError, DataError
from agentrl.messages import ToolSpec
from agentrl.randomness import stream
from agentrl.tasks.base import Sample, SampleRange, Task, ToolEpisode, ToolResult
from agentrl.tasks.webshop import official
from agentrl.tasks.webshop.expert import CLICK_TOOL, SEARCH_TOOL, WebShopExpert
from agentrl.tasks.webshop.generator import LEVELS, Generator
from agentrl.tasks.webshop.nouns import Nouns, open_nouns
from agentrl.tasks.webshop.options import IN_MEMORY, read_options
from agentrl.tasks.webshop.pages import Kind, Page, Site
from agentrl.tasks.webshop.products import Goal
from agentrl.tasks.webshop.prompts import Style
from agentrl.tasks.webshop.scoring import Score, score
from agentrl.tasks.webshop.store import Store, in_memory, open_store

SEARCH = ToolSpec(
    SEARCH_TOOL,
    "Search the shop for keywords.",
    {
        "type": "object",
        "properties": {"keywords": {"type": "string", "description": "words of the product"}},
        "required": ["keywords"],
        "additionalProperties": False,
    },
)
CLICK = ToolSpec(
    CLICK_TOOL,
    "Click a button, a product or an option of the page.",
    {
        "type": "object",
        "properties": {"value": {"type": "string", "description": "what to click, as it stands"}},
        "required": ["value"],
        "additionalProperties": False,
    },
)

NOTHING_HAPPENS = "you can not do that here , nothing happens ."


class WebShopEpisode(ToolEpisode):
    """One visit to the shop."""

    def __init__(self, site: Site, goal: Goal, nouns: Nouns, style: Style, max_turns: int) -> None:
        super().__init__((SEARCH, CLICK), style.opening(site, goal), max_turns)
        self.site, self.goal, self.nouns, self.style = site, goal, nouns, style
        self.page = Page()
        self.searches = 0
        self.score: Score | None = None
        """Of the purchase."""

    async def call(self, name: str, arguments: dict[str, Any]) -> ToolResult:
        if name == SEARCH.name:
            words = arguments["keywords"].strip()
            self.searches += 1
            return self._go(f"search[{words}]", self.site.search(words) if words else None)
        value = arguments["value"].strip().lower()
        return self._go(f"click[{value}]", self.site.click(self.page, value))

    def _go(self, action: str, page: Page | None) -> ToolResult:
        if page is None:
            text = self.style.answer(self.site, self.page, action, NOTHING_HAPPENS)
            return ToolResult(text, valid=False)
        self.page = page
        if page.kind != Kind.DONE:
            return ToolResult(self.style.answer(self.site, page, action))
        product = self.site.product(page)
        self.score = score(product, [value for _, value in page.chosen], self.goal, self.nouns)
        return ToolResult(f"You bought {product.asin}.", self.score.reward, done=True)

    def observe(self, text: str) -> str:
        return self.style.remind(self.site, self.page, self.goal, text)

    def metrics(self, done: bool) -> dict[str, float]:
        """At the end also the parts of the reward, all 0 where nothing was bought."""
        out = {**super().metrics(done), "searches": float(self.searches)}
        if done:
            bought = self.score or Score(0.0, 0.0, 0.0, 0.0, 0.0)
            out |= {
                "bought": float(self.score is not None),
                "r_type": bought.type,
                "r_attributes": bought.attributes,
                "r_options": bought.options,
                "r_price": bought.price,
            }
        return out


class WebShopTask(Task):
    """A generated shop of one level, or WebShop's own. It is opened (or built) by the first use."""

    name: ClassVar[str] = "webshop"
    tools: ClassVar[tuple[ToolSpec, ...]] = (SEARCH, CLICK)

    def __init__(self, config: TaskConfig, data_root: Path | None = None) -> None:
        self.config = config
        self.options = read_options(config.options)
        self.style = Style(config.prompt)
        self.nouns = open_nouns(self.options.nouns)
        self.files = None
        if config.source == "official":
            self.files = official.find_files(data_root, self.options.edition)
            origin = "official" if self.options.edition == "all" else "official small"
            self._need_cache("source is 'official'")
        else:
            self.generator = Generator(config.level, self.options.products, self.options.seed)
            origin = config.level
            if self.generator.count > IN_MEMORY:
                self._need_cache(f"{self.generator.count:,} products are more than {IN_MEMORY:,}")
        self.level = f"{origin}, {self.nouns.label}"
        self._site: Site | None = None
        self.goal = lru_cache(1024)(self._goal)

    @property
    def site(self) -> Site:
        """The open shop."""
        if self._site is None:
            level = LEVELS["hard" if self.files else self.config.level]
            self._site = Site(self._open(), level.per_page, level.results)
        return self._site

    def samples(self, split: str) -> Sequence[Sample]:
        """Generated: as many as configured. Official: goals by their index, at most as configured."""
        if split not in official.SPLITS:
            raise ConfigError(
                f"webshop has no split {split!r}; splits: {', '.join(official.SPLITS)}"
            )
        count = int(getattr(self.config, f"{split}_samples"))
        if self.files is None:
            return SampleRange(self.name, split, count)
        first, end = official.SPLITS[split]
        last = min(end, self.site.store.goals, first + count)
        if last <= first:
            raise DataError(
                f"{self.files.instructions}: {self.site.store.goals} instructions for these products,"
                f" but split {split!r} starts at number {first}"
            )
        return [Sample(self.name, split, index) for index in range(first, last)]

    def _goal(self, sample: Sample) -> Goal:
        """What a sample asks for, solution included: for episodes, experts and tests."""
        if self.files is None:
            return self.generator.goal(sample.split, sample.index)
        return self.site.store.goal(sample.index)

    async def start(self, sample: Sample, seed: int) -> WebShopEpisode:
        """A fresh visit; nothing in it is random besides the sample."""
        if self._site is None:  # minutes, where a large shop has to be built
            await asyncio.to_thread(lambda: self.site)
        goal = self.goal(sample)
        return WebShopEpisode(self.site, goal, self.nouns, self.style, self.config.max_turns)

    def expert(self, sample: Sample, seed: int, noise: float = 0.0) -> WebShopExpert:
        rng = stream(seed, "webshop-expert", sample.split, sample.index)
        trust = self.files is None
        return WebShopExpert(self.site, self.goal(sample), rng, noise, reads_titles=trust)

    async def close(self) -> None:
        if self._site is not None:
            self._site.store.close()
            self._site = None

    def _open(self) -> Store:
        files, options = self.files, self.options
        if files is not None:
            assert options.cache is not None
            return open_store(
                options.cache,
                f"webshop-official-{options.edition}",
                {**files.key(), "seed": options.seed},
                lambda scratch: official.read_shop(files, scratch, options.seed),
            )
        made = self.generator
        if options.cache is None:
            return in_memory((made.products(), ()))
        return open_store(
            options.cache,
            f"webshop-{made.name}-{made.count}",
            {"level": made.name, "products": made.count, "seed": made.seed},
            lambda _: (made.products(), ()),
        )

    def _need_cache(self, why: str) -> None:
        if self.options.cache is None:
            raise ConfigError(
                f"config key 'tasks.webshop.options.cache': not set, but {why}; give a folder with "
                "room for the shop (about 2 kB a product)"
            )
