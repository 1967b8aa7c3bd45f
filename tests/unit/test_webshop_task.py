"""The task through its tools: pages, prompts, rewards, counted mistakes, options."""

from __future__ import annotations

import asyncio
import gc
import re
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from agentrl.config.models import TaskConfig
from agentrl.errors import ConfigError
from agentrl.messages import Message, Status, ToolCall
from agentrl.tasks.base import Sample, Step, call_message
from agentrl.tasks.play import play_expert
from agentrl.tasks.registry import create_task
from agentrl.tasks.webshop.generator import LEVELS
from agentrl.tasks.webshop.nouns import RuleNouns
from agentrl.tasks.webshop.pages import Kind, Page, Site
from agentrl.tasks.webshop.products import Goal, Product
from agentrl.tasks.webshop.prompts import SYSTEM, Style
from agentrl.tasks.webshop.store import in_memory
from agentrl.tasks.webshop.task import WebShopEpisode, WebShopTask


def lamp(number: int, name: str, price: float, **fields: Any) -> Product:
    made: dict[str, Any] = {
        "asin": f"B0{number}",
        "name": name,
        "description": f"A lamp, number {number}.",
        "features": (f"feature {number}", "a second one"),
        "price": price,
        "price_tag": f"${price}",
        "options": (("color", ("black", "blue")), ("size", ("small", "large"))),
        "attributes": ("solid brass",),
        "query": "lamp",
        "category": "garden",
        "product_category": "Home › Lamps",
    }
    return Product(**{**made, **fields})


SHOP = (
    lamp(1, "Brass Lamp", 20.0),
    lamp(2, "Wooden Lamp", 30.0, attributes=("solid wood",), rating="4.0", reviews=("Nice.",)),
    lamp(3, "Lamp for Reading", 45.0, options=()),
    lamp(4, "Sunny Lamp", 5.0, options=(("left", ("on", "off")), ("right", ("on", "reviews")))),
    lamp(5, "Unsold Lamp", 7.0),
)
GOAL = Goal(
    "B01", "i want a solid brass lamp in blue, and price lower than 40.00 dollars", ("solid brass",),
    ("blue",), 40.0, "lamp", "Brass Lamp", "Home › Lamps",
)  # fmt: skip


@pytest.fixture
def site() -> Site:
    return Site(in_memory((SHOP, [GOAL])), per_page=2, results=5)


@pytest.fixture
def visit(site: Site) -> WebShopEpisode:
    return WebShopEpisode(site, GOAL, RuleNouns(), Style("compact"), 20)


def step(episode: WebShopEpisode, message: Message) -> Step:
    return asyncio.run(episode.step(message))


def search(episode: WebShopEpisode, keywords: str) -> Step:
    return step(episode, call_message("search_action", {"keywords": keywords}))


def click(episode: WebShopEpisode, value: str) -> Step:
    return step(episode, call_message("click_action", {"value": value}))


# -- the site


def test_results_are_paged(site: Site) -> None:
    page = site.search("lamp")
    assert (len(site.found(page)), site.pages(page)) == (5, 3)
    first = site.links(page)
    assert [*first][:2] == ["back to search", "next >"] and len(first) == 4
    second = first["next >"]
    assert [*site.links(second)][:3] == ["back to search", "< prev", "next >"]
    assert site.links(second)["< prev"] == page
    third = site.links(second)["next >"]
    assert "next >" not in site.links(third) and len(site.listed(third)) == 1
    listed = [p for each in (page, second, third) for p in site.listed(each)]
    assert sorted(listed) == [0, 1, 2, 3, 4]
    nothing = site.search("carpet")
    assert (site.pages(nothing), [*site.links(nothing)]) == (1, ["back to search"])


def test_an_item_has_its_buttons_and_options(site: Site) -> None:
    page = site.click(site.search("brass"), " B01 ")
    assert page is not None and page.kind == Kind.ITEM
    assert [*site.links(page)] == [
        "back to search", "< prev", "description", "features", "reviews", "buy now",
        "black", "blue", "small", "large",
    ]  # fmt: skip
    assert site.click(page, "back to search") == Page()
    blue = site.click(page, "BLUE")
    assert blue is not None and blue.chosen == (("color", "blue"),)
    both = site.click(blue, "small")
    assert both is not None
    black = site.click(both, "black")
    assert black is not None and dict(black.chosen) == {"color": "black", "size": "small"}
    described = site.click(black, "description")
    assert described is not None
    assert [*site.links(described)] == ["back to search", "< prev"]
    assert site.click(described, "< prev") == black, "options are kept"
    left = site.click(black, "< prev")
    assert left == site.search("brass"), "and forgotten with the product"


