"""What is done to the model before it is trained: LoRA adapters, recomputed activations.

Invariants: engines and exported policies see plain Hugging Face weights, adapters merged in, without
the model being touched - merging and taking apart again would round the base each time; adapters
start from the run's seed (8) and from the policy itself, since one of their two factors is 0.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn
from transformers import GradientCheckpointingLayer

from agentrl.config.learning import LoraConfig
from agentrl.errors import ConfigError
from agentrl.randomness import derive
from agentrl.training.weights import named_weights

ADAPTER = "default"


def add_adapters(model: Any, config: LoraConfig, seed: int) -> Any:
    """`model` frozen, with a trainable low-rank adapter beside its linear layers (arXiv 2106.09685).

    Raises `ConfigError` where `peft` is not installed or a named layer is not there.
    """
    if find_spec("peft") is None:
        raise ConfigError(
            "config key 'training.lora': peft is not installed; run: "
            "pip install 'agentrl-reproducible[lora]', or remove training.lora"
        )
    import peft

    settings = peft.LoraConfig(
        r=config.rank,
        lora_alpha=config.alpha,
        lora_dropout=0.0,
        target_modules=list(config.target_modules) or "all-linear",
        task_type="CAUSAL_LM",
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive(seed, "adapters"))
        try:
            return peft.get_peft_model(model, settings, adapter_name=ADAPTER)
        except ValueError as error:
            reason = str(error).splitlines()[0]
            raise ConfigError(f"config key 'training.lora.target_modules': {reason}") from None


def is_adapted(model: nn.Module) -> bool:
    return hasattr(model, "peft_config")


@torch.no_grad()
def exported_weights(model: Any) -> dict[str, Tensor]:
    """The policy's weights under their Hugging Face names, adapters added to what they adapt."""
    if not is_adapted(model):
        return named_weights(model)
    base = model.get_base_model()
    layers = dict(base.named_modules())
    out: dict[str, Tensor] = {}
    for name, value in named_weights(base).items():
        owner, _, last = name.rpartition(".")
        if ".lora_" in name:
            continue
        if owner.endswith(".base_layer"):
            owner = owner.removesuffix(".base_layer")
            if last == "weight":
                value = value + layers[owner].get_delta_weight(ADAPTER)
            name = f"{owner}.{last}"
        out[name] = value
    return out


def recompute_activations(model: Any) -> None:
    """Keep only each layer's input for the backward pass; the rest is computed again in it.

    Raises `ConfigError` for models that cannot do so.
    """
    layers = [part for part in model.modules() if isinstance(part, GradientCheckpointingLayer)]
    try:
        if hasattr(model, "activation_checkpointing_enable"):
            model.activation_checkpointing_enable(
                activation_checkpointing_kwargs={"use_reentrant": False}
            )
        else:  # transformers before it was renamed
            model.gradient_checkpointing_enable(
                gradient_checkpointing_kwargs={"use_reentrant": False}
            )
    except ValueError as error:
        layers, reason = [], str(error).splitlines()[0]
    else:
        reason = "none of its layers recomputes"
    if not layers:
        raise ConfigError(
            f"config key 'training.gradient_checkpointing': {reason}; set it to false"
        )
    for layer in layers:
        # Only a layer in training mode recomputes. What is in it stays in evaluation mode, so that
        # dropout is off as it is in the engine.
        layer.training = True
