"""`agentrl data get` against a server of ours that cuts, lies and changes its files."""

from __future__ import annotations

import hashlib
import io
import socket
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from typer.testing import CliRunner

from agentrl import cli
from agentrl.errors import DataError
from agentrl.official import sources as sources_module
from agentrl.official.download import NoNetworkError, fetch, new_client
from agentrl.official.get import get
from agentrl.official.sources import File, Source

BODY = bytes(range(256)) * 40_000  # 10 MB: more than what sockets buffer
SHA = hashlib.sha256(BODY).hexdigest()


class Shelf(ThreadingHTTPServer):
    """Files by path, and what is to go wrong with the next answers."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files: dict[str, bytes] = {}
        self.tags: dict[str, str] = {}
        self.cuts: list[int] = []
        """Bytes after which the next answers end."""
        self.statuses: list[int] = []
        """Instead of the next answers."""
        self.ranges = True
        self.content_type = "application/octet-stream"
        self.asked: list[tuple[str, str | None, str | None]] = []

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/"


class _Handler(BaseHTTPRequestHandler):
    server: Shelf
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        shelf, asked = self.server, self.headers.get("Range")
        shelf.asked.append((self.path, asked, self.headers.get("If-Range")))
        assert self.headers.get("Accept-Encoding") == "identity"
        status = shelf.statuses.pop(0) if shelf.statuses else 0
        body = shelf.files.get(self.path[1:])
        if status or body is None:
            self._head(status or 404, 0)
            return
        tag, start = shelf.tags.get(self.path[1:]), 0
        current = self.headers.get("If-Range") in (None, tag)
        if asked and shelf.ranges and current:
            start = int(asked.removeprefix("bytes=").removesuffix("-"))
            if start >= len(body):
                self._head(416, 0, {"Content-Range": f"bytes */{len(body)}"})
                return
        extra = {"ETag": tag} if tag else {}
        if start:
            extra["Content-Range"] = f"bytes {start}-{len(body) - 1}/{len(body)}"
        self._head(206 if start else 200, len(body) - start, extra)
        cut = shelf.cuts.pop(0) if shelf.cuts else len(body)
        self.wfile.write(body[start : start + cut])
        self.close_connection = start + cut < len(body)

    def _head(self, status: int, length: int, extra: dict[str, str] | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Type", self.server.content_type)
        self.send_header("Content-Length", str(length))
        for name, value in (extra or {}).items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def shelf() -> Iterator[Shelf]:
    server = Shelf()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


class Getter:
    """`fetch` from the shelf, with pauses noted instead of waited for."""

    def __init__(self, shelf: Shelf, folder: Path) -> None:
        self.shelf, self.target, self.pauses = shelf, folder / "deep" / "file.bin", list[float]()

    def __call__(self, sha256: str | None = SHA) -> bool:
        with new_client() as client:
            return fetch(
                client,
                f"{self.shelf.address}file.bin",
                self.target,
                sha256,
                pause=self.pauses.append,
            )

    @property
    def left_over(self) -> list[str]:
        return sorted(path.name for path in self.target.parent.iterdir())


@pytest.fixture
def getter(shelf: Shelf, tmp_path: Path) -> Getter:
    shelf.files["file.bin"] = BODY
    shelf.tags["file.bin"] = '"v1"'
    return Getter(shelf, tmp_path)


def test_a_file_comes_whole_and_once(getter: Getter) -> None:
    assert getter() is True
    assert getter.target.read_bytes() == BODY
    assert getter.left_over == ["file.bin"]
    assert getter() is False
    assert len(getter.shelf.asked) == 1


def test_cut_twice_it_goes_on_where_it_was(getter: Getter) -> None:
    getter.shelf.cuts = [4_000_000, 3_000_000]
    assert getter(None) is True  # nothing but the tag says which version the half is of
    assert getter.target.read_bytes() == BODY
    starts = [int((asked or "bytes=0-")[6:-1]) for _, asked, _ in getter.shelf.asked]
    assert len(starts) == 3 and 0 < starts[1] < starts[2] < len(BODY)
    assert [tag for _, _, tag in getter.shelf.asked] == [None, '"v1"', '"v1"']
    assert getter.pauses == [2.0, 2.0], "each cut came after progress"
    assert getter.left_over == ["file.bin"]


def test_a_process_that_was_killed_leaves_a_half_for_the_next(getter: Getter) -> None:
    getter.target.parent.mkdir()
    getter.target.with_name("file.bin.part").write_bytes(BODY[:1_000_000])
    getter.target.with_name("file.bin.part.version").write_text('"v1"')
    assert getter() is True
    assert getter.shelf.asked == [("/file.bin", "bytes=1000000-", '"v1"')]
    assert getter.target.read_bytes() == BODY


@pytest.mark.parametrize("checked", [True, False])
def test_halves_of_two_versions_are_not_mixed(getter: Getter, checked: bool) -> None:
    getter.target.parent.mkdir()
    getter.target.with_name("file.bin.part").write_bytes(b"old" * 1000)
    getter.target.with_name("file.bin.part.version").write_text('"v0"')
    assert getter(SHA if checked else None) is True
    assert getter.target.read_bytes() == BODY


def test_a_half_of_unknown_origin_is_used_only_where_a_checksum_can_tell(getter: Getter) -> None:
    getter.target.parent.mkdir()
    getter.target.with_name("file.bin.part").write_bytes(b"old" * 1000)
    assert getter() is True
    assert [asked for _, asked, _ in getter.shelf.asked] == ["bytes=3000-", None]
    getter.target.unlink()
    getter.target.with_name("file.bin.part").write_bytes(b"old" * 1000)
    assert getter(None) is True
    assert getter.shelf.asked[-1] == ("/file.bin", None, None)
    assert getter.target.read_bytes() == BODY


def test_a_complete_half_is_only_checked(getter: Getter) -> None:
    getter.target.parent.mkdir()
    getter.target.with_name("file.bin.part").write_bytes(BODY)
    assert getter() is True
    assert getter.target.read_bytes() == BODY


def test_a_server_without_ranges(getter: Getter) -> None:
    getter.shelf.ranges = False
    getter.shelf.cuts = [4_000_000]
    assert getter() is True
    assert getter.target.read_bytes() == BODY


def test_a_server_that_always_cuts_is_given_up(getter: Getter) -> None:
    getter.shelf.ranges = False
    getter.shelf.cuts = [1_000_000] * 50
    with pytest.raises(DataError, match=r"the connection was lost .*6 times in a row"):
        getter()
    assert len(getter.shelf.asked) <= 7
    assert not getter.target.exists()


def test_a_wrong_checksum_is_an_error_and_leaves_nothing(getter: Getter) -> None:
    wrong = hashlib.sha256(b"another").hexdigest()
    with pytest.raises(DataError, match=f"is not the published file .*{SHA}, not {wrong}"):
        getter(wrong)
    assert getter.left_over == []


def test_a_file_of_ones_own_is_never_overwritten(getter: Getter) -> None:
    getter.target.parent.mkdir()
    getter.target.write_text("mine")
    with pytest.raises(DataError, match="move it away to get the published one"):
        getter()
    assert getter.target.read_text() == "mine"
    assert getter(None) is False


def test_errors_that_pass_are_waited_for(getter: Getter) -> None:
    getter.shelf.statuses = [503, 429, 500]
    assert getter() is True
    assert getter.pauses == [2.0, 4.0, 8.0]


@pytest.mark.parametrize("status", [403, 404, 410])
def test_what_is_not_there_is_an_error_at_once(getter: Getter, status: int) -> None:
    getter.shelf.statuses = [status]
    with pytest.raises(DataError, match=f"file.bin: HTTP {status}"):
        getter()
    assert getter.pauses == [] and getter.left_over == []


def test_a_web_page_is_no_file(getter: Getter) -> None:
    getter.shelf.content_type = "text/html; charset=utf-8"
    with pytest.raises(DataError, match="a web page instead of the file"):
        getter(None)
    assert not getter.target.exists()


def test_no_network_is_said_as_such(tmp_path: Path) -> None:
    with socket.socket() as taken, new_client() as client:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: every connection is refused
        port = taken.getsockname()[1]
        with pytest.raises(NoNetworkError, match=r"cannot reach 127\.0\.0\.1"):
            fetch(client, f"http://127.0.0.1:{port}/x", tmp_path / "x")


# -- whole sources


def archive(*members: str) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as writer:
        for name in members:
            writer.writestr(name, name)
    return packed.getvalue()


def games(base: str) -> Source:
    return Source(
        title="Games", publisher="We", page="http://page", licence="MIT", base=base,
        files={
            "alfworld/games.zip": File(at="games.zip", unpack="json_2.1.1"),
            "alfworld/index.json": File(at="index.json"),
        },
    )  # fmt: skip


def test_an_archive_is_unpacked_into_the_data_root(shelf: Shelf, tmp_path: Path) -> None:
    inside = ("json_2.1.1/a/game.tw-pddl", "json_2.1.1/b/game.tw-pddl")
    shelf.files = {
        "games.zip": archive(*inside, "other/x", "json_2.1.1/../../evil", "/json_2.1.1/evil"),
        "index.json": b"{}",
    }
    said: list[str] = []
    assert get(games(shelf.address), tmp_path, say=said.append) == []
    found = sorted(
        str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()
    )
    assert found == sorted(["alfworld/index.json", *(f"alfworld/{name}" for name in inside)])
    assert "alfworld/games.zip: 2 files unpacked" in said
    asked = len(shelf.asked)
    assert get(games(shelf.address), tmp_path, say=said.append) == []
    assert len(shelf.asked) == asked, "what is here is not asked for again"


@pytest.mark.parametrize("content", [b"no zip", archive("wrong/x")])
def test_a_broken_archive_is_said_and_the_rest_is_fetched(
    shelf: Shelf, tmp_path: Path, content: bytes
) -> None:
    shelf.files = {"games.zip": content, "index.json": b"{}"}
    said: list[str] = []
    left = get(games(shelf.address), tmp_path, say=said.append)
    assert left == [f"{shelf.address}games.zip -> {tmp_path}/alfworld/games.zip"]
    assert any(line.startswith("error: ") and "games.zip" in line for line in said)
    assert (tmp_path / "alfworld" / "index.json").exists()


def test_the_command(shelf: Shelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources_module, "sources", lambda: {"games": games(shelf.address)})
    shelf.files = {"games.zip": archive("json_2.1.1/a/game.tw-pddl")}
    run = CliRunner()
    done = run.invoke(cli.app, ["data", "get", "games", "--to", str(tmp_path)])
    assert isinstance(done.exception, DataError)
    assert "Games\n  by We, http://page\n  licence: MIT\n" in done.output
    by_hand = f"  {shelf.address}index.json -> {tmp_path}/alfworld/index.json\n"
    assert f"Download by hand, and run this again:\n{by_hand}" in done.output
    shelf.files["index.json"] = b"{}"
    done = run.invoke(cli.app, ["data", "get", "games", "--to", str(tmp_path)])
    assert done.exit_code == 0
    assert f"Complete. Set data_root: {tmp_path}" in done.output


def test_without_a_network_one_line_says_what_to_do(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        base = f"http://127.0.0.1:{taken.getsockname()[1]}/"
        few = games(base)
        said: list[str] = []
        left = get(few, tmp_path, say=said.append)
        assert left == [
            f"{base}games.zip -> {tmp_path}/alfworld/games.zip",
            f"{base}index.json -> {tmp_path}/alfworld/index.json",
        ]
        assert len(said) == 1 and said[0].startswith("error: cannot reach 127.0.0.1")
        many = few.model_copy(update={"files": {f"f{n}": File(at=f"f{n}") for n in range(9)}})
        left = get(many, tmp_path, say=said.append)
        assert left == [f"9 files of http://page -> {tmp_path} (agentrl data list --files)"]