def test_values_that_stand_twice_or_are_buttons(site: Site) -> None:
    page = site.click(site.search("sunny"), "b04")
    assert page is not None
    once = site.click(page, "on")
    assert once is not None and once.chosen == (("left", "on"),)
    twice = site.click(once, "on")
    assert twice is not None and dict(twice.chosen) == {"left": "on", "right": "on"}
    assert site.click(twice, "on") == twice
    reviews = site.click(page, "reviews")
    assert reviews is not None and reviews.kind == Kind.REVIEWS, "a button before an option"


def test_what_is_not_on_the_page_cannot_be_clicked(site: Site) -> None:
    assert site.click(Page(), "search") is None
    assert site.click(Page(), "b01") is None
    assert site.click(site.search("brass"), "b02") is None
    assert site.links(Page(Kind.DONE, position=0)) == {}


# -- episodes


def test_the_purchase_that_was_meant_earns_one(visit: WebShopEpisode) -> None:
    for action in (
        lambda: search(visit, "brass"),
        lambda: click(visit, "b01"),
        lambda: click(visit, "blue"),
    ):
        between = action()
        assert (between.reward, between.done, between.status) == (0.0, False, Status.RUNNING)
    last = click(visit, "buy now")
    assert (last.reward, last.done, last.status) == (1.0, True, Status.COMPLETED)
    assert last.messages[0].content == "You bought B01."
    assert last.metrics == {
        "turns": 4, "invalid_calls": 0, "success": 1.0, "searches": 1, "bought": 1.0, "r_type": 1.0,
        "r_attributes": 1.0, "r_options": 1.0, "r_price": 1.0,
    }  # fmt: skip
    with pytest.raises(RuntimeError):
        click(visit, "buy now")


def test_part_of_it_earns_part(visit: WebShopEpisode) -> None:
    """No attribute, no option, but cheap enough: one of three; "lamp" is one of two nouns."""
    search(visit, "wooden")
    click(visit, "b02")
    last = click(visit, "buy now")
    assert last.reward == pytest.approx(1 / 3) and last.metrics["success"] == 0.0
    assert (last.metrics["r_attributes"], last.metrics["r_price"]) == (0.0, 1.0)


def test_nothing_bought_earns_nothing(site: Site) -> None:
    visit = WebShopEpisode(site, GOAL, RuleNouns(), Style("compact"), 2)
    search(visit, "brass")
    last = click(visit, "b01")
    assert (last.reward, last.done, last.status) == (0.0, True, Status.LIMIT_REACHED)
    assert (last.metrics["bought"], last.metrics["r_price"], last.metrics["success"]) == (0, 0, 0)


def test_what_cannot_be_done_is_said_counted_and_changes_nothing(visit: WebShopEpisode) -> None:
    for attempt in ("search", "buy now", "b01", ""):
        answer = click(visit, attempt)
        assert answer.messages[0].content.startswith("you can not do that here , nothing happens .")
        assert answer.messages[0].content.endswith(f"Task: {GOAL.instruction} .")
    assert search(visit, "  ").metrics["invalid_calls"] == 5
    assert visit.page == Page()


def test_broken_calls_reach_no_page(visit: WebShopEpisode) -> None:
    broken = ToolCall("1", "click_action", '{"value": 3}')
    unknown = ToolCall("2", "buy", "{}")
    good = ToolCall("3", "search_action", '{"keywords": "brass"}')
    answer = step(visit, Message("assistant", "", (broken, unknown, good)))
    assert [m.tool_call_id for m in answer.messages] == ["1", "2", "3"], "each is answered"
    assert "value" in answer.messages[0].content and "Unknown tool" in answer.messages[1].content
    assert answer.messages[2].content.startswith("results 1 :")
    assert (answer.metrics["turns"], answer.metrics["invalid_calls"]) == (1.0, 2.0)
    silent = step(visit, Message("assistant", "hello"))
    assert silent.messages[0].role == "user" and silent.messages[0].content.endswith(" .")


