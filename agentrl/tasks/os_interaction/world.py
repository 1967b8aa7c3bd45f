"""The files of a generated machine: what they are called, what is in them, and which split may hold them.

Invariants: everything comes from the generator's random stream (invariant 8), times included. A world's content
decides by hash which split may hold it, so no world is in two splits; all splits share one vocabulary.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from agentrl.sandbox.files import File
from agentrl.tasks.os_interaction import vocabulary as words

BUCKETS = {"train": range(0, 80), "dev": range(80, 90), "std": range(90, 100)}
"""Hundredths of all worlds that belong to each split."""
EPOCH = 1_700_000_000
EXTENSIONS = ("txt", "log", "csv", "conf")


@dataclass(frozen=True, slots=True)
class Level:
    files: tuple[int, int]
    lines: tuple[int, int]
    folders: int
    """Folders below the root, at most."""
    hidden: int = 0
    spaces: bool = False

    @property
    def easy(self) -> bool:
        return self.folders == 0


LEVELS = {
    "easy": Level(files=(4, 7), lines=(2, 6), folders=0),
    "medium": Level(files=(8, 14), lines=(4, 15), folders=3, hidden=2),
    "hard": Level(files=(15, 30), lines=(8, 40), folders=8, hidden=4, spaces=True),
}


@dataclass(frozen=True, slots=True)
class World:
    level: Level
    root: str
    other: str
    """A second folder, beside the root."""
    folders: tuple[str, ...]
    """Below the root."""
    files: dict[str, str]
    """Text by path, all below the root but the last, which is in `other`."""
    modes: Mapping[str, int] = field(default_factory=dict)
    times: Mapping[str, int] = field(default_factory=dict)

    def with_extension(self, extension: str, folder: str | None = None) -> list[str]:
        return [p for p in self.inside(folder) if p.endswith(f".{extension}")]

    def inside(self, folder: str | None = None) -> list[str]:
        """The files below a folder (the root)."""
        start = (folder or self.root) + "/"
        return [path for path in self.files if path.startswith(start)]

    def visible(self) -> list[str]:
        return [path for path in self.inside() if not name_of(path).startswith(".")]

    def lines(self, path: str) -> list[str]:
        return self.files[path].splitlines()

    def to_files(self) -> tuple[File, ...]:
        folders = [File(path, None, 0o755, modified=EPOCH) for path in
                   (self.root, self.other, *self.folders)]  # fmt: skip
        return (
            *folders,
            *(
                File(path, text.encode(), self.modes[path], modified=self.times[path])
                for path, text in self.files.items()
            ),
        )


def name_of(path: str) -> str:
    return path.rpartition("/")[2]


def folder_of(path: str) -> str:
    return path.rpartition("/")[0]


def make_world(level: Level, rng: random.Random) -> World:
    root = words.EASY_ROOT if level.easy else rng.choice(words.ROOTS)
    other = words.EASY_OTHER if level.easy else rng.choice(words.OTHERS)
    folders = _make_folders(level, root, rng)
    files: dict[str, str] = {}
    names = _make_names(level, rng)
    for index in range(rng.randint(*level.files)):
        extension = EXTENSIONS[index] if index < len(EXTENSIONS) else rng.choice(EXTENSIONS)
        hidden = len(EXTENSIONS) <= index < len(EXTENSIONS) + level.hidden
        path = f"{rng.choice((root, *folders))}/{'.' * hidden}{names[index]}.{extension}"
        files[path] = make_text(level, extension, rng)
    files[f"{other}/{names[-1]}.txt"] = make_text(level, "txt", rng)
    paths = list(files)
    rng.shuffle(paths)
    hours = rng.sample(range(1, 2000), len(paths))
    return World(
        level, root, other, folders, files,
        modes={path: rng.choice(words.MODES) for path in files},
        times={path: EPOCH + 3600 * hour for path, hour in zip(paths, hours, strict=True)},
    )  # fmt: skip


def _make_folders(level: Level, root: str, rng: random.Random) -> tuple[str, ...]:
    folders: list[str] = []
    for name in rng.sample(words.FOLDERS, rng.randint(2, level.folders) if level.folders else 0):
        spaced = (
            f"{name} {rng.choice(words.WORDS)}" if level.spaces and rng.random() < 0.3 else name
        )
        folders.append(f"{rng.choice((root, *folders[:2]))}/{spaced}")
    return tuple(folders)


def _make_names(level: Level, rng: random.Random) -> list[str]:
    """More names than are needed, no two alike."""
    if level.easy:
        return rng.sample(words.EASY_NAMES, len(words.EASY_NAMES))
    joins = "- _" if level.spaces else "-_"
    pairs = [(name, word) for name in words.NAMES for word in words.WORDS]
    return [f"{name}{rng.choice(joins)}{word}" for name, word in rng.sample(pairs, 40)]


def make_text(level: Level, extension: str, rng: random.Random) -> str:
    count = rng.randint(*level.lines)
    vocabulary = words.EASY_WORDS if level.easy else words.WORDS
    people = words.EASY_PEOPLE if level.easy else words.PEOPLE
    if extension == "csv":
        numbers = rng.sample(range(10, 100) if level.easy else range(10, 9000), count)
        lines = [f"{rng.choice(people)},{number}" for number in numbers]
    elif extension == "log":
        lines = [f"{rng.choice(words.LEVELS)} {rng.choice(vocabulary)}" for _ in range(count)]
        if not level.easy:
            lines = [
                f"2024-{rng.randint(1, 12):02d}-{rng.randint(1, 28):02d} {line}" for line in lines
            ]
    elif extension == "conf":
        keys = words.EASY_KEYS if level.easy else words.KEYS
        chosen = rng.sample(keys, min(len(keys), max(2, count // 2)))
        lines = [f"{key}={rng.choice(vocabulary)}" for key in chosen]
    else:
        widest = 3 if level.easy else 8
        lines = [" ".join(rng.choices(vocabulary, k=rng.randint(1, widest))) for _ in range(count)]
    return "\n".join(lines) + "\n"


def settle(world: World, split: str, rng: random.Random) -> World:
    """The world with the text of its last file drawn again until the split may hold it."""
    last = next(reversed(world.files))
    while bucket(world) not in BUCKETS[split]:
        text = make_text(world.level, "txt", rng)
        world = replace(world, files={**world.files, last: text})
    return world


def bucket(world: World) -> int:
    """0-99 by what the files are called and hold, whatever their order."""
    parts = [f"{path}\x1f{text}" for path, text in sorted(world.files.items())]
    digest = hashlib.blake2b("\x1e".join(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") % 100


def words_in(texts: Sequence[str]) -> list[str]:
    """Distinct words in the order in which they come."""
    return list(dict.fromkeys(word for text in texts for word in text.replace(",", " ").split()))
