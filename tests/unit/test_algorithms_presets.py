"""The two presets: complete, never mixed in silence, and documented."""

from pathlib import Path

import pytest

from agentrl.config.algorithm import FAITHFUL, AlgorithmConfig
from agentrl.config.load import resolve
from agentrl.errors import ConfigError

OWN = {"preset", "ablate"}
PAGE = Path(__file__).parents[2] / "docs" / "algorithms.md"


def algorithm(**keys):
    return resolve({"tasks": {"alpha": {}}, "algorithm": keys}).algorithm


def test_faithful_says_something_of_every_key():
    assert set(FAITHFUL) == set(AlgorithmConfig.model_fields) - OWN


def test_faithful_is_what_the_released_code_does():
    """paper.md §5.2, the config of the 14B five-task run, and §5.6."""
    got = algorithm(preset="faithful")
    assert (got.clip_low, got.clip_high, got.dual_clip) == (0.2, 0.2, 3.0)
    assert (got.kl_coefficient, got.kl_estimator, got.loss_mean) == (1e-4, "k3", "token")
    assert (got.estimator, got.task_normalization, got.incomplete_reward) == ("grpo", True, -0.2)
    assert got.dead_groups == "keep"  # finding 7
    assert (got.ratio, got.proximal, got.importance) == ("token", "behaviour", "none")  # finding 9


def test_corrected_is_the_default():
    assert algorithm(preset="corrected") == algorithm() == AlgorithmConfig()
    assert (algorithm().dead_groups, algorithm().estimator) == ("zero", "dr-grpo")


def test_a_mixture_is_refused_unless_it_is_named():
    with pytest.raises(ConfigError, match=r"clip_high: 0\.3 is not 0\.2, as preset 'faithful'"):
        algorithm(preset="faithful", clip_high=0.3)
    with pytest.raises(ConfigError, match="ablate: 'dual_clip' is as preset 'faithful' has it"):
        algorithm(preset="faithful", ablate=["dual_clip"])
    with pytest.raises(ConfigError, match="ablate: 'dual_clip' is as preset 'corrected' has it"):
        algorithm(ablate=["dual_clip"], dual_clip=2.0)
    got = algorithm(preset="faithful", ablate=["dead_groups"], dead_groups="zero")
    assert got.dead_groups == "zero" and got.estimator == "grpo"


@pytest.mark.parametrize(
    "keys",
    [
        {},
        {"preset": "faithful"},
        {"preset": "faithful", "ablate": ["dead_groups"], "dead_groups": "zero"},
        {"estimator": "reinforce++", "task_normalization": False, "proximal": "step"},
    ],
)
def test_settings_written_out_and_read_again_are_the_same(keys):
    config = algorithm(**keys)
    assert AlgorithmConfig.model_validate(config.model_dump(mode="json")) == config


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"importance": "token"}, "importance: 'token' has no effect.*set proximal to 'step'"),
        ({"estimator": "reinforce++"}, "task_normalization: true undoes the normalisation"),
        ({"normalize_std": True}, "unknown config key 'algorithm.normalize_std'"),
        ({"min_group_size": 1}, r"algorithm\.min_group_size"),
        ({"estimator": "gae"}, r"algorithm\.estimator"),
    ],
)
def test_settings_that_would_do_nothing_are_one_line(keys, words):
    with pytest.raises(ConfigError, match=words) as error:
        algorithm(**keys)
    assert "\n" not in str(error.value) and "(got {" not in str(error.value)


def test_the_page_names_every_key_and_every_choice():
    text = PAGE.read_text(encoding="utf-8")
    for name, field in AlgorithmConfig.model_fields.items():
        assert f"`{name}`" in text, name
        for choice in getattr(field.annotation, "__args__", ()):
            if isinstance(choice, str):
                assert f"`{choice}`" in text, (name, choice)