def test_after_the_purchase_further_calls_are_not_carried_out(visit: WebShopEpisode) -> None:
    search(visit, "brass")
    click(visit, "b01")
    buy = ToolCall("1", "click_action", '{"value": "buy now"}')
    again = ToolCall("2", "click_action", '{"value": "blue"}')
    last = step(visit, Message("assistant", "", (buy, again)))
    assert last.reward == pytest.approx(2 / 3) and last.done
    assert last.messages[1].content.startswith("Not carried out")


def test_a_search_is_possible_from_everywhere(visit: WebShopEpisode) -> None:
    search(visit, "brass")
    click(visit, "b01")
    click(visit, "blue")
    assert search(visit, "wooden").metrics["searches"] == 2.0
    assert visit.page == visit.site.search("wooden")


# -- prompts


def test_compact_observations_word_by_word(visit: WebShopEpisode) -> None:
    end = f" Task: {GOAL.instruction} ."
    assert visit.messages == (Message("user", f"search page .{end}"),)
    told = search(visit, "lamp brass").messages[0].content
    assert told.startswith("results 1 : b01 Brass Lamp 20.0 , ") and told.endswith(
        f" , next > .{end}"
    )
    item = "item b01 : Brass Lamp 20.0 . color : black , blue . size : small , large ."
    assert click(visit, "b01").messages[0].content == f"{item}{end}"
    assert click(visit, "blue").messages[0].content == f"item b01 . chosen : blue .{end}"
    assert click(visit, "small").messages[0].content == f"item b01 . chosen : blue , small .{end}"
    assert click(visit, "features").messages[0].content == (
        f"features : feature 1 a second one .{end}"
    )
    click(visit, "< prev")
    assert click(visit, "reviews").messages[0].content == f"reviews : No reviews. .{end}"
    assert search(visit, "carpet").messages[0].content == f"results 1 : nothing .{end}"


def test_agentbench_observations_word_by_word(site: Site) -> None:
    visit = WebShopEpisode(site, GOAL, RuleNouns(), Style("agentbench"), 20)
    head = f"Instruction: [SEP] {GOAL.instruction} [SEP] "
    system, user = visit.messages
    assert (system.role, system.content) == ("system", SYSTEM)
    assert user.content.endswith(
        f"Observation:\n{head}Search\n\nAvailable Actions:\n{{'has_search_bar': True, 'clickables': []}}"
    )
    assert search(visit, "wooden").messages[0].content == (
        f"Action: search[wooden]\n\nObservation:\n{head}Back to Search [SEP] Page 1 (Total results: 1)"
        " [SEP] B02 [SEP] Wooden Lamp [SEP] $30.0\n\nAvailable Actions:\n"
        "{'has_search_bar': False, 'clickables': ['back to search', 'b02']}"
    )
    click(visit, "b02")
    told = click(visit, "Blue").messages[0].content
    assert told.startswith("Action: click[blue]\n\nObservation:\n")
    assert (
        "Back to Search [SEP] < Prev [SEP] color [SEP] black [SEP] blue [SEP] size [SEP] small [SEP] "
        "large [SEP] Wooden Lamp [SEP] Price: $30.0 [SEP] Rating: 4.0 [SEP] Chosen: color blue [SEP] "
        "Description [SEP] Features [SEP] Reviews [SEP] Buy Now\n" in told
    )
    assert (
        "Back to Search [SEP] < Prev [SEP] Nice.\n" in click(visit, "reviews").messages[0].content
    )
    wrong = click(visit, "buy now").messages[0].content
    assert wrong.startswith("Action: click[buy now]\n\nyou can not do that here")
    assert "'clickables': ['back to search', '< prev']" in wrong


# -- the task


@pytest.mark.parametrize("level", LEVELS)
def test_without_noise_every_sample_is_solved(level: str) -> None:
    async def solve(split: str, count: int) -> list[float]:
        task = WebShopTask(TaskConfig(level=level, std_samples=500))
        samples = task.samples(split)
        return [(await play_expert(task, samples[i], i)).last.reward for i in range(count)]

    rewards = asyncio.run(solve("std", 500))
    assert sum(reward == 1.0 for reward in rewards) >= 0.99 * len(rewards)


def test_noise_makes_it_unreliable_by_degrees_and_by_seed() -> None:
    async def play(noise: float, groups: int) -> list[list[float]]:
        task = WebShopTask(TaskConfig())
        samples = task.samples("train")
        return [
            [(await play_expert(task, samples[i], seed, noise)).last.reward for seed in range(4)]
            for i in range(groups)
        ]

    rates = []
    for noise in (0.1, 0.3, 0.6):
        groups = asyncio.run(play(noise, 50))
        rates.append(sum(reward == 1.0 for group in groups for reward in group) / 200)
    assert rates == sorted(rates, reverse=True) and 0.35 <= rates[1] <= 0.7
    mixed = [group for group in asyncio.run(play(0.3, 50)) if len({*group}) > 1]
    assert len(mixed) >= 30, "RL needs groups that are not all right or all wrong"


