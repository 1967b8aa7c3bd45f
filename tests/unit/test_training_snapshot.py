"""Snapshots under everything that can happen to a disk and a process."""

import contextlib
import errno
import io
import json
import os
import subprocess
import sys

import pytest

from agentrl.errors import StateError
from agentrl.training.snapshot import (
    StateFolder,
    latest,
    read_snapshot,
    settings_fingerprint,
)


def save(state, step, text=None):
    """One step of a toy run: a line of history, then a snapshot of two files."""
    state.append({"step": step})
    with state.snapshot(step) as folder:
        (folder / "weights").write_text(text or f"weights {step}")
        (folder / "more").mkdir()
        (folder / "more" / "buffer").write_text(f"buffer {step}")


def steps_on_disk(path):
    return sorted(p.name for p in path.iterdir() if p.name.startswith("snapshot-"))


@pytest.fixture
def lines():
    return []


@pytest.fixture
def folder(tmp_path, lines):
    """Opens the same state folder again and again."""

    def open_folder(fingerprint="settings", keep=2):
        return StateFolder(tmp_path / "state", fingerprint, keep, lines.append)

    return open_folder


def test_a_new_folder_has_nothing_to_resume(folder, lines):
    with folder() as state:
        assert state.resumed is None and state.records() == []
    assert lines == []


def test_resume_goes_on_from_the_newest_snapshot(folder):
    with folder() as state:
        save(state, 1)
        save(state, 2)
        state.append({"step": 3})  # trained, but not in any snapshot
    with folder() as state:
        assert state.resumed.step == 2
        assert (state.resumed.path / "weights").read_text() == "weights 2"
        assert (state.resumed.path / "more" / "buffer").read_text() == "buffer 2"
        assert state.records() == [{"step": 1}, {"step": 2}]


def test_only_the_last_ones_are_kept(folder):
    with folder() as state:
        for step in range(1, 6):
            save(state, step)
        assert steps_on_disk(state.path) == ["snapshot-00000004", "snapshot-00000005"]


def test_a_second_snapshot_of_a_step_wins(folder):
    with folder() as state:
        save(state, 7, "first")
        save(state, 7, "second")
        save(state, 7, "third")
    with folder() as state:
        assert (state.resumed.path / "weights").read_text() == "third"
        assert len(state.records()) == 3


def damage_bytes(path):
    (path / "weights").write_text("weights X")


def damage_missing(path):
    (path / "more" / "buffer").unlink()


def damage_manifest(path):
    (path / "manifest.json").write_text('{"step": ')


@pytest.mark.parametrize("damage", [damage_bytes, damage_missing, damage_manifest])
def test_damaged_snapshot_falls_back_to_the_one_before(folder, lines, damage):
    with folder() as state:
        save(state, 1)
        save(state, 2)
        damage(state.path / "snapshot-00000002")
    with folder() as state:
        assert state.resumed.step == 1
        assert state.records() == [{"step": 1}]
        assert steps_on_disk(state.path) == ["snapshot-00000001"]
    (line,) = lines
    assert line.startswith("warning: ") and "snapshot-00000002" in line and "\n" not in line


def test_nothing_but_damage_is_an_error_not_a_new_run(folder):
    with folder() as state:
        save(state, 1)
        save(state, 2)
        for path in state.path.glob("snapshot-*"):
            damage_bytes(path)
    with pytest.raises(StateError, match=r"no snapshot in .* is valid \(2 damaged\)"), folder():
        pass
    assert len(list(state.path.glob("snapshot-*"))) == 2  # kept for a person to look at


def test_other_settings_start_afresh_and_say_so(folder, lines):
    with folder() as state:
        save(state, 1)
        (state.path / "trajectories").mkdir()
        (state.path / "trajectories" / "step-0").write_text("old")
    with folder("other settings") as state:
        assert state.resumed is None and state.records() == []
        assert [p.name for p in state.path.iterdir()] == ["lock"]
    (line,) = lines
    assert "starting afresh" in line


def test_what_a_run_without_a_snapshot_left_is_cleared(folder):
    with folder() as state:
        state.append({"step": 0})
    with folder() as state:
        assert state.records() == []


def test_history_shorter_than_its_snapshot_is_an_error(folder):
    with folder() as state:
        save(state, 1)
    state.history.write_text("")
    with pytest.raises(StateError, match=r"history\.jsonl has 0 bytes, 12 when"), folder():
        pass


def test_a_second_trainer_is_refused_by_pid(folder):
    with folder() as state:
        save(state, 1)
        with pytest.raises(StateError, match=rf"another trainer \(pid {os.getpid()}\) is using"):
            folder().__enter__()
    with folder() as again:
        assert again.resumed.step == 1


def test_the_lock_of_a_killed_trainer_is_free(tmp_path, folder):
    code = (
        "import os, sys; from pathlib import Path; from agentrl.training.snapshot import *\n"
        "StateFolder(Path(sys.argv[1]), 'settings').__enter__(); print('held', flush=True)\n"
        "input()"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "state")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with holder:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(StateError, match=f"pid {holder.pid}"):
            folder().__enter__()
        holder.kill()
    with folder() as state:
        assert state.resumed is None


def test_an_error_while_filling_leaves_no_trace(folder):
    with folder() as state:
        save(state, 1)
        with pytest.raises(ConnectionError), state.snapshot(2) as half:
            (half / "weights").write_text("half")
            raise ConnectionResetError("the learner died")
        assert steps_on_disk(state.path) == ["snapshot-00000001"]
        assert sorted(p.name for p in state.path.iterdir()) == [
            "history.jsonl",
            "lock",
            "snapshot-00000001",
        ]


