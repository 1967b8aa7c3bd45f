"""Steps a second of our engine over TextWorld's, on the same games and commands in the same run.

    AGENTRL_TEXTWORLD_PYTHON=... python tests/benchmarks/bench_alfworld.py

Both count a step with its list of admissible commands. Without TextWorld only our figures print.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from random import Random

from agentrl.tasks.alfworld.engine import Game
from agentrl.tasks.alfworld.generator import Generator, save
from agentrl.tasks.alfworld.layouts import LEVELS

ORACLE = Path(__file__).parents[1] / "integration" / "textworld_oracle.py"
STEPS = 25


def ours(games: list[Game], scripts: list[list[str]], least: float = 0.5) -> float:
    """Steps a second, playing the scripts again and again for at least `least` seconds."""
    steps, started = 0, time.perf_counter()
    while time.perf_counter() - started < least:
        for game, script in zip(games, scripts, strict=True):
            world = game.start()
            for command in script:
                world.step(command)
                world.commands  # noqa: B018  (the sorted list is part of a step)
            steps += len(script)
    return steps / (time.perf_counter() - started)


def random_walk(game: Game, steps: int) -> list[str]:
    world, rng, script = game.start(), Random(0), list[str]()
    for _ in range(steps):
        script.append(rng.choice(world.commands))
        world.step(script[-1])
    return script


def main() -> None:
    for level in LEVELS:
        started = time.perf_counter()
        games = [Generator(level).game("dev", index) for index in range(12)]
        made = (time.perf_counter() - started) / len(games)
        rate = ours(games, [random_walk(game, 100) for game in games])
        print(f"{level}: {rate:,.0f} steps/s, a game made in {made * 1e3:.1f} ms")
    python = os.environ.get("AGENTRL_TEXTWORLD_PYTHON", sys.executable)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for level in LEVELS:
            for index in range(3):
                save(Generator(level).game("dev", index).data, folder / f"{level}-{index}.tw-pddl")
        run = subprocess.run(
            [python, str(ORACLE), name, str(STEPS), "0"],
            capture_output=True,
            text=True,
            check=False,
        )
        if run.returncode:
            print(f"no TextWorld in {python}: set AGENTRL_TEXTWORLD_PYTHON")
            return
        lines = [json.loads(line) for line in run.stdout.splitlines()]
        for level in LEVELS:
            seen = [
                one for one in lines if one["game"].startswith(level) and one["command"] is not None
            ]
            names = sorted({one["game"] for one in seen})
            theirs = len(seen) / sum(one["seconds"] for one in seen)
            scripts = [[one["command"] for one in seen if one["game"] == name] for name in names]
            rate = ours([Game.load(folder / name) for name in names], scripts)
            print(
                f"{level}: TextWorld {theirs:.1f} steps/s, ours {rate:,.0f}: {rate / theirs:,.0f} times"
            )


if __name__ == "__main__":
    main()
