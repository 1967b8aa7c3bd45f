"""config/accelerate/fsdp2.yaml, as `accelerate launch` reads it; no GPU here."""

import argparse
from pathlib import Path

import pytest
from accelerate.commands.config.config_args import load_config_from_file
from accelerate.commands.launch import _validate_launch_command, launch_command_parser
from accelerate.utils import FullyShardedDataParallelPlugin
from accelerate.utils.launch import prepare_multi_gpu_env
from training_toys import tiny_model

from agentrl.training.scorer import TokenScorer

FILE = Path(__file__).parents[2] / "config" / "accelerate" / "fsdp2.yaml"


@pytest.fixture
def environment() -> dict[str, str]:
    """What every rank is told."""
    parser: argparse.ArgumentParser = launch_command_parser()
    given = ["--config_file", str(FILE), "--num_processes", "4", "--no_python", "agentrl", "train"]
    arguments, *_ = _validate_launch_command(parser.parse_args(given))
    assert arguments.use_fsdp and arguments.num_processes == 4
    return prepare_multi_gpu_env(arguments)


def test_the_file_is_accelerates(environment: dict[str, str]) -> None:
    settings = load_config_from_file(str(FILE))
    assert settings.distributed_type == "FSDP" and settings.mixed_precision == "no"
    told = {name: value for name, value in environment.items() if "FSDP" in name}
    assert told["ACCELERATE_USE_FSDP"] == "true"
    assert told["FSDP_VERSION"] == "2"
    assert told["FSDP_AUTO_WRAP_POLICY"] == "TRANSFORMER_BASED_WRAP"
    # Every rank reads the policy; moving it to `meta` would untie its weights.
    assert told["FSDP_CPU_RAM_EFFICIENT_LOADING"] == "false"


def test_it_shards_by_the_layers_of_the_model(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment.items():
        if "FSDP" in name:
            monkeypatch.setenv(name, value)
    plugin = FullyShardedDataParallelPlugin()
    assert plugin.fsdp_version == 2 and plugin.reshard_after_forward is True
    plugin.set_auto_wrap_policy(TokenScorer(tiny_model()))
    assert list(plugin.transformer_cls_names_to_wrap) == ["LlamaDecoderLayer"]
