"""Trackers beside TensorBoard: a tracker of one's own, and one-line errors."""

import pytest
from accelerate.tracking import GeneralTracker
from training_toys import config_of, tiny_model

from agentrl.config import resolve
from agentrl.errors import ConfigError
from agentrl.pipeline.assembly import start_tracking
from agentrl.pipeline.history import scalars
from agentrl.rollout.policy import Policy
from agentrl.training.learner import Learner
from agentrl.training.process import LocalLearner


class ListTracker(GeneralTracker):
    """What it is told, in a list that outlives it."""

    name = "list"
    requires_logging_directory = False
    told: list = []  # noqa: RUF012

    def __init__(self, run):
        super().__init__()
        self.run = run

    @property
    def tracker(self):
        return self.told

    def store_init_configuration(self, values):
        self.told.append(("settings", self.run, values))

    def log(self, values, step=None, **options):
        self.told.append(("step", step, values))

    def finish(self):
        self.told.append(("end",))


async def test_a_tracker_of_ones_own_hears_settings_steps_and_the_end():
    config = config_of().model_copy(update={"trackers": ("test_training_tracking:ListTracker",)})
    from test_training_tracking import ListTracker as Found  # as the learner imports it

    Found.told.clear()
    learner = LocalLearner(Learner(Policy(tiny_model(), None, None, None), config, 0))
    await start_tracking(learner, config, "run-1")
    rows = [{"step": 3, "version": 3, "task": "a", "reward_mean": 0.5, "loss": None},
            {"step": 3, "version": 3, "task": "*", "reward_mean": 0.25, "loss": 1}]  # fmt: skip
    await learner.log(3, scalars(rows, {"entropy": 0.1}))
    await learner.close()
    (kind, run, settings), step, end = Found.told
    assert (kind, run) == ("settings", "run-1")
    assert settings["training.learning_rate"] == 0.01 and settings["tasks.alpha.max_turns"] == 20
    assert step == (
        "step",
        3,
        {
            "train/reward_mean/a": 0.5,
            "train/reward_mean": 0.25,
            "train/loss": 1.0,
            "train/entropy": 0.1,
        },
    )
    assert end == ("end",)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("test_training_tracking:Nothing", "cannot be found"),
        ("nowhere_at_all:Tracker", "cannot be found"),
        ("torch:Tensor", "is no subclass"),
    ],
)
async def test_a_tracker_that_is_not_there_is_one_line(name, message):
    config = config_of().model_copy(update={"trackers": (name,)})
    learner = LocalLearner(Learner(Policy(tiny_model(), None, None, None), config, 0))
    with pytest.raises(ConfigError, match=message) as refused:
        await start_tracking(learner, config, "r")
    assert name in str(refused.value) and "\n" not in str(refused.value)
    await learner.close()


async def test_one_that_is_not_installed_is_named(monkeypatch):
    monkeypatch.setattr("agentrl.training.tracking.find_spec", lambda name: None)
    config = config_of().model_copy(update={"trackers": ("wandb",)})
    learner = LocalLearner(Learner(Policy(tiny_model(), None, None, None), config, 0))
    with pytest.raises(ConfigError, match="wandb is not installed; run: pip install wandb"):
        await start_tracking(learner, config, "r")
    await learner.close()


async def test_wandb_offline(tmp_path, monkeypatch):
    """The real package, where it is installed."""
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    config = config_of().model_copy(update={"trackers": ("wandb",)})
    learner = LocalLearner(Learner(Policy(tiny_model(), None, None, None), config, 0))
    await start_tracking(learner, config, "run-1")
    await learner.log(0, {"train/loss": 1.0})
    await learner.close()
    assert list(tmp_path.glob("wandb/offline-run-*/*.wandb"))


def test_names_are_checked_before_anything_starts():
    with pytest.raises(ConfigError, match="trackers: 'chess' is none of wandb, trackio"):
        resolve({"tasks": {"a": {}}, "trackers": ["chess"]})
