"""Plays games in TextWorld and writes what it saw as JSON lines; runs under a python of its own.

    python textworld_oracle.py GAMES_FOLDER RANDOM_STEPS SEED > lines.jsonl

For every `*.tw-pddl` in the folder: the walkthrough, then RANDOM_STEPS commands drawn here (from
TextWorld's own admissible list, now and then a command that is not in it). A line is one state:
`game`, `command` (null at a reset), `feedback`, `admissible`, `won`, `seconds`.
"""

import json
import os
import random
import sys
import time
from pathlib import Path

import fast_downward
import textworld
from alfworld.agents.environment.alfred_tw_env import AlfredDemangler
from textworld.envs.pddl import PddlEnv

NONSENSE = ["dance", "", "go to moon 1", "take apple 9 from fridge 9", "LOOK", "open", " look "]


def cache_translations() -> None:
    """TextWorld translates every problem four times an episode; once is enough, replan unused."""
    translate, done = fast_downward.pddl2sas, {}

    def cached(domain, problem, verbose=False, optimize=False):
        if (domain, problem) not in done:
            done.clear()
            done[domain, problem] = translate(domain, problem, verbose=verbose)
        return done[domain, problem]

    fast_downward.pddl2sas = cached


def draw(rng: random.Random, admissible: list[str]) -> str:
    """Mostly something else than walking about, so that the rarer rules are met."""
    if rng.random() < 0.06:
        return rng.choice(NONSENSE)
    doing = [c for c in admissible if not c.startswith("go to ")]
    telling = [c for c in doing if c.startswith(("take", "put", "move", "open", "close"))]
    rare = [c for c in doing if c.startswith(("heat", "cool", "clean", "slice", "use"))]
    choices = [pool for pool in (telling, rare, doing, admissible) if pool]
    return rng.choice(rng.choice(choices))


def main(folder: Path, steps: int, seed: int) -> None:
    cache_translations()
    infos = textworld.EnvInfos(won=True, admissible_commands=True)
    for path in sorted(folder.glob("*.tw-pddl")):
        env = PddlEnv(infos)
        wrapped = AlfredDemangler()(env)
        rng = random.Random(f"{seed}/{path.name}")
        wrapped.load(str(path))

        def tell(command: str | None, state, started: float, path=path) -> None:
            line = {
                "game": path.name,
                "command": command,
                "feedback": state["feedback"],
                "admissible": state["admissible_commands"],
                "won": bool(state["won"]),
                "seconds": time.perf_counter() - started,
            }
            print(json.dumps(line), flush=True)

        for script in (json.loads(path.read_text())["walkthrough"], None):
            started = time.perf_counter()
            state = wrapped.reset()
            tell(None, state, started)
            for turn in range(steps if script is None else len(script)):
                command = (
                    draw(rng, state["admissible_commands"]) if script is None else script[turn]
                )
                started = time.perf_counter()
                state, _, _ = wrapped.step(command)
                tell(command, state, started)
        fast_downward.close_lib(env.downward_lib)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
    sys.stdout.flush()
    os._exit(0)  # the planner's libraries are closed; their clean-up at exit would crash
