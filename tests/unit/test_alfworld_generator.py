"""Generated games: deterministic, solvable, disjoint by content; and rules that hold on any walk."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentrl.errors import ConfigError
from agentrl.tasks.alfworld.catalog import LAMP, ROOMS, THINGS
from agentrl.tasks.alfworld.engine import Game, World
from agentrl.tasks.alfworld.generator import Generator, save
from agentrl.tasks.alfworld.goals import TREATMENTS, TYPES, goal_of
from agentrl.tasks.alfworld.layouts import LEVELS, SPLITS, Layout

LOOKING = ("look", "inventory", "help", "examine ")


@cache
def game(level: str, split: str, index: int, language: str = "agentbench") -> Game:
    return Generator(level, language).game(split, index)  # type: ignore[arg-type]


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("language", ["agentbench", "alfworld"])
def test_walkthroughs_win_and_goals_do_not_hold_at_the_start(level: str, language: str) -> None:
    for index, kind in enumerate(TYPES):
        made = game(level, "dev", index, language)
        assert goal_of(made).type == kind
        assert made.solvable
        world = made.start()
        assert not world.won
        for command in made.walkthrough:
            assert not world.won
            assert world.step(command)
        assert world.won


def test_games_are_functions_of_split_and_index() -> None:
    again = Generator("easy").game("train", 3)
    assert again.data == game("easy", "train", 3).data
    assert again.data != game("easy", "train", 9).data
    assert again.data != game("easy", "std", 3).data


def test_a_saved_game_is_the_same_game(tmp_path: Path) -> None:
    made = game("easy", "std", 1)
    save(made.data, tmp_path / "a" / "game.tw-pddl")
    loaded = Game.load(tmp_path / "a" / "game.tw-pddl")
    assert loaded.intro == made.intro
    assert loaded.walkthrough == made.walkthrough


@pytest.mark.parametrize("level", LEVELS)
def test_no_content_is_in_two_splits(level: str) -> None:
    counts = {"easy": 1000, "medium": 300, "hard": 60}[level]
    generator = Generator(level)
    seen = {
        split: {generator.layout(split, index)[0].signature() for index in range(counts)}
        for split in SPLITS
    }
    assert not seen["train"] & seen["std"]
    assert not seen["train"] & seen["dev"]
    assert not seen["dev"] & seen["std"]
    assert len(seen["train"]) > 0.9 * counts, "games of one split are nearly all different"


def test_signatures_ignore_order_and_see_content() -> None:
    one = Layout("pick_and_place", "kitchen", "Mug", "Fridge",
                 (("Fridge", ()), ("Shelf", ("Mug", "Cup")), ("Shelf", ())))  # fmt: skip
    same = Layout("pick_and_place", "kitchen", "Mug", "Fridge",
                  (("Shelf", ()), ("Shelf", ("Cup", "Mug")), ("Fridge", ())))  # fmt: skip
    other = Layout("pick_and_place", "kitchen", "Mug", "Fridge",
                   (("Shelf", ("Cup",)), ("Shelf", ("Mug",)), ("Fridge", ())))  # fmt: skip
    assert one.signature() == same.signature() != other.signature()
    assert one.split() == same.split()


def test_every_split_speaks_of_the_same_types() -> None:
    generator = Generator("easy")

    def words(split: str) -> set[str]:
        layouts = [generator.layout(split, index)[0] for index in range(1500)]
        stock = {kind for one in layouts for kind, _ in one.receptacles}
        return stock | {t for one in layouts for _, things in one.receptacles for t in things}

    train = words("train")
    assert train == words("std") == words("dev")
    assert train == set(THINGS) | {LAMP} | {r for room in ROOMS.values() for r in room.receptacles}


@pytest.mark.parametrize("level", LEVELS)
def test_levels_bound_the_size(level: str) -> None:
    for index in range(30):
        layout = Generator(level).layout("train", index)[0]
        things = sum(len(contents) for _, contents in layout.receptacles)
        low, high = LEVELS[level].receptacles
        assert low <= len(layout.receptacles) <= high
        assert LEVELS[level].things[0] <= things <= LEVELS[level].things[1] + 5
        for kind, contents in layout.receptacles:
            assert all(t == LAMP or kind in THINGS[t].places for t in contents)


def test_levels_and_types_are_checked_and_kept() -> None:
    with pytest.raises(ConfigError, match=r"tasks\.alfworld\.level': 'tiny' is not one of easy"):
        Generator("tiny")
    only = Generator("easy", types=("look_at_obj",))
    assert {goal_of(only.game("train", index)).type for index in range(3)} == {"look_at_obj"}


def test_another_seed_is_another_set_of_games_in_every_split() -> None:
    for split in ("train", "dev", "std"):
        one, other = Generator("easy"), Generator("easy", seed=1)
        pairs = [(one.layout(split, i)[0], other.layout(split, i)[0]) for i in range(30)]
        assert sum(a.signature() == b.signature() for a, b in pairs) <= 3  # easy games are few
        assert all(b.split() == split for _, b in pairs)


def wins(world: World) -> bool:
    """The six goals once more, by plain loops over the facts."""
    goal = goal_of(world.game)
    kinds = world.game.object_types
    targets = [o for o, t in kinds.items() if goal.target in t]
    if goal.type == "look_at_obj":
        lit = [o for o, t in kinds.items() if goal.lamp in t and world.is_true("istoggled", o)]
        return any(o in world.held for o in targets) and any(
            lamp in world.contents(place) for lamp in lit for place in world.here
        )
    if goal.type in TREATMENTS:
        targets = [o for o in targets if world.is_true(TREATMENTS[goal.type][0], o)]
    there = [
        sum(o in targets for o in world.contents(r))
        for r in world.game.receptacles
        if world.game.is_kind(r, goal.destination)
    ]
    return max(there, default=0) >= (2 if goal.type == "pick_two_obj" else 1)


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(["easy", "medium"]),
    st.integers(0, 11),
    st.sampled_from(["agentbench", "alfworld"]),
    st.booleans(),
    st.lists(st.integers(0, 1000), max_size=40),
)
def test_any_walk_keeps_the_rules(
    level: str, index: int, language: str, start_won: bool, choices: list[int]
) -> None:
    """From the start, or from just before the end, where walks into and out of the goal happen."""
    world = game(level, "train", index, language).start()
    if start_won:
        for command in world.game.walkthrough[:-1]:
            world.step(command)
    for choice in choices:
        commands = world.commands
        assert commands == sorted(set(commands))
        command = commands[choice % len(commands)]
        before = {name: set(facts) for name, facts in world.facts.items() if "checked" not in name}
        held = world.held
        assert world.step(command)
        after = {name: set(facts) for name, facts in world.facts.items() if "checked" not in name}
        again = command.startswith(("heat", "cool", "clean", "slice"))
        assert again or (before != after) != command.startswith(LOOKING)
        assert world.won == wins(world)
        assert len(world.held) <= 1
        assert command.startswith(("take", "put", "move")) == (held != world.held)
        carried = [thing for thing, _ in world.facts["inreceptacle"]]
        assert len(carried) == len(set(carried)), "a thing is in one place"
        assert not set(carried) & set(world.held)
