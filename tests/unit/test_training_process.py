"""The learner's process: requests, errors, death on either side. With a learner that is no learner.

The child is this file imported afresh, so its top level imports nothing heavy.
"""

import asyncio
import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from agentrl.config.load import resolve
from agentrl.errors import ConfigError, InfrastructureError, StateError
from agentrl.training.process import LearnerFailure, LearnerProcess, LocalLearner

CONFIG = resolve({"tasks": {"alpha": {}}})


class ToyLearner:
    """Counts steps; what it is asked to load decides how it misbehaves."""

    def __init__(self, policy_path, config, seed):
        self.policy_path, self.seed, self.steps = policy_path, seed, 0
        self.learning_rate = config.training.learning_rate

    def train_step(self, trajectories):
        self.steps += 1
        return {
            "steps": float(self.steps),
            "got": float(len(trajectories)),
            "lr": self.learning_rate,
        }

    def save(self, folder):
        raise StateError(f"cannot write {folder}: No space left on device")

    def load(self, folder):
        match folder.name:
            case "bug":
                return {}["no such key"]
            case "die":
                os.kill(os.getpid(), signal.SIGKILL)
            case "block":
                (folder.parent / "blocked").write_text(str(os.getpid()))
                signal.pause()
            case "slow":
                time.sleep(0.2)
        return self.steps

    def close(self):
        (self.policy_path / "closed").write_text("")


def toy(policy_path, config, seed):
    return ToyLearner(policy_path, config, seed)


def refuse(policy_path, config, seed):
    raise ConfigError("config key 'policy': no")


def run(scenario):
    asyncio.run(asyncio.wait_for(scenario, 60))


def blocked_pid(folder):
    """Wait until the child's learner blocks; its pid."""
    return int((folder / "blocked").read_text())


def wait_until_gone(pid):
    with contextlib.suppress(ProcessLookupError):
        descriptor = os.pidfd_open(pid)
        assert select.select([descriptor], [], [], 30)[0]
        os.close(descriptor)


def gone(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z"
    except FileNotFoundError:
        return True


def test_requests_answers_and_errors(tmp_path):
    async def scenario():
        learner = await LearnerProcess.start(tmp_path, CONFIG, 3, factory=toy)
        assert await learner.train_step([]) == {"steps": 1, "got": 0, "lr": 6e-4}
        assert await learner.load(tmp_path) == 1
        with pytest.raises(StateError, match="No space left") as ours:
            await learner.save(tmp_path)
        assert "\n" not in str(ours.value)
        assert "test_training_process.py" in ours.value.__notes__[0]
        with pytest.raises(LearnerFailure, match=r"(?s)in load.*KeyError: 'no such key'"):
            await learner.load(tmp_path / "bug")
        assert (await learner.train_step([]))["steps"] == 2  # it lives on
        pid = learner.pid
        await learner.close()
        await learner.close()
        assert gone(pid) and (tmp_path / "closed").exists()
        with pytest.raises(RuntimeError, match="closed learner"):
            await learner.train_step([])

    run(scenario())


def test_the_event_loop_goes_on_and_a_cancelled_request_disturbs_no_other(tmp_path):
    async def scenario():
        learner = await LearnerProcess.start(tmp_path, CONFIG, 0, factory=toy)
        slow = asyncio.create_task(learner.load(tmp_path / "slow"))
        turns = 0
        while not slow.done():
            await asyncio.sleep(0.001)
            turns += 1
        assert turns > 20
        cancelled = asyncio.create_task(learner.load(tmp_path / "slow"))
        await asyncio.sleep(0)
        cancelled.cancel()
        assert (await learner.train_step([]))["steps"] == 1
        await learner.close()

    run(scenario())


def test_a_killed_child_is_an_error_at_once(tmp_path):
    async def scenario():
        learner = await LearnerProcess.start(tmp_path, CONFIG, 0, factory=toy)
        with pytest.raises(InfrastructureError, match=r"died in load\(\) \(exit code -9\)"):
            await learner.load(tmp_path / "die")
        with pytest.raises(InfrastructureError, match="died in train_step"):
            await learner.train_step([])
        await learner.close()

    run(scenario())


def test_close_does_not_wait_for_work_in_progress(tmp_path):
    async def scenario():
        os.mkfifo(tmp_path / "blocked")
        learner = await LearnerProcess.start(tmp_path, CONFIG, 0, factory=toy)
        pid = learner.pid
        blocked = asyncio.create_task(learner.load(tmp_path / "block"))
        await asyncio.to_thread(blocked_pid, tmp_path)
        await learner.close()
        assert gone(pid)
        with pytest.raises(InfrastructureError):
            await blocked

    run(scenario())


def test_a_signal_to_the_group_is_for_the_parent_but_sigkill(tmp_path):
    async def scenario():
        learner = await LearnerProcess.start(tmp_path, CONFIG, 0, factory=toy)
        for number in (signal.SIGINT, signal.SIGTERM):
            os.kill(learner.pid, number)
        assert (await learner.train_step([]))["steps"] == 1
        os.kill(learner.pid, signal.SIGKILL)  # while nobody waits for it
        with pytest.raises(InfrastructureError, match="died in train_step"):
            await learner.train_step([])
        await learner.close()

    run(scenario())


def test_a_learner_that_cannot_be_made_is_its_own_error(tmp_path):
    async def scenario():
        with pytest.raises(ConfigError, match="config key 'policy': no"):
            await LearnerProcess.start(tmp_path, CONFIG, 0, factory=refuse)

    run(scenario())


@pytest.mark.parametrize("end", ["kill", "exit"])
def test_the_child_does_not_outlive_its_parent(tmp_path, end):
    """Also in the middle of a step, and when the parent just ends without closing."""
    code = (
        "import asyncio, sys; from pathlib import Path\n"
        "import test_training_process as t\n"
        "async def main():\n"
        "    folder = Path(sys.argv[1])\n"
        "    learner = await t.LearnerProcess.start(folder, t.CONFIG, 0, factory=t.toy)\n"
        "    print(learner.pid, flush=True)\n"
        "    if sys.argv[2] == 'kill':\n"
        "        await learner.load(folder / 'block')\n"
        "if __name__ == '__main__':\n"
        "    asyncio.run(main())\n"
    )
    script = tmp_path / "parent.py"
    script.write_text(code)
    os.mkfifo(tmp_path / "blocked")
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    parent = subprocess.Popen(
        [sys.executable, str(script), str(tmp_path), end],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    with parent:
        pid = int(parent.stdout.readline())
        if end == "kill":
            assert blocked_pid(tmp_path) == pid
            parent.kill()
        # The child holds the other end of this pipe: it ends with the last of the two.
        assert parent.stdout.read() == ""
    wait_until_gone(pid)


def test_local_learner_has_the_same_face(tmp_path):
    async def scenario():
        learner = await LocalLearner.start(tmp_path, CONFIG, 0, factory=toy)
        assert (await learner.train_step([]))["steps"] == 1
        assert await learner.load(tmp_path) == 1
        with pytest.raises(StateError):
            await learner.save(tmp_path)
        await learner.close()
        assert (tmp_path / "closed").exists()

    run(scenario())
