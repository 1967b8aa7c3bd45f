"""Evaluation measures the expert by the rules it measures policies by."""

import pytest

from agentrl.config import resolve
from agentrl.errors import DataError, InfrastructureError
from agentrl.evaluation.rows import Job, jobs
from agentrl.evaluation.run import _expert_row
from agentrl.tasks.base import Sample
from tests.fakes import EchoTask

JOB = Job("greedy", Sample("echo", "std", 3), 0, 1)


class Flaky(EchoTask):
    """Fails to start so many times."""

    def __init__(self, failures: int):
        super().__init__()
        self.failures = failures

    async def start(self, sample, seed):
        self.failures -= 1
        if self.failures >= 0:
            raise InfrastructureError("no server")
        return await super().start(sample, seed)


@pytest.mark.parametrize(
    ("failures", "status", "reward", "success"),
    [(0, "completed", 1.0, 1.0), (2, "completed", 1.0, 1.0), (3, "task error", None, None)],
)
async def test_a_failed_episode_is_tried_again_and_then_has_no_reward(
    failures, status, reward, success
):
    row = await _expert_row(Flaky(failures), JOB, attempts=3)
    assert (row["status"], row["reward"], row["success"]) == (status, reward, success)


def config(**evaluation):
    return resolve({"tasks": {"echo": {"factory": "x:y"}}, "evaluation": evaluation,
                    "training": {"start": "base"}})  # fmt: skip


def test_sampled_episodes_repeat_and_every_policy_gets_the_same_seeds():
    tasks = {"echo": EchoTask()}
    sampled = jobs(config(samples=4, repeats=3), tasks, "std", 7, "sampled")
    assert [(job.sample.index, job.repeat) for job in sampled] == [
        (index, repeat) for index in range(4) for repeat in range(3)
    ]
    assert len({job.seed for job in sampled}) == 12
    greedy = jobs(config(samples=4, repeats=3), tasks, "std", 7, "greedy")
    assert [job.seed for job in greedy] == [job.seed for job in sampled if job.repeat == 0]


def test_a_split_without_samples_is_refused_by_name():
    class Empty(EchoTask):
        def samples(self, split):
            return []

    with pytest.raises(DataError, match="task 'echo': split 'std' has no samples"):
        jobs(config(), {"echo": Empty()}, "std", 0, "greedy")
