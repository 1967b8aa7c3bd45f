"""A cut of the power at any moment of a training run, on a disk that loses what was not synced.

A whole run on the virtual clock - the real loop, buffer, recorder, snapshots and results, a toy learner
that writes its files with the real functions - is recorded call by call (`tests.lossy_disk`). Whatever a
cut may leave of it is then opened, and by samples of hypothesis run to the end. Invariant 9: it is the
unbroken run; what `snapshot` or `remove` had said is done stays done.
"""

import asyncio
import hashlib
import os
import shutil
from collections import Counter
from contextlib import closing
from dataclasses import dataclass

import looptime
import pandas as pd
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pipeline_toys import ToyRun, completion, echo_renderer

from agentrl.errors import AgentRLError
from agentrl.pipeline import assembly
from agentrl.pipeline.recorder import RunRecorder
from agentrl.rollout.trajectory_io import read_trajectories
from agentrl.training import files, snapshot
from agentrl.training.files import write_json
from agentrl.training.snapshot import StateFolder
from agentrl.training.weights import publish_weights, read_tensors, write_tensors
from tests.lossy_disk import Disk, Recorder, disks, plain_cuts, write_tree

RENDERER = echo_renderer()
STEPS, EVERY, SIZE = 3, 1, 2
BOUND = 2


class ToyLearner:
    """Its weights are a checksum of all that it was trained on, in order."""

    def __init__(self):
        self.digest = b""

    async def train_step(self, trajectories):
        told = [(t.task, t.index, t.key, t.seed, t.token_ids.tolist()) for t in trajectories]
        self.digest = hashlib.sha256(self.digest + repr(told).encode()).digest()
        await asyncio.sleep(1.0)
        return {"loss": 0.0}

    def _weights(self):
        return {"w": torch.tensor(list(self.digest), dtype=torch.uint8)}

    async def publish(self, folder, version):
        return publish_weights(self._weights(), folder, version)

    async def save(self, folder):
        write_tensors(folder / "learner.safetensors", self._weights())
        write_json(folder / "learner.json", {})

    async def load(self, folder):
        self.digest = bytes(read_tensors(folder / "learner.safetensors")["w"].tolist())

    async def export_policy(self, path):
        write_tensors(path / "model.safetensors", self._weights())

    async def log(self, step, values):
        pass


class SavedRun(ToyRun):
    """A run with a state folder and results, as `assembly.train` has it."""

    mark = staticmethod(lambda name: None)

    def turn(self, prompt, counted):  # a resumed episode is not at its first one
        said, prompt = completion(RENDERER, "a"), list(prompt)
        return sum(prompt[i : i + len(said)] == said for i in range(len(prompt)))

    async def surroundings(self, config, rollouts):
        self.learner, mark = ToyLearner(), self.mark

        class Snapshots(assembly.RunSnapshots):
            async def save(self, step, *arguments):
                mark(("saving", step))
                await super().save(step, *arguments)
                mark(("saved", step))

        self.state.path.joinpath("weights").mkdir(exist_ok=True)
        snapshots = Snapshots(self.state, self.learner, rollouts.pool)
        done = await snapshots.resume(rollouts) if self.state.resumed else 0
        recorder = RunRecorder(
            self.state, self.state.path / "trajectories", self.state.path / "tensorboard",
            run="toy", steps=STEPS, done=done,
        )  # fmt: skip
        self.recorder = recorder
        return snapshots, snapshots, recorder, done

    async def train(self):
        root = self.folder
        with StateFolder(root / "state", "toy", 1, lambda _: None) as self.state:
            resumed = self.state.resumed.step if self.state.resumed else 0
            try:
                assert await self.run()
            finally:
                self.recorder.__exit__()
            await self.learner.export_policy(root / "output" / "policy")
            assembly._write_results(self.state, root / "output", self.config(), run="toy", seed=0)
            self.mark("removing")
            self.state.remove()
            self.mark("removed")
        return resumed


def run_of(folder):
    """Episodes of one to three turns on five places; completions of 1 to 5 s."""
    return SavedRun(
        folder,
        RENDERER,
        {"echo": 7, "other": 3},
        steps=STEPS,
        group_size=SIZE,
        max_staleness=BOUND,
        concurrency=5,
        training={"snapshot_every": EVERY, "keep_snapshots": 1},
        seconds=lambda task, group, member: 1.0 + (7 * group + 3 * member) % 5,
        text=lambda group, member, turn: "stop" if turn == (group + member) % 3 else "a",
    )


def train(folder, mark=None):
    run = run_of(folder)
    if mark:
        run.mark = mark
    with closing(looptime.new_event_loop(start=0)) as loop:
        return loop.run_until_complete(run.train())


def results(folder):
    """What a run leaves, but for clocks and for which version sampled what."""
    trajectories = [
        [(t.task, t.index, t.key, t.seed, t.status, t.reward, t.token_ids.tolist()) for t in found]
        for found in map(read_trajectories, sorted((folder / "trajectories").iterdir()))
    ]
    history = pd.read_parquet(folder / "history.parquet")
    assert history[history["task"] == "*"]["staleness_max"].max() <= BOUND
    rows = history[["step", "task", "episodes", "tokens_mean", "turns_mean"]].to_dict("records")
    weights = read_tensors(folder / "policy" / "model.safetensors")["w"].tolist()
    return trajectories, rows, weights


