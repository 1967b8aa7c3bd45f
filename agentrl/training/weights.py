"""Weights that leave the learner, and the state that brings it back.

Invariants: published weights are one file that appears whole, with a checksum by which an engine
can prove that it holds them (pitfall 26); saved state is tensors under the names of the parameters,
never a pickle, and restores weights and optimizers bit by bit (9).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.optim import Optimizer

from agentrl.errors import StateError
from agentrl.training.files import reason, replace_file, sha256


@dataclass(frozen=True, slots=True)
class WeightsRef:
    """One version of the policy's weights on disk: a safetensors file in float32."""

    version: int
    path: Path
    sha256: str


def named_weights(model: nn.Module) -> dict[str, Tensor]:
    """Parameters and persistent buffers under their Hugging Face names, tied ones once."""
    every = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    buffers = {name: value for name, value in model.state_dict().items() if name not in every}
    return {**dict(model.named_parameters()), **buffers}


def publish_weights(model: nn.Module, folder: Path, version: int) -> WeightsRef:
    """Write `folder/weights-<version>.safetensors` atomically."""
    path = folder / f"weights-{version:06d}.safetensors"
    write_tensors(path, named_weights(model), {"version": str(version)})
    return WeightsRef(version, path, sha256(path))


def save_state(path: Path, model: nn.Module, optimizers: Sequence[Optimizer]) -> None:
    """Weights as `model.<name>` and optimizer state as `optimizer.<key>.<name>`."""
    tensors = {f"model.{name}": value for name, value in named_weights(model).items()}
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    for optimizer in optimizers:
        for parameter, state in optimizer.state.items():
            for key, value in state.items():
                tensors[f"optimizer.{key}.{names[id(parameter)]}"] = value
    write_tensors(path, tensors)


def load_state(path: Path, model: nn.Module, optimizers: Sequence[Optimizer]) -> None:
    """Inverse of `save_state`. Raises `StateError` where the file is not of this model."""
    tensors = read_tensors(path)
    weights = named_weights(model)
    saved = {name.removeprefix("model.") for name in tensors if name.startswith("model.")}
    if saved != set(weights):
        odd = sorted(saved ^ set(weights))[0]
        raise StateError(f"{path} is the state of another model: weight {odd!r}")
    with torch.no_grad():
        for name, value in weights.items():
            if value.shape != tensors[f"model.{name}"].shape:
                raise StateError(f"{path} is the state of another model: shape of {name!r}")
            value.copy_(tensors[f"model.{name}"])
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    for optimizer in optimizers:
        _load_optimizer(optimizer, names, tensors)


def _load_optimizer(
    optimizer: Optimizer, names: Mapping[int, str], tensors: Mapping[str, Tensor]
) -> None:
    states: dict[str, dict[str, Tensor]] = {}
    for full, value in tensors.items():
        kind, _, rest = full.partition(".")
        if kind == "optimizer":
            key, _, name = rest.partition(".")
            states.setdefault(name, {})[key] = value
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    current: dict[str, Any] = optimizer.state_dict()
    current["state"] = {
        index: states[names[id(parameter)]]
        for index, parameter in enumerate(parameters)
        if names[id(parameter)] in states
    }
    optimizer.load_state_dict(current)


def write_tensors(
    path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None
) -> None:
    """A safetensors file, atomically; at most one entry of metadata, since their order on disk is
    random and equal tensors are to give equal files. Raises `StateError`."""
    held = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    replace_file(path, lambda aside: save_file(held, aside, metadata=dict(metadata or {})))


def read_tensors(path: Path) -> dict[str, Tensor]:
    """All tensors of a safetensors file. Raises `StateError` where it is missing or damaged."""
    try:
        with safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise StateError(f"cannot read {path}: {reason(error)}") from error
