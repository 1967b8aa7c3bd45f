"""`sources.yaml`: whole, and true of the records that are here."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path, PurePosixPath
from urllib.parse import urlsplit

import pytest
from typer.testing import CliRunner

from agentrl import cli
from agentrl.config.models import TaskConfig
from agentrl.errors import ConfigError
from agentrl.official.sources import find, sources
from agentrl.tasks.alfworld.task import INDEX_FILES, RELEASE
from agentrl.tasks.registry import create_task
from agentrl.tasks.webshop.official import find_files

RECORDS = Path(os.environ.get("AGENTRL_DATA_ROOT", "/nowhere"))


@pytest.mark.parametrize("name", ["agentbench", "alfworld", "webshop"])
def test_sources_are_whole(name: str) -> None:
    source = find(name)
    assert source.licence and source.title
    assert urlsplit(source.page).scheme == "https"
    for path, file in source.files.items():
        address = urlsplit(source.base + file.at)
        assert address.scheme == "https" and address.netloc
        inside = PurePosixPath(path)
        assert not inside.is_absolute() and ".." not in inside.parts
        assert (file.sha256 is None) == (file.bytes is None)


def test_unknown_names_are_refused() -> None:
    with pytest.raises(
        ConfigError, match="no official data 'chess'; there are agentbench, alfworld"
    ):
        find("chess")
    with pytest.raises(ConfigError, match=r"--part 'tiny': .*: parts: small, all"):
        find("webshop").of("tiny")
    with pytest.raises(ConfigError, match=r"--part 'tiny': .*: it has no parts"):
        find("alfworld").of("tiny")


def test_the_small_edition_is_fetched_where_none_is_named() -> None:
    small = {"webshop/items_human_ins.json", "webshop/items_shuffle_1000.json",
             "webshop/items_ins_v2_1000.json"}  # fmt: skip
    assert set(find("webshop").of(None)) == set(find("webshop").of("small")) == small


@pytest.mark.parametrize(("part", "edition"), [("small", "small"), ("all", "all")])
def test_webshop_finds_what_was_fetched(tmp_path: Path, part: str, edition: str) -> None:
    for path in find("webshop").of(part):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).touch()
    assert len(find_files(tmp_path, edition).all) == 3  # type: ignore[arg-type]


def test_alfworld_finds_what_was_fetched(tmp_path: Path) -> None:
    [(path, file)] = find("alfworld").files.items()
    assert file.unpack == RELEASE
    (tmp_path / path).parent.mkdir()
    (tmp_path / path).with_name(RELEASE).mkdir()
    for name in INDEX_FILES.values():
        assert f"alfworld/{name}" in find("agentbench").files
        (tmp_path / "alfworld" / name).write_text("{}")
    create_task("alfworld", TaskConfig(source="official"), tmp_path)


@pytest.mark.skipif(not RECORDS.is_dir(), reason="AGENTRL_DATA_ROOT names no AgentBench records")
def test_checksums_are_those_of_the_records_here() -> None:
    known = {path: file for path, file in find("agentbench").files.items() if file.sha256}
    assert len(known) >= 30
    for path, file in known.items():
        content = (RECORDS / path).read_bytes()
        assert (len(content), hashlib.sha256(content).hexdigest()) == (file.bytes, file.sha256), (
            path
        )


def test_the_list_shows_licences() -> None:
    listed = CliRunner().invoke(cli.app, ["data", "list", "--files"]).output
    for source in sources().values():
        assert f"licence: {source.licence}" in listed
    assert "dbbench/standard.jsonl: https://" in listed
