"""Differential test: our engine against TextWorld on the same games and the same commands.

TextWorld runs in a process (and, if AGENTRL_TEXTWORLD_PYTHON names one, a python) of its own and
writes what it saw; here the same commands are played and every text, command list and win compared.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from agentrl.tasks.alfworld.engine import Game, World
from agentrl.tasks.alfworld.generator import Generator, save
from agentrl.tasks.alfworld.goals import TYPES, goal_of
from agentrl.tasks.alfworld.planner import solve

ORACLE = Path(__file__).with_name("textworld_oracle.py")
RANDOM_STEPS = 36
NEEDS = """import textworld, fast_downward, alfworld.agents.environment.alfred_tw_env
print(alfworld.__path__[0])"""


@pytest.fixture(scope="module")
def oracle() -> tuple[str, Path]:
    """A python with TextWorld in it, and the folder of its alfworld package."""
    path = os.environ.get("AGENTRL_TEXTWORLD_PYTHON", sys.executable)
    probe = subprocess.run([path, "-c", NEEDS], capture_output=True, text=True, check=False)
    if probe.returncode:
        why = probe.stderr.strip().splitlines()[-1] if probe.stderr else "cannot run"
        pytest.skip(
            f"no TextWorld in {path} ({why}); set AGENTRL_TEXTWORLD_PYTHON to a python that has "
            "textworld[pddl] and alfworld"
        )
    return path, Path(probe.stdout.strip())


def shared_locations(data: dict[str, Any]) -> dict[str, Any]:
    """The same game with two receptacles at each location, as some official games have."""
    problem = data["pddl_problem"]
    for number in range(2, 12, 2):
        problem = re.sub(rf"\bloc_bar_{number}\b", f"loc_bar_{number - 1}", problem)
    declared = re.search(r"\n(loc_bar_.*) - location", problem)
    assert declared is not None
    problem = problem.replace(declared[1], " ".join(dict.fromkeys(declared[1].split())))
    game = Game.parse({**data, "pddl_problem": problem}, "shared")
    return {**game.data, "walkthrough": solve(game.start(), goal_of(game)) or []}


@pytest.fixture(scope="module")
def games(tmp_path_factory: pytest.TempPathFactory, oracle: tuple[str, Path]) -> Path:
    """30 games: all six types in both languages and two sizes, two big ones, four shared.

    Those of medium size in alfworld's language carry the domain and grammar that it ships.
    """
    folder = tmp_path_factory.mktemp("games")
    domain = (oracle[1] / "data" / "alfred.pddl").read_text(encoding="utf-8")
    grammar = (oracle[1] / "data" / "alfred.twl2").read_text(encoding="utf-8")
    for language in ("agentbench", "alfworld"):
        for level in ("easy", "medium"):
            generator = Generator(level, language)
            for index, kind in enumerate(TYPES):
                game = generator.game("std", index)
                data = dict(game.data)
                if (language, level) == ("alfworld", "medium"):
                    data["pddl_domain"] = domain
                    data["grammar"] = grammar.replace("UNKNOWN GOAL", game.task)
                save(data, folder / f"{language}-{level}-{kind}.tw-pddl")
        save(Generator("hard", language).game("std", 0).data, folder / f"{language}-hard.tw-pddl")
        for index in (2, 5):
            data = shared_locations(dict(Generator("medium", language).game("dev", index).data))
            save(data, folder / f"{language}-shared-{index}.tw-pddl")
    return folder


def test_texts_commands_and_wins_are_textworlds(oracle: tuple[str, Path], games: Path) -> None:
    lines = subprocess.run(
        [oracle[0], str(ORACLE), str(games), str(RANDOM_STEPS), "1"],
        capture_output=True,
        text=True,
        check=True,
        timeout=900,
    ).stdout.splitlines()
    assert len(list(games.iterdir())) >= 24
    counts: Counter[str] = Counter()
    world: World | None = None
    differences = []
    for seen in map(json.loads, lines):
        if seen["command"] is None:
            world = Game.load(games / seen["game"]).start()
        else:
            assert world is not None
            world.step(seen["command"])
            counts["steps"] += 1
            counts[f"verb {seen['command'].split(' ')[0]}"] += 1
        assert world is not None
        counts["states"] += 1
        counts["wins"] += seen["won"]
        ours = {"feedback": world.feedback, "admissible": world.commands, "won": world.won}
        differences += [
            (seen["game"], seen["command"], key, value, seen[key])
            for key, value in ours.items()
            if value != seen[key]
        ]
    print(f"\n{len(differences)} differences in {dict(counts)}")
    assert not differences, differences[:3]
    assert counts["steps"] >= 1000
    assert counts["wins"] >= 24
    assert all(counts[f"verb {verb}"] for verb in ("heat", "cool", "clean", "use", "slice", "help"))
