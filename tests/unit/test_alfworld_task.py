"""The task: prompts, rewards, counted mistakes, options, and official games from files."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from alfworld_kitchen import kitchen

from agentrl.config.models import TaskConfig
from agentrl.errors import ConfigError, DataError
from agentrl.messages import Message, Status, ToolCall
from agentrl.tasks.alfworld.engine import Game
from agentrl.tasks.alfworld.generator import Generator, save
from agentrl.tasks.alfworld.goals import TYPES, goal_of
from agentrl.tasks.alfworld.prompts import Style
from agentrl.tasks.alfworld.task import AlfworldEpisode, AlfworldTask
from agentrl.tasks.base import Sample, Step, call_message
from agentrl.tasks.registry import create_task

RECORDS = Path(
    os.environ.get("AGENTRL_DATA_ROOT", Path(__file__).parents[2].parent / "shared/data/agentbench")
)


def task(**settings: Any) -> AlfworldTask:
    return AlfworldTask(TaskConfig(**{"max_turns": 12, **settings}))


def begin(one: AlfworldTask, index: int = 2, split: str = "std") -> AlfworldEpisode:
    return asyncio.run(one.start(one.samples(split)[index], 0))


def act(episode: AlfworldEpisode, command: str) -> Step:
    return asyncio.run(episode.step(call_message("take_action", {"action": command})))


def test_the_registry_builds_it() -> None:
    built = create_task("alfworld", TaskConfig())
    assert built.name == "alfworld"
    assert built.level == "easy"
    (tool,) = built.tools
    assert tool.name == "take_action"
    assert tool.parameters["additionalProperties"] is False
    assert tool.parameters["required"] == ["action"]


@pytest.mark.parametrize("prompt", ["compact", "agentbench"])
def test_a_walkthrough_earns_the_reward_once_and_ends(prompt: str) -> None:
    one = task(prompt=prompt)
    episode = begin(one)
    walkthrough = one.game(one.samples("std")[2]).walkthrough
    for command in walkthrough[:-1]:
        step = act(episode, command)
        assert (step.reward, step.done, step.status) == (0.0, False, Status.RUNNING)
    step = act(episode, walkthrough[-1])
    assert (step.reward, step.done, step.status) == (1.0, True, Status.COMPLETED)
    assert step.metrics == {"turns": len(walkthrough), "invalid_calls": 0.0, "success": 1.0}
    with pytest.raises(RuntimeError):
        act(episode, "look")


def test_what_is_not_possible_is_said_counted_and_never_replaced() -> None:
    episode = begin(task(prompt="agentbench"))
    opening = episode.messages[1].content
    (right,) = re.findall(r"^go to countertop 1$", opening, re.M)
    before = episode.world.commands
    step = act(episode, f"{right} please")
    assert step.messages[0].content.startswith(
        "Nothing happens. That is not one of the available actions.\n\nAVAILABLE ACTIONS:\n"
    )
    assert step.metrics["invalid_calls"] == 1
    assert (step.reward, step.done) == (0.0, False)
    assert episode.world.commands == before
    assert act(episode, f"  {right.upper()} ").metrics["invalid_calls"] == 1, "case is no matter"
    assert act(episode, right).metrics["invalid_calls"] == 2, "one is there already"


def test_broken_calls_reach_no_game() -> None:
    episode = begin(task())
    call = ToolCall("1", "take_action", '{"action": "look", "why": "x"}')
    step = asyncio.run(episode.step(Message("assistant", "", (call,))))
    assert "additional properties" in step.messages[0].content.lower()
    assert step.messages[0].content.endswith(f"Task: {episode.world.game.task}.")
    assert step.metrics["invalid_calls"] == 1
    assert episode.world.moves == 0


def test_the_turn_limit_ends_with_nothing() -> None:
    episode = begin(task(max_turns=2))
    assert not act(episode, "look").done
    step = act(episode, "inventory")
    assert (step.done, step.reward, step.status) == (True, 0.0, Status.LIMIT_REACHED)


def test_compact_observations_word_by_word() -> None:
    world = Game.parse(kitchen(), "kitchen").start()
    episode = AlfworldEpisode(world, Style("compact", admissible=False), 30)
    end = " Task: put a hot apple in fridge."
    (opening,) = episode.messages
    assert opening == Message(
        "user", f"you see countertop 2, countertop 1, fridge 1, microwave 1, sinkbasin 1.{end}"
    )
    for command, text in [
        ("go to countertop 2", "you see on countertop 2: apple 2, knife 1."),
        ("take apple 2 from countertop 2", "you take apple 2 from countertop 2. holding apple 2."),
        ("clean apple 2 with sinkbasin 1", "you clean apple 2 with sinkbasin 1. holding clean apple 2."),
        ("go to fridge 1", "you see fridge 1 closed. holding clean apple 2."),
        ("go to the moon", "you can not do that now, nothing happens."),
        ("open fridge 1", "you see in fridge 1: apple 1. holding clean apple 2."),
        ("put apple 2 in/on fridge 1", "you put apple 2 in fridge 1."),
        ("close fridge 1", "you close fridge 1."),
        ("inventory", "you are not carrying anything."),
        ("open fridge 1", "you see in fridge 1: apple 2, apple 1."),
        ("take apple 2 from fridge 1", "you take apple 2 from fridge 1. holding clean apple 2."),
        ("go to microwave 1", "you see microwave 1 closed. holding clean apple 2."),
        ("heat apple 2 with microwave 1", "you heat apple 2 with microwave 1. holding hot clean apple 2."),
        ("open microwave 1", "you see in microwave 1: nothing. holding hot clean apple 2."),
        ("go to countertop 1", "you see on countertop 1: bowl 1, desklamp 1. holding hot clean apple 2."),
        ("use desklamp 1", "you use desklamp 1. holding hot clean apple 2."),
        ("go to fridge 1", "you see in fridge 1: apple 1. holding hot clean apple 2."),
    ]:  # fmt: skip
        step = act(episode, command)
        assert step.messages[0].content == text + end
    step = act(episode, "put apple 2 in/on fridge 1")
    assert step.messages[0].content == "you put apple 2 in fridge 1."
    assert step.reward == 1.0


def test_compact_text_is_lower_case_words_after_spaces() -> None:
    """Every word and number follows a space, so that one token serves all its places."""
    one = task(level="medium", max_turns=50)
    for index in range(12):
        episode = begin(one, index)
        texts = [episode.messages[0].content]
        for command in ["look", "inventory", "dance", *episode.world.game.walkthrough]:
            step = act(episode, command)
            texts += [message.content for message in step.messages]
        for text in texts:
            assert text.startswith("you ")
            assert "\n" not in text
            assert text.replace(" Task:", "").islower()
            assert re.fullmatch(r"you(?: [a-z]+| \d+|[.,:](?= |$)| Task(?=:))*", text), text


def test_an_opening_tells_where_nothing_is() -> None:
    """The things in the rooms, but the target's own word in the task, are not named."""
    for prompt in ("compact", "agentbench"):
        one = task(prompt=prompt, level="medium")
        for index in range(24):
            sample = one.samples("train")[index]
            game = one.game(sample)
            text = " ".join(message.content for message in begin(one, index, "train").messages)
            goal = goal_of(game)
            for thing, kinds in game.object_types.items():
                assert game.entities[thing].name not in text
                word = game.entities[thing].name.rsplit(" ", 1)[0]
                if not {goal.target, goal.lamp} & set(kinds):
                    assert word not in text.split()


