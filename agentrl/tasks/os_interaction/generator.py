"""Seeded problems of every kind, as records: questions about files, and changes of files.

Invariants: a sample is a function of (seed, level, split, index) alone (invariant 8). No world of files is in
two splits (`world.bucket`). Neither the answer nor the script that finds it is part of the prompt.

Level `easy` has one folder of a few short files, names that are one word, and 25 kinds whose script is one short
line. `medium` has folders in folders, hidden files and all kinds; `hard` more of it, with names that need quotes.
"""

from __future__ import annotations

from functools import lru_cache

from agentrl.errors import ConfigError
from agentrl.randomness import stream
from agentrl.tasks.os_interaction import changes, questions
from agentrl.tasks.os_interaction.questions import Builder
from agentrl.tasks.os_interaction.records import Record, Script
from agentrl.tasks.os_interaction.world import LEVELS, Level, make_world, settle

EASY_KINDS: dict[str, Builder] = {**questions.EASY, **changes.EASY}
KINDS: dict[str, Builder] = {**EASY_KINDS, **questions.MORE, **changes.MORE}


def check_level(name: str) -> Level:
    if name not in LEVELS:
        raise ConfigError(
            f"config key 'tasks.os_interaction.level': {name!r} is no level; choose one of "
            f"{', '.join(LEVELS)}"
        )
    return LEVELS[name]


@lru_cache(maxsize=1024)
def generate(level_name: str, split: str, index: int, seed: int = 0) -> Record:
    """The record of one sample."""
    level = check_level(level_name)
    kinds = EASY_KINDS if level.easy else KINDS
    kind = stream(seed, "os-kind", level_name, split, index).choice(list(kinds))
    rng = stream(seed, "os", level_name, split, index)
    while True:
        world = settle(make_world(level, rng), split, rng)
        problem = kinds[kind](world, rng)
        if problem is not None:
            return Record(
                kind=kind,
                question=problem.question,
                files=(*world.to_files(), *problem.extra),
                matcher=None if problem.answer is None else "string",
                answer=problem.answer,
                wanted=problem.wanted,
                example=Script(problem.script),
            )