@pytest.fixture(autouse=True)
def quick_disk(monkeypatch):
    """The disk of the test itself need not last."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


@dataclass
class Whole:
    """A recorded run that was not cut."""

    recorder: Recorder
    results: tuple
    files: dict[str, bytes]
    """Of its trajectories, by name."""

    def cuts(self):
        """(disk, what is left there) for every plain cut; what is the same comes once."""
        seen, recorder = set(), self.recorder
        after = zip([None, *recorder.events], disks(recorder.events, recorder.folders), strict=True)
        for event, disk in after:
            for kept, contents in plain_cuts(disk, event):
                tree = disk.left(kept, contents)
                key = (frozenset(tree.items()), *disk.marks[-1:])
                if key not in seen:
                    seen.add(key)
                    yield disk, tree


def record(root):
    with Recorder(root) as recorder:
        train(root, recorder.mark)
    files = {p.name: p.read_bytes() for p in (root / "output" / "trajectories").iterdir()}
    return Whole(recorder, results(root / "output"), files)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return record(tmp_path_factory.mktemp("whole"))


def promised(disk: Disk):
    """Steps of the last snapshot that was said to be done, and of the last that was begun."""
    done = [mark[1] for mark in disk.marks if mark[0] == "saved"]
    begun = [mark[1] for mark in disk.marks if mark[0] == "saving"]
    return max(done, default=0), max(begun, default=0)


def good_results(folder, disk, whole):
    """Whether the results must be there by now; then they are."""
    if "removed" not in disk.marks and (
        "removing" not in disk.marks or any((folder / "state").glob("snapshot-*"))
    ):
        return False
    assert results(folder / "output") == whole.results
    return True


def opened(folder, disk, whole):
    """The step that a run would go on from, with all that it needs; None where it has its results."""
    if good_results(folder, disk, whole):
        return None
    low, high = promised(disk)
    with StateFolder(folder / "state", "toy", 1, lambda _: None) as state:
        step = state.resumed.step if state.resumed else 0
        assert low <= step <= high
        assert [row["step"] for row in state.records() if row["task"] == "*"] == [*range(step)]
        for number in range(step):
            name = f"step-{number:06d}.parquet"
            assert (state.path / "trajectories" / name).read_bytes() == whole.files[name]
    return step


def check(cuts, whole, folder):
    """Opens what every cut leaves; how many there were of each step."""
    steps = Counter()
    for disk, tree in cuts:
        write_tree(folder, tree)
        steps[opened(folder, disk, whole)] += 1
        shutil.rmtree(folder)
    return steps


def test_the_run_itself(whole):
    """Enough happens for the rest to mean something."""
    trajectories, rows, _ = whole.results
    assert [len(step) for step in trajectories] == [2 * SIZE] * STEPS
    assert len({len(t[-1]) for step in trajectories for t in step}) == 3
    assert len(rows) == 3 * STEPS
    *_, end = disks(whole.recorder.events, whole.recorder.folders)
    assert promised(end) == (STEPS, STEPS) and "removed" in end.marks
    assert len(whole.recorder.events) > 200


def test_every_plain_cut_leaves_the_old_snapshot_or_the_new_one(whole, tmp_path):
    steps = check(whole.cuts(), whole, tmp_path / "cut")
    assert set(steps) == {0, 1, 2, 3, None} and sum(steps.values()) > 1000


def without_names_beside(patch):
    """The history's content alone is synced before a snapshot."""
    patch.setattr(StateFolder, "_sync_beside", lambda self: snapshot.sync(self.history))


def without_synced_results(patch):
    patch.setattr(assembly, "sync_tree", lambda path: None)


def without_synced_renames(patch):
    """Folders are emptied, and snapshots taken for done, before the disk knows their new names."""

    def files_only(path):
        if not path.is_dir():
            files.sync(path)

    patch.setattr(snapshot, "sync", files_only)


@pytest.mark.parametrize(
    ("fault", "since"),
    [
        (without_names_beside, ("saving", 1)),
        (without_synced_results, "removing"),
        (without_synced_renames, ("saved", 1)),
    ],
)
def test_a_missing_sync_is_found(tmp_path, monkeypatch, fault, since):
    """The check has teeth: each of these was, or could have been, in the code."""
    (tmp_path / "root").mkdir()
    with monkeypatch.context() as patch:
        fault(patch)
        whole = record(tmp_path / "root")
    with pytest.raises((AssertionError, AgentRLError, OSError)):
        cuts = ((disk, tree) for disk, tree in whole.cuts() if since in disk.marks)
        check(cuts, whole, tmp_path / "cut")


@settings(
    max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture], derandomize=True
)
@given(data=st.data())
def test_any_cut_resumed_trains_the_same_samples(whole, tmp_path_factory, data):
    recorder = whole.recorder
    end = data.draw(st.integers(0, len(recorder.events)), label="events before the cut")
    *_, disk = disks(recorder.events[:end], recorder.folders)
    count = len(disk.pending)
    kept = data.draw(st.lists(st.booleans(), min_size=count, max_size=count), label="names kept")
    contents = {
        node: data.draw(st.sampled_from(disk.survivors_of(node)), label=f"content of {node}")
        for node in disk.dirty
    }
    folder = tmp_path_factory.mktemp("cut") / "root"
    write_tree(folder, disk.left(kept, contents))
    if not good_results(folder, disk, whole):
        low, high = promised(disk)
        assert low <= train(folder) <= high
        assert results(folder / "output") == whole.results