def test_agentbench_opening_and_observations() -> None:
    episode = begin(task(prompt="agentbench"))
    system, user = episode.messages
    assert (system.role, user.role) == ("system", "user")
    assert "take_action" in system.content
    room, goal, actions = user.content.split("\n\n")
    assert room.startswith(
        "You are in the middle of a room. Looking quickly around you, you see a "
    )
    assert goal.startswith("Your task is to: ")
    assert actions.splitlines() == ["AVAILABLE ACTIONS:", *episode.world.commands]
    text = act(episode, "go to countertop 1").messages[0].content
    assert text.startswith("On the countertop 1, you see "), "no number of a location"


def test_admissible_lists_can_be_switched() -> None:
    quiet = begin(task(prompt="agentbench", options={"admissible": False}))
    assert "AVAILABLE" not in quiet.messages[1].content
    listing = begin(task(options={"admissible": True}))
    assert f" Actions: {', '.join(listing.world.commands)}. Task:" in listing.messages[0].content


def test_languages() -> None:
    one = task(options={"grammar": "alfworld", "types": ["pick_and_place"]})
    assert one.game(one.samples("dev")[0]).walkthrough[-1].startswith("move ")


def test_samples_are_as_many_as_configured() -> None:
    one = task(train_samples=7, std_samples=3)
    assert len(one.samples("train")) == 7
    assert one.samples("std")[2] == Sample("alfworld", "std", 2)
    with pytest.raises(DataError, match="no split 'test'"):
        one.samples("test")


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"level": "huge"}, r"tasks\.alfworld\.level': 'huge' is not one of easy, medium, hard"),
        ({"options": {"gramar": "x"}}, r"options\.gramar': Extra .*; options: grammar, admissible"),
        ({"options": {"grammar": "x"}}, r"options\.grammar': Input should be 'agentbench' or"),
        ({"options": {"types": []}}, r"options\.types': "),
        ({"source": "official", "options": {}}, r"options\.games_root': not set"),
        ({"source": "official", "options": {"games_root": "/nowhere"}}, "/nowhere is not a folder"),
    ],
)
def test_wrong_settings_are_one_line(settings: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=why) as caught:
        task(**settings)
    assert "\n" not in str(caught.value)


