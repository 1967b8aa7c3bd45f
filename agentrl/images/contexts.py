"""What `envs/` describes: one folder an image, and the hash of everything that its content comes from.

An image is known by the hash of its context, never by its id: ids differ at every build. The hash covers the
files of the folder, the hashes of the images that it starts FROM, and, for an image that installs this package
(`COPY dist/`), the package's sources. A Dockerfile names such an image as the default of an ARG:

    ARG BASE=agentrl/base:latest
    FROM ${BASE}

so that it builds by hand too, while `daemon` fills in the exact one.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from agentrl.config.models import Config
from agentrl.errors import ConfigError, InfrastructureError

REPOSITORY = "agentrl"
JUNK = {"__pycache__", ".ipynb_checkpoints", ".DS_Store"}
PACKAGE_FILES = ("pyproject.toml", "LICENSE", "agentrl")
"""Of the repository: what a wheel is made of. The README is left out, so that an edit of it builds nothing."""
_BASE = re.compile(rf"^ARG +(\w+)={REPOSITORY}/([a-z0-9_-]+)(?::\S*)?\s*$", re.MULTILINE)


@dataclass(frozen=True)
class Image:
    """One folder of `envs/`. `bases` has, for each ARG of its Dockerfile that names one of ours, which."""

    name: str
    folder: Path
    bases: Mapping[str, Image] = field(default_factory=dict)

    @property
    def repository(self) -> str:
        return f"{REPOSITORY}/{self.name}"

    @property
    def tag(self) -> str:
        """The exact image."""
        return f"{self.repository}:{self.context}"

    @property
    def has_package(self) -> bool:
        return "COPY dist/" in (self.folder / "Dockerfile").read_text(encoding="utf-8")

    @cached_property
    def context(self) -> str:
        """12 hex digits. Equal for equal contents, whatever the times and owners of the files are."""
        state = hashlib.blake2b(digest_size=6)
        for path in files(self.folder):
            _add(state, path.relative_to(self.folder).as_posix(), path)
        for argument, base in sorted(self.bases.items()):
            state.update(f"base\0{argument}\0{base.context}\0".encode())
        if self.has_package:
            root = self.folder.parents[1]
            for path in package_files(root):
                _add(state, f"package/{path.relative_to(root).as_posix()}", path)
        return state.hexdigest()

    def manifest(self) -> dict[str, object]:
        """What says which image this is; the same on every machine and at every build."""
        return {
            "image": self.name,
            "tag": self.tag,
            "context": self.context,
            "bases": {base.name: base.context for base in self.bases.values()},
        }

    def write_manifest(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(path.name + ".part")
        part.write_text(json.dumps(self.manifest(), indent=1, sort_keys=True) + "\n", "utf-8")
        part.replace(path)


def describe(envs: Path) -> dict[str, Image]:
    """Every image below `envs`, each after those that it starts FROM.

    Raises:
        ConfigError: there is no such folder, or a Dockerfile names an image that is not in it.
    """
    folders = {path.parent.name: path.parent for path in sorted(envs.glob("*/Dockerfile"))}
    if not folders:
        raise ConfigError(
            f"{envs}: holds no folder with a Dockerfile; run this in a clone of the repository"
        )
    made: dict[str, Image] = {}

    def make(name: str, above: tuple[str, ...]) -> Image:
        if name in above:
            raise ConfigError(
                f"{envs}: images start FROM each other: {' -> '.join((*above, name))}"
            )
        if name not in folders:
            raise ConfigError(
                f"{folders[above[-1]]}/Dockerfile: starts from {REPOSITORY}/{name}, but {envs}/{name} is not there"
            )
        if name not in made:
            text = (folders[name] / "Dockerfile").read_text(encoding="utf-8")
            found = {argument: make(base, (*above, name)) for argument, base in _BASE.findall(text)}
            made[name] = Image(name, folders[name].resolve(), found)
        return made[name]

    for name in folders:
        make(name, ())
    return made


def choose(images: Mapping[str, Image], names: Iterable[str]) -> list[Image]:
    """The images of these names and what they start from, in the order of building; no names: all."""
    unknown = [name for name in names if name not in images]
    if unknown:
        raise ConfigError(f"no image {unknown[0]!r}; there are {', '.join(images)}")
    wanted: dict[str, Image] = {}

    def add(image: Image) -> None:
        for base in image.bases.values():
            add(base)
        wanted.setdefault(image.name, image)

    for name in names or images:
        add(images[name])
    return list(wanted.values())


SANDBOXES = {"default": f"{REPOSITORY}/os-default", "packages": f"{REPOSITORY}/os-packages"}


def needed(config: Config) -> tuple[str, ...]:
    """Our images that a run with these settings starts containers from; none with embedded back ends."""
    shell = config.tasks.get("os_interaction")
    if shell is None or shell.options.get("sandbox") != "docker":
        return ()
    given = SANDBOXES | dict(shell.options.get("images") or {})
    ours = (tag.partition(":")[0].partition("/") for tag in given.values())
    return tuple(dict.fromkeys(name for owner, _, name in ours if owner == REPOSITORY))


def files(folder: Path) -> Iterator[Path]:
    """The files of a context, in a fixed order, without what editors and interpreters leave."""
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not JUNK & set(path.relative_to(folder).parts):
            yield path


def package_files(root: Path) -> Iterator[Path]:
    for name in PACKAGE_FILES:
        place = root / name
        yield from files(place) if place.is_dir() else [place]


def build_wheel(root: Path) -> tuple[str, bytes]:
    """A wheel of the package as it is in the repository; equal sources give equal bytes.

    It is made from a copy: setuptools leaves folders beside what it builds.
    """
    with tempfile.TemporaryDirectory(prefix="agentrl-wheel-") as name:
        source, out = Path(name, "source"), Path(name, "out")
        for path in package_files(root):
            target = source / path.relative_to(root)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
        (source / "README.md").touch()
        done = subprocess.run(
            [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", out, source],
            capture_output=True, text=True, timeout=1800,
            env={**os.environ, "SOURCE_DATE_EPOCH": "315532800"},
        )  # fmt: skip
        if done.returncode != 0:
            raise InfrastructureError(
                f"the package's wheel cannot be built: {done.stderr.strip()[-500:]}"
            )
        [wheel] = out.glob("*.whl")
        return wheel.name, wheel.read_bytes()


def pack(image: Image, extra: Mapping[str, bytes]) -> bytes:
    """The build context as a tar archive; `extra` files are added by path. Equal contents, equal bytes."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path in files(image.folder):
            mode = 0o755 if path.stat().st_mode & 0o100 else 0o644
            _pack(archive, path.relative_to(image.folder).as_posix(), path.read_bytes(), mode)
        for name, content in sorted(extra.items()):
            _pack(archive, name, content, 0o644)
    return buffer.getvalue()


def _pack(archive: tarfile.TarFile, name: str, content: bytes, mode: int) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.mode = len(content), mode
    archive.addfile(member, io.BytesIO(content))


def _add(state: hashlib.blake2b, name: str, path: Path) -> None:
    content = path.read_bytes()
    executable = bool(path.stat().st_mode & 0o100)
    state.update(f"{name}\0{executable:d}\0{len(content)}\0".encode() + content)
