"""Reads `sources.yaml`: the one place with addresses of publishers."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Annotated

import yaml
from pydantic import BaseModel, ConfigDict, Field

from agentrl.errors import ConfigError


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class File(_Model):
    """One file of a source."""

    at: str
    """Below the source's base address."""
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")] | None = None
    bytes: Annotated[int, Field(gt=0)] | None = None
    about: str | None = None
    """Its size in words, where it is not known exactly."""
    part: str | None = None
    """Fetched only where this part of the source is asked for."""
    unpack: str | None = None
    """A zip archive: the folder in it, which comes to lie beside the archive."""

    @property
    def size(self) -> str:
        if self.bytes is None:
            return self.about or "size unknown"
        return (
            f"{self.bytes / 1e6:.1f} MB" if self.bytes >= 100_000 else f"{self.bytes / 1e3:.1f} kB"
        )


class Source(_Model):
    """What one publisher offers."""

    title: str
    publisher: str
    page: str
    """For a person with a browser."""
    licence: str
    base: str
    files: dict[str, File]
    """By path below the data_root."""

    @property
    def parts(self) -> tuple[str, ...]:
        """The first is the one that is fetched where none is named."""
        return tuple(dict.fromkeys(f.part for f in self.files.values() if f.part is not None))

    def of(self, part: str | None) -> dict[str, File]:
        """The files to fetch: those of every part, and those of `part`."""
        if part is not None and part not in self.parts:
            known = f"parts: {', '.join(self.parts)}" if self.parts else "it has no parts"
            raise ConfigError(f"--part {part!r}: {self.title}: {known}")
        wanted = part or next(iter(self.parts), None)
        return {path: f for path, f in self.files.items() if f.part in (None, wanted)}


@cache
def sources() -> Mapping[str, Source]:
    text = Path(__file__).with_name("sources.yaml").read_text(encoding="utf-8")
    return {name: Source.model_validate(entry) for name, entry in yaml.safe_load(text).items()}


def find(name: str) -> Source:
    if name not in sources():
        raise ConfigError(f"no official data {name!r}; there are {', '.join(sources())}")
    return sources()[name]