def test_the_registry_builds_it() -> None:
    built = create_task("webshop", TaskConfig())
    assert (built.name, built.level) == ("webshop", "easy, nouns by rule")
    assert [tool.name for tool in built.tools] == ["search_action", "click_action"]
    for tool in built.tools:
        assert tool.parameters["additionalProperties"] is False
        assert len(tool.parameters["required"]) == 1
    assert len(built.samples("std")) == 200
    with pytest.raises(ConfigError, match="no split 'test'; splits: std, dev, train"):
        built.samples("test")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"product": 5},
            "unknown config key 'tasks.webshop.options.product'; known keys: products,",
        ),
        (
            {"products": 5},
            "'tasks.webshop.options.products': .*greater than or equal to 100 .got 5.",
        ),
        ({"nouns": "lg"}, r"'tasks.webshop.options.nouns': .*'rule' or 'spacy' \(got 'lg'\)"),
        (
            {"products": 60_000},
            r"options.cache': not set, but 60,000 products are more than 50,000",
        ),
    ],
)
def test_bad_options_are_one_line(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        WebShopTask(TaskConfig(options=options))
    assert "\n" not in str(caught.value)


def test_a_shop_from_disk_says_the_same(tmp_path: Path) -> None:
    async def told(options: dict[str, Any]) -> list[str]:
        task = WebShopTask(TaskConfig(options={"products": 200, **options}))
        played = [await play_expert(task, task.samples("dev")[i], i, 0.3) for i in range(10)]
        await task.close()
        await task.close()
        return [m.content for each in played for m in (*each.opening, *each.messages)]

    memory = asyncio.run(told({}))
    assert asyncio.run(told({"cache": str(tmp_path)})) == memory
    assert asyncio.run(told({"cache": str(tmp_path)})) == memory, "found again"
    assert asyncio.run(told({"seed": 1})) != memory


def test_episodes_share_nothing() -> None:
    """Interleaved as one after the other (pitfall 40)."""

    async def play(together: int) -> list[list[str]]:
        task = WebShopTask(TaskConfig())
        told: list[list[str]] = [[] for _ in range(24)]
        for first in range(0, 24, together):
            live = []
            for index in range(first, first + together):
                sample = task.samples("train")[index]
                episode = await task.start(sample, index)
                live.append((index, episode, task.expert(sample, index, 0.3), episode.messages))
            while live:
                still = []
                for index, episode, expert, news in live:
                    taken = await episode.step(expert.act(news))
                    told[index] += [m.content for m in taken.messages]
                    if not taken.done:
                        still.append((index, episode, expert, taken.messages))
                live = still
        return told

    assert asyncio.run(play(24)) == asyncio.run(play(1))


def test_abandoned_episodes_hold_nothing() -> None:
    """Memory of a task does not grow with episodes, finished or not (pitfall 39)."""

    async def visit(task: WebShopTask, count: int) -> None:
        for index in range(count):
            sample = Sample("webshop", "train", index % 40)
            episode = await task.start(sample, index)
            expert = task.expert(sample, index, 0.5)
            news = episode.messages
            for _ in range(index % 4):
                taken = await episode.step(expert.act(news))
                news = taken.messages
                if taken.done:
                    break
            await episode.close()

    async def grown() -> int:
        task = WebShopTask(TaskConfig(options={"products": 200}))
        await visit(task, 400)
        gc.collect()
        tracemalloc.start()
        await visit(task, 200)
        gc.collect()
        size, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return size

    assert asyncio.run(grown()) < 1_000_000


def test_every_sample_is_a_function_of_its_index() -> None:
    one, other = WebShopTask(TaskConfig()), WebShopTask(TaskConfig())
    for index in (7, 3, 7):
        assert one.goal(Sample("webshop", "dev", index)) == other.goal(
            Sample("webshop", "dev", index)
        )
    assert re.fullmatch(
        r"find [a-z ]+( , [a-z]+ [a-z]+){1,2} , price below \d\d",
        one.goal(Sample("webshop", "std", 0)).instruction,
    )
