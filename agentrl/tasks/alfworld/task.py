"""The ALFWorld task: a household, a sentence that says what to do, one tool.

- A command that is not possible is answered as such and counted; it is never replaced by a
  similar one (AgentBench executes the admissible command with the best BLEU score instead).
- The reward is 1 once the goal of the game holds, computed from the game's facts (invariant 10).
- Split `train`, `dev` and `std` share no game, by content (`generator`), or are AgentBench's own.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from agentrl.config.models import TaskConfig
from agentrl.errors import ConfigError, DataError
from agentrl.messages import Status, ToolSpec
from agentrl.randomness import stream
from agentrl.tasks.alfworld.engine import Game, World
from agentrl.tasks.alfworld.expert import TOOL, AlfworldExpert
from agentrl.tasks.alfworld.generator import Generator, Language
from agentrl.tasks.alfworld.goals import TYPES, TaskType
from agentrl.tasks.alfworld.prompts import Style
from agentrl.tasks.base import Sample, SampleRange, Task, ToolEpisode, ToolResult

INDEX_FILES = {"train": "train_valid.json", "dev": "dev.json", "std": "new_std.json"}
"""Split -> AgentBench's index of official games, below `data_root/alfworld`."""
RELEASE = "json_2.1.1"
"""ALFWorld's folder of games; paths in the index files start with it."""

TAKE_ACTION = ToolSpec(
    TOOL,
    "Perform one action in the household.",
    {
        "type": "object",
        "properties": {
            "action": {"type": "string", "description": "The action, such as: go to desk 1"}
        },
        "required": ["action"],
        "additionalProperties": False,
    },
)


class Options(BaseModel):
    """`tasks.alfworld.options` of the configuration."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    grammar: Language = Field("agentbench", description="commands of generated games")
    admissible: bool | None = Field(
        None, description="list the possible commands; none: as the prompt style does"
    )
    games_root: Path | None = Field(
        None, description="folder that holds json_2.1.1; null: alfworld in the data_root"
    )
    types: tuple[TaskType, ...] = Field(TYPES, min_length=1)
    seed: int = Field(0, ge=0, description="of the generated games")


class AlfworldEpisode(ToolEpisode):
    """One game being played."""

    def __init__(self, world: World, style: Style, max_turns: int) -> None:
        super().__init__((TAKE_ACTION,), style.opening(world), max_turns)
        self.world, self.style = world, style

    async def call(self, name: str, arguments: dict[str, Any]) -> ToolResult:
        """One command; case and surrounding space do not matter, everything else does."""
        possible = self.world.step(arguments["action"].lower())
        text = self.style.observation(self.world, possible)
        return ToolResult(
            text, float(self.world.won), self.world.won, Status.COMPLETED, valid=possible
        )

    def observe(self, text: str) -> str:
        return self.style.remind(self.world, text)


class AlfworldTask(Task):
    """Generated games of one level, or the official ones."""

    name: ClassVar[str] = "alfworld"
    tools: ClassVar[tuple[ToolSpec, ...]] = (TAKE_ACTION,)

    def __init__(self, config: TaskConfig, data_root: Path | None = None) -> None:
        self.config = config
        self.options = _options(config.options)
        compact = config.prompt == "compact"
        admissible = self.options.admissible
        self.style = Style(config.prompt, not compact if admissible is None else admissible)
        self.game = lru_cache(maxsize=512)(self._game)
        if config.source == "official":
            self.level = "official"
            self.games_root = _folder(self.options.games_root, data_root)
            self.paths = {split: _read_index(data_root, split) for split in INDEX_FILES}
        else:
            self.level = config.level
            options = self.options
            self.generator = Generator(config.level, options.grammar, options.types, options.seed)

    def samples(self, split: str) -> Sequence[Sample]:
        """Generated: as many as configured. Official: those of the file, at most as configured."""
        if split not in INDEX_FILES:
            raise DataError(f"alfworld has no split {split!r}; splits: {', '.join(INDEX_FILES)}")
        count = int(getattr(self.config, f"{split}_samples"))
        if self.config.source == "generated":
            return SampleRange(self.name, split, count)
        listed = [
            Sample(self.name, split, index)
            for index, (kind, _) in enumerate(self.paths[split])
            if kind in self.options.types
        ]
        return listed[:count]

    async def start(self, sample: Sample, seed: int) -> AlfworldEpisode:
        """A fresh game; nothing in it is random, so `seed` decides nothing."""
        world = self.game(sample).start()
        return AlfworldEpisode(world, self.style, self.config.max_turns)

    def expert(self, sample: Sample, seed: int, noise: float = 0.0) -> AlfworldExpert:
        rng = stream(seed, "alfworld-expert", sample.split, sample.index)
        return AlfworldExpert(self.game(sample), self.config.max_turns, rng, noise)

    def _game(self, sample: Sample) -> Game:
        if self.config.source == "generated":
            return self.generator.game(sample.split, sample.index)
        _, path = self.paths[sample.split][sample.index]
        return Game.load(self.games_root / path)


def _options(settings: dict[str, Any]) -> Options:
    try:
        return Options.model_validate(settings)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"][:1])
        known = ", ".join(Options.model_fields)
        raise ConfigError(
            f"config key 'tasks.alfworld.options.{where}': {first['msg']}"
            f" (got {first['input']!r}); options: {known}"
        ) from None


def _folder(path: Path | None, data_root: Path | None) -> Path:
    """Where json_2.1.1 lies, the release with all games."""
    key = "config key 'tasks.alfworld.options.games_root'"
    hint = "give the folder that holds json_2.1.1, or set source to 'generated'"
    if path is None and data_root is not None and (data_root / "alfworld" / RELEASE).is_dir():
        return data_root / "alfworld"
    if path is None:
        raise ConfigError(
            f"{key}: not set, but source is 'official'; `agentrl data get alfworld` fetches the games, or {hint}"
        )
    if not path.is_dir():
        raise ConfigError(f"{key}: {path} is not a folder; {hint}")
    return path


def _read_index(data_root: Path | None, split: str) -> list[tuple[str, str]]:
    """(task type, path below games_root) of each official game, in the order of the file."""
    if data_root is None:
        raise ConfigError(
            "config key 'data_root': not set, but tasks.alfworld.source is 'official'; give the "
            "folder of the AgentBench records"
        )
    path = data_root / "alfworld" / INDEX_FILES[split]
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        games = [(str(kind), str(game)) for kind, listed in data.items() for game in listed]
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from None
    except (ValueError, AttributeError, TypeError):
        raise DataError(f"{path}: not a JSON object of task types and lists of games") from None
    return games