@pytest.mark.parametrize("call", ["fsync", "mkdir", "rename"])
def test_full_disk_is_one_line_and_the_snapshot_before_stays(folder, monkeypatch, call):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with folder() as state:
        save(state, 1)
        with monkeypatch.context() as patch:
            patch.setattr(os, call, full)
            with pytest.raises(
                StateError, match="cannot write the snapshot of step 2: No space"
            ) as e:
                save(state, 2)
        assert "\n" not in str(e.value)
        assert latest(state.path).step == 1
        save(state, 2)  # space again
        assert latest(state.path).step == 2


def test_removed_in_one_operation(folder):
    with folder() as state:
        save(state, 1)
        state.remove()
        assert list(state.path.parent.iterdir()) == []
    with folder() as state:
        assert state.resumed is None


class PowerCut(BaseException):
    pass


class Disk:
    """Counts the operations that change the disk and cuts the power before the n-th.

    After the cut nothing works any more, clean-up included; what was written but not synced is
    then torn in half.
    """

    CALLS = (
        "mkdir",
        "open",
        "fsync",
        "rename",
        "replace",
        "unlink",
        "rmdir",
        "truncate",
        "ftruncate",
    )

    def __init__(self, monkeypatch, cut_before):
        self.cut_before, self.done, self.dead = cut_before, 0, False
        self.unsynced: set[int] = set()
        self.renamed_unsynced: list[str] = []
        for name in self.CALLS:
            monkeypatch.setattr(os, name, self.wrap(name, getattr(os, name)))
        monkeypatch.setattr(io, "open", self.wrap_open(io.open))

    def tick(self):
        if self.dead or self.done == self.cut_before:
            self.dead = True
            raise PowerCut
        self.done += 1

    def wrap(self, name, real):
        def call(*arguments, **options):
            self.tick()
            if name == "fsync":
                self.unsynced.discard(os.fstat(arguments[0]).st_ino)
            if name == "rename" and arguments[1].name.startswith("snapshot-"):
                self.renamed_unsynced += [
                    file.name
                    for file in arguments[0].rglob("*")
                    if file.is_file() and file.stat().st_ino in self.unsynced
                ]
            return real(*arguments, **options)

        return call

    def wrap_open(self, real):
        def call(path, mode="r", *arguments, **options):
            if not set(mode) & set("wax+"):
                return real(path, mode, *arguments, **options)
            self.tick()
            file = real(path, mode, *arguments, **options)
            self.unsynced.add(os.fstat(file.fileno()).st_ino)
            return file

        return call

    def tear(self, root):
        for path in root.rglob("*"):
            if path.is_file() and path.stat().st_ino in self.unsynced:
                os.truncate(path, path.stat().st_size // 2)


def cut_everywhere(monkeypatch, prepare, action):
    """Yields after a power cut before each operation of `action`, and once when there was none."""
    for cut in range(500):
        prepare(cut)
        with monkeypatch.context() as patch:
            disk = Disk(patch, cut)
            with contextlib.suppress(PowerCut):
                action(cut)
        yield cut, disk
        if not disk.dead:
            return
    raise AssertionError("never came to an end")


def test_power_cut_anywhere_in_a_snapshot(tmp_path, monkeypatch):
    def state_of(cut):
        return tmp_path / str(cut)

    def prepare(cut):
        state = StateFolder(state_of(cut), "s", 1, lambda _: None)
        with state:
            save(state, 1)

    def action(cut):
        with StateFolder(state_of(cut), "s", 1, lambda _: None) as state:
            save(state, 2)

    seen = []
    for cut, disk in cut_everywhere(monkeypatch, prepare, action):
        assert disk.renamed_unsynced == []  # nothing is named a snapshot before it is on the disk
        disk.tear(state_of(cut))
        with StateFolder(state_of(cut), "s", 1, lambda _: None) as state:
            step = state.resumed.step
            assert (state.resumed.path / "weights").read_text() == f"weights {step}"
            assert state.records() == [{"step": n} for n in range(1, step + 1)]
            assert not [p for p in state.path.iterdir() if p.name.startswith(".")]
            save(state, 3)  # and it goes on
        seen.append(step)
    assert seen == sorted(seen) and seen[0] == 1 and seen[-1] == 2 and len(seen) > 15


def test_power_cut_anywhere_in_removing(tmp_path, monkeypatch):
    def state_of(cut):
        return StateFolder(tmp_path / str(cut), "s", 2, lambda _: None)

    def prepare(cut):
        with state_of(cut) as state:
            save(state, 1)

    def action(cut):
        with state_of(cut) as state:
            state.remove()

    ends = []
    for cut, _ in cut_everywhere(monkeypatch, prepare, action):
        with state_of(cut) as state:
            ends.append(state.resumed.step if state.resumed else None)
    assert ends == [1] * ends.count(1) + [None] * ends.count(None)
    assert ends.count(1) and ends.count(None)


def test_manifest_lists_every_file(folder):
    with folder() as state:
        save(state, 4)
        manifest = json.loads((state.path / "snapshot-00000004" / "manifest.json").read_text())
        assert set(manifest["files"]) == {"weights", "more/buffer"}
        assert manifest["step"] == 4 and manifest["history_bytes"] == len('{"step": 4}\n')
        assert read_snapshot(state.path / "snapshot-00000004").fingerprint == "settings"


def test_fingerprint_sees_every_setting():
    base = {"seed": 0, "training": {"steps": 60}}
    assert settings_fingerprint(base) == settings_fingerprint(
        {"training": {"steps": 60}, "seed": 0}
    )
    assert settings_fingerprint(base) != settings_fingerprint({**base, "seed": 1})
