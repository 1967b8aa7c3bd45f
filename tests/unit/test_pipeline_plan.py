"""Plans for large policies: shapes against transformers, memory by hand, the released scales."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, Glm4Config, LlamaConfig, Qwen2Config
from typer.testing import CliRunner

from agentrl import cli
from agentrl.config import load, resolve
from agentrl.config.shapes import SHAPES, Shape, shape_of
from agentrl.config.stages import stage_settings, stages
from agentrl.errors import ConfigError
from agentrl.pipeline.plan import GIB, engine_bytes, learner_bytes, make_plan

ROOT = Path(__file__).parents[2]
LARGE = ("qwen2.5-3b", "qwen2.5-7b", "qwen2.5-14b", "qwen2.5-32b", "glm-4-9b")
every_scale = pytest.mark.parametrize("name", LARGE)


def scale(name, *before):
    return load([*before, ROOT / "config" / "scales" / f"{name}.yaml"])


@pytest.mark.parametrize("name", SHAPES)
def test_parameters_are_those_of_transformers_own_model(name):
    shape = SHAPES[name]
    kind = Glm4Config if name.startswith("GLM") else Qwen2Config
    config = kind(
        vocab_size=shape.vocab_size, hidden_size=shape.hidden_size, num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads, num_key_value_heads=shape.kv_heads, head_dim=128,
        intermediate_size=shape.intermediate_size, tie_word_embeddings=shape.tied,
        attention_bias=shape.attention_bias, pad_token_id=None, eos_token_id=None,
    )  # fmt: skip
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    assert model.num_parameters() == shape.parameters


@pytest.mark.parametrize(
    ("name", "published"),
    [("3B", 3.09), ("7B", 7.61), ("14B", 14.7), ("32B", 32.5)],
)
def test_parameters_are_those_of_the_model_cards(name, published):
    assert SHAPES[f"Qwen2.5-{name}-Instruct"].parameters / 1e9 == pytest.approx(published, rel=0.01)


def test_a_shape_is_read_from_the_folder_that_is_there(tmp_path):
    config = Qwen2Config(
        vocab_size=100, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, intermediate_size=48, tie_word_embeddings=True,
    )  # fmt: skip
    config.save_pretrained(tmp_path)
    shape = shape_of(tmp_path)
    with torch.device("meta"):
        assert AutoModelForCausalLM.from_config(config).num_parameters() == shape.parameters
    LlamaConfig(
        vocab_size=100, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, intermediate_size=48, head_dim=16,
    ).save_pretrained(tmp_path)  # fmt: skip
    assert shape_of(tmp_path) == Shape(100, 32, 2, 4, 2, 48, attention_bias=False, head_size=16)
    (tmp_path / "config.json").write_text('{"vocab_size": "many"}')
    with pytest.raises(ConfigError, match=r"policy\.path.*config\.json cannot be read"):
        shape_of(tmp_path)
    with pytest.raises(ConfigError, match=r"policy\.path': nowhere has no config\.json"):
        shape_of(Path("nowhere"))


def test_memory_by_hand():
    shape = Shape(1000, 100, 4, 2, 1, 300, tied=True, attention_bias=False, norms=2, head_size=50)
    # A layer: 100 * (2 * 100 + 2 * 50) + 3 * 100 * 300 + 200; four of them, 1000 * 100, 100.
    assert shape.layer_parameters == 30_000 + 90_000 + 200
    assert shape.parameters == 4 * 120_200 + 100_000 + 100 == 580_900
    assert shape.kv_bytes() == 2 * 4 * 1 * 50 * 2
    config = resolve(
        {
            "tasks": {"alfworld": {}},
            "training": {"start": "base", "max_tokens_per_microbatch": 10},
        }
    )
    kept = config.training.model_copy(update={"gradient_checkpointing": True})
    everything, config = config, config.model_copy(update={"training": kept})
    activations = 2 * 10 * 100 * 4 + 2 * 10 * (600 + 900) + 10 * 10 * 1000
    gathered = 2 * (2 * 120_200 + 100_000)
    shared = 16 * 580_900
    assert learner_bytes(config, shape, 1) == shared + activations + gathered + 2 * GIB
    assert learner_bytes(config, shape, 4) == shared / 4 + activations + gathered + 2 * GIB
    three_more = 3 * 2 * 10 * (600 + 900)
    assert learner_bytes(everything, shape, 1) - learner_bytes(config, shape, 1) == three_more
    kl = config.model_copy(
        update={"algorithm": config.algorithm.model_copy(update={"kl_coefficient": 0.1})}
    )
    assert learner_bytes(kl, shape, 1) - learner_bytes(config, shape, 1) == 2 * 580_900
    assert engine_bytes(shape, 2) == 580_900 + 4 * GIB


@every_scale
def test_a_large_scale_resolves_alone_and_over_the_others(name):
    alone = scale(name)
    merged = scale(name, ROOT / "config" / "config.yaml")
    assert alone.algorithm.preset == "faithful"
    shared = {"warm_start": alone.warm_start, "variants": alone.variants}  # of config.yaml alone
    assert merged.model_copy(update=shared) == alone
    for stage in stages(merged):
        assert resolve(stage_settings(merged, stage))


@every_scale
def test_the_fewest_gpus_are_enough_and_half_of_them_are_not(name):
    config = scale(name)
    plan = make_plan(config, 80 * GIB)
    assert plan.fits and not make_plan(config, 80 * GIB, plan.gpus // 2).fits
    assert plan.engines > plan.stale >= 1
    assert make_plan(config, 141 * GIB).gpus <= plan.gpus


def test_the_papers_machine():
    """ "H800, at least 16 GPUs for 14B" (paper.md §5.2)."""
    assert make_plan(scale("qwen2.5-14b"), 80 * GIB).gpus == 16


@every_scale
def test_dry_run(name, monkeypatch):
    monkeypatch.chdir(ROOT)
    config = f"config/scales/{name}.yaml"
    shown = CliRunner().invoke(cli.app, ["train", "--config", config, "--dry-run"])
    assert shown.exit_code == 0, shown.output
    settings, _, plan = shown.output.partition("\npolicy    ")
    assert "preset: faithful" in settings and "stale_ratio: 0.25" in settings
    assert "80 GiB" in plan and "models/" in plan.partition("missing:")[2]
    few = CliRunner().invoke(
        cli.app,
        ["train", "--config", config, "--dry-run", "--gpus", "2", "--gpu-memory", "24"],
    )
    assert "2 of 24 GiB: 1 learn, 1 sample - NOT ENOUGH" in few.output


def test_what_cannot_be_planned_is_one_line(tmp_path):
    config = resolve({"tasks": {"alfworld": {}}, "training": {"start": "base"}})
    with pytest.raises(ConfigError, match=r"policy\.path': not set"):
        make_plan(config, 80 * GIB)
    with pytest.raises(ConfigError, match="no 128 GPUs of 4 GiB are enough"):
        make_plan(scale("qwen2.5-32b"), 4 * GIB)


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        ({"kind": "tiny", "path": "x"}, "path: kind 'tiny' is made here"),
        ({"kind": "pretrained"}, "needs one of package and path"),
        ({"kind": "pretrained", "package": "a", "path": "x"}, "needs one of package and path"),
    ],
)
def test_a_policy_has_one_source(policy, words):
    with pytest.raises(ConfigError, match=words):
        resolve({"tasks": {"alfworld": {}}, "training": {"start": "base"}, "policy": policy})


def test_settings_without_a_folder_are_the_settings_they_were():
    config = resolve({"tasks": {"alfworld": {}}, "training": {"start": "base"}})
    assert "path" not in stage_settings(config, "base")["policy"]
    assert json.dumps(stage_settings(scale("glm-4-9b"), "base")["policy"]["path"]) == (
        '"models/GLM-4-9B-0414"'
    )