@pytest.fixture
def official(tmp_path: Path) -> Path:
    """A data root and games below it, in AgentBench's layout; one listed game is missing."""
    generator = Generator("easy")
    index = {kind: [f"json_2.1.1/{kind}-{n}/game.tw-pddl" for n in (0, 1)] for kind in TYPES}
    for number, (kind, paths) in enumerate(index.items()):
        for n, path in enumerate(paths):
            if (kind, n) != ("look_at_obj", 1):
                save(generator.game("std", number + 6 * n).data, tmp_path / "games" / path)
    (tmp_path / "alfworld").mkdir()
    for name in ("train_valid.json", "dev.json", "new_std.json"):
        (tmp_path / "alfworld" / name).write_text(json.dumps(index))
    return tmp_path


def official_task(root: Path, **options: Any) -> AlfworldTask:
    settings = {"games_root": str(root / "games"), **options}
    return AlfworldTask(TaskConfig(source="official", options=settings, max_turns=20), root)


def test_official_games_are_indexed_in_file_order_and_played(official: Path) -> None:
    one = official_task(official)
    assert one.level == "official"
    assert len(one.samples("std")) == 12
    sample = one.samples("std")[3]
    assert goal_of(one.game(sample)).type == "pick_clean_then_place"
    episode = asyncio.run(one.start(sample, 0))
    expert = one.expert(sample, 0)
    step = Step(episode.messages)
    while not step.done:
        step = asyncio.run(episode.step(expert.act(step.messages)))
    assert step.reward == 1.0


def test_games_in_the_data_root_need_no_setting(official: Path) -> None:
    shutil.move(official / "games" / "json_2.1.1", official / "alfworld")
    one = AlfworldTask(TaskConfig(source="official"), official)
    assert goal_of(one.game(one.samples("std")[3])).type == "pick_clean_then_place"


def test_official_samples_keep_their_index_under_a_filter(official: Path) -> None:
    one = official_task(official, types=["pick_heat_then_place"])
    assert [sample.index for sample in one.samples("dev")] == [4, 5]


def test_official_faults_name_the_file(official: Path) -> None:
    one = official_task(official)
    with pytest.raises(DataError, match=r"look_at_obj-1/game\.tw-pddl: cannot be read"):
        asyncio.run(one.start(Sample("alfworld", "std", 9), 0))
    (official / "alfworld" / "dev.json").write_text("[1]")
    with pytest.raises(DataError, match=r"dev\.json: not a JSON object of task types"):
        official_task(official)
    (official / "alfworld" / "dev.json").unlink()
    with pytest.raises(DataError, match=r"dev\.json: cannot be read: No such file"):
        official_task(official)
    with pytest.raises(ConfigError, match="config key 'data_root': not set"):
        AlfworldTask(TaskConfig(source="official", options={"games_root": str(official)}), None)


@pytest.mark.skipif(
    not (RECORDS / "alfworld").is_dir(), reason=f"no AgentBench records in {RECORDS}"
)
def test_agentbenchs_index_has_its_known_sizes(tmp_path: Path) -> None:
    """3150 / 20 / 109 games (spec/tasks.md, counted from the files)."""
    config = TaskConfig(source="official", options={"games_root": str(tmp_path)})
    one = AlfworldTask(config, RECORDS)
    assert [len(one.samples(split)) for split in ("train", "dev", "std")] == [3150, 20, 109]
    options = {"games_root": str(tmp_path), "types": ["pick_heat_then_place"]}
    heat = AlfworldTask(TaskConfig(source="official", options=options), RECORDS).samples("std")
    assert len(heat) == 27
    assert heat[0].index == 9 + 5, "after 9 pick_and_place and 5 pick_clean_then_place"
