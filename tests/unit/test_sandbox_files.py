"""Files as tar streams: what goes in comes out, within bounds."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrl.sandbox import cgroups, files
from agentrl.sandbox.cgroups import Folder, _places, _settings
from agentrl.sandbox.files import Entry, File, TooLarge, names_in, outermost, pack, unpack

NAME = st.text(
    st.characters(codec="utf-8", exclude_characters="/\0"), min_size=1, max_size=40
).filter(lambda name: name not in (".", ".."))


@given(st.dictionaries(NAME, st.binary(max_size=300), max_size=8), st.integers(0, 0o7777))
def test_files_survive_the_journey(texts: dict[str, bytes], mode: int) -> None:
    made = [File(f"/data/{name}", text, mode, 3, 4, 5) for name, text in texts.items()]
    assert unpack(pack(made)) == {
        f"/data/{name}": Entry("file", mode, 3, 4, 5, text) for name, text in texts.items()
    }


def test_folders_links_and_second_names() -> None:
    out = io.BytesIO(
        pack([File("/d", None, 0o750), File("/d/l", target="../x"), File("/d/f", b"f")])
    )
    with tarfile.open(fileobj=out, mode="a:") as archive:
        second = tarfile.TarInfo("d/g")
        second.type, second.linkname = tarfile.LNKTYPE, "d/f"
        archive.addfile(second)
        pipe = tarfile.TarInfo("d/pipe")
        pipe.type = tarfile.FIFOTYPE
        archive.addfile(pipe)
    entries = unpack(out.getvalue(), "/srv")
    assert [entry.kind for entry in entries.values()] == ["folder", "link", "file", "file"]
    assert entries["/srv/d"].mode == 0o750 and entries["/srv/d/l"].target == "../x"
    assert entries["/srv/d/g"].content == b"f", "a hard link has its file's content"
    assert names_in(entries, "/srv/d") == ["f", "g", "l"]


def test_too_many_files_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MAX_ENTRIES", 3)
    with pytest.raises(TooLarge):
        unpack(pack(File(f"/f{i}") for i in range(4)))


@pytest.mark.parametrize(
    ("paths", "kept"),
    [
        (["/a/b", "/a", "/a/b/c"], ["/a"]),
        (["/a", "/a-b", "/a/c"], ["/a", "/a-b"]),
        (["/data", "/data", "/old"], ["/data", "/old"]),
        ([], []),
    ],
)
def test_paths_below_others_are_read_once(paths: list[str], kept: list[str]) -> None:
    assert outermost(paths) == kept


# -- control groups, as the kernel shows them


def machine(root: Path, groups: str, mounts: str, **offered: str) -> Path:
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(groups)
    (root / "proc/self/mountinfo").write_text(mounts)
    for path, names in offered.items():
        folder = root / path.replace("__", "/")
        folder.mkdir(parents=True)
        (folder / "cgroup.controllers").write_text(names)
    return root


def test_version_1_has_a_folder_for_each_controller(tmp_path: Path) -> None:
    root = machine(
        tmp_path,
        "8:pids:/\n4:memory:/job/7\n1:cpu,cpuacct:/\n0::/\n",
        "30 29 0:26 / /cg/memory rw - cgroup cgroup rw,memory\n"
        "31 29 0:27 / /cg/pids rw - cgroup cgroup rw,pids\n"
        "32 29 0:28 / /cg/cpu rw - cgroup cgroup rw,cpu,cpuacct\n"
        "33 29 0:29 / /cg/unified rw - cgroup2 cgroup2 rw\n",
        cg__unified="hugetlb\n",
    )
    assert _places(root) == [
        (root / "cg/memory/job/7", ("memory",), 1),
        (root / "cg/pids", ("pids",), 1),
        (root / "cg/cpu", ("cpu",), 1),
    ]


def test_version_2_has_one_folder_for_all(tmp_path: Path) -> None:
    root = machine(
        tmp_path,
        "0::/user.slice/me\n",
        "30 29 0:26 / /cg rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n",
        cg__user__slice__me="",
    )
    (root / "cg/user.slice/me").mkdir(parents=True)
    (root / "cg/user.slice/me/cgroup.controllers").write_text("cpu io memory pids\n")
    assert _places(root) == [(root / "cg/user.slice/me", ("memory", "pids", "cpu"), 2)]


def test_limits_in_both_versions() -> None:
    asked = (256 << 20, 64, 0.5)
    one = Folder(0, 0, ("memory", "pids", "cpu"), 1)
    assert _settings(one, *asked) == [
        ("memory.limit_in_bytes", "268435456"), ("pids.max", "64"),
        ("cpu.cfs_period_us", "100000"), ("cpu.cfs_quota_us", "50000"),
    ]  # fmt: skip
    two = Folder(0, 0, ("memory", "pids", "cpu"), 2)
    assert _settings(two, *asked) == [
        ("memory.max", "268435456"), ("memory.swap.max", "0"), ("pids.max", "64"),
        ("cpu.max", "50000 100000"),
    ]  # fmt: skip


def test_groups_that_a_dead_launcher_left_are_removed(tmp_path: Path) -> None:
    dead = tmp_path / f"{cgroups.PREFIX}999999999"
    alive = tmp_path / f"{cgroups.PREFIX}1"
    for folder in (dead / "s1", alive / "s1"):
        folder.mkdir(parents=True)
    cgroups._remove_stale(tmp_path)
    assert not dead.exists() and alive.exists()
