"""A whole source into a folder that `data_root` takes; what cannot be fetched is said in one line each."""

from __future__ import annotations

import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path, PurePosixPath

import httpx

from agentrl.errors import DataError
from agentrl.official.download import NoNetworkError, Progress, fetch, new_client
from agentrl.official.sources import File, Source

LISTED = 5
"""More files than these are fetched by hand as a whole."""


def get(
    source: Source,
    folder: Path,
    part: str | None = None,
    say: Callable[[str], None] = print,
    progress: Callable[[str], Progress] = lambda path: lambda done, total: None,
    client: httpx.Client | None = None,
) -> list[str]:
    """Fetch what is missing below `folder`; returns what a person has to fetch by hand, one line a file."""
    wanted = source.of(part)
    left: list[str] = []
    with client or new_client() as http:
        for path, file in wanted.items():
            target = folder / path
            if file.unpack is not None and (target.parent / file.unpack).is_dir():
                say(f"{path}: unpacked already")
                continue
            try:
                new = fetch(http, source.base + file.at, target, file.sha256, progress(path))
                say(f"{path}: {file.size}" if new else f"{path}: there already")
                if file.unpack is not None:
                    say(f"{path}: {unpack(target, file.unpack)} files unpacked")
            except NoNetworkError as error:
                say(f"error: {error}")
                rest = list(wanted)[list(wanted).index(path) :]
                if len(rest) > LISTED:
                    left.append(
                        f"{len(rest)} files of {source.page} -> {folder} (agentrl data list --files)"
                    )
                else:
                    left += [_by_hand(source, wanted[name], folder / name) for name in rest]
                break
            except DataError as error:
                say(f"error: {error}")
                left.append(_by_hand(source, file, target))
    return left


def _by_hand(source: Source, file: File, target: Path) -> str:
    return f"{source.base}{file.at} -> {target}"


def unpack(archive: Path, folder: str) -> int:
    """Unpack `folder` of a zip archive beside it, whole or not at all, and delete the archive."""
    work = archive.with_name(f".{folder}.part")
    shutil.rmtree(work, ignore_errors=True)
    try:
        with zipfile.ZipFile(archive) as packed:
            names = [name for name in packed.namelist() if _inside(name, folder)]
            if not names:
                raise DataError(f"{archive}: holds no folder {folder}")
            packed.extractall(work, names)
    except (zipfile.BadZipFile, EOFError, NotImplementedError) as error:
        raise DataError(
            f"{archive}: is no whole zip archive ({error}); delete it and try again"
        ) from None
    (work / folder).rename(archive.parent / folder)
    shutil.rmtree(work)
    archive.unlink()
    return sum(not name.endswith("/") for name in names)


def _inside(name: str, folder: str) -> bool:
    parts = PurePosixPath(name).parts
    return bool(parts) and parts[0] == folder and ".." not in parts
