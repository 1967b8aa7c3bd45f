"""Weights that leave the learner, and the state that brings it back.

Invariants: published weights are one file that appears whole, with a checksum by which an engine
can prove that it holds them (pitfall 26); saved state is tensors under the names of the parameters,
never a pickle, and restores weights and optimizers bit by bit (9); both are whole tensors, also of
weights that are spread over ranks, so that what one number of ranks wrote another can read.

Every rank calls these functions, since gathering is a meeting of all; only one of them `writes`.
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


def trained_weights(model: nn.Module) -> dict[str, Tensor]:
    """`named_weights` without frozen parameters, which are the policy's that the run started from."""
    frozen = {name for name, value in model.named_parameters() if not value.requires_grad}
    return {name: value for name, value in named_weights(model).items() if name not in frozen}


def publish_weights(
    weights: Mapping[str, Tensor], folder: Path, version: int, *, writes: bool = True
) -> WeightsRef | None:
    """Write `folder/weights-<version>.safetensors` atomically; None where this rank does not."""
    path = folder / f"weights-{version:06d}.safetensors"
    write_tensors(path, weights, {"version": str(version)}, writes=writes)
    return WeightsRef(version, path, sha256(path)) if writes else None


def save_state(
    path: Path, model: nn.Module, optimizers: Sequence[Optimizer], *, writes: bool = True
) -> None:
    """Trained weights as `model.<name>` and optimizer state as `optimizer.<key>.<name>`."""
    tensors = {f"model.{name}": value for name, value in trained_weights(model).items()}
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    for optimizer in optimizers:
        for parameter, state in optimizer.state.items():
            for key, value in state.items():
                tensors[f"optimizer.{key}.{names[id(parameter)]}"] = value
    write_tensors(path, tensors, writes=writes)


def load_state(path: Path, model: nn.Module, optimizers: Sequence[Optimizer]) -> None:
    """Inverse of `save_state`. Raises `StateError` where the file is not of this model."""
    tensors = read_tensors(path)
    weights = trained_weights(model)
    saved = {name.removeprefix("model.") for name in tensors if name.startswith("model.")}
    if saved != set(weights):
        odd = sorted(saved ^ set(weights))[0]
        raise StateError(f"{path} is the state of another model: weight {odd!r}")
    with torch.no_grad():
        for name, value in weights.items():
            if value.shape != tensors[f"model.{name}"].shape:
                raise StateError(f"{path} is the state of another model: shape of {name!r}")
            value.copy_(spread_like(value, tensors[f"model.{name}"]))
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
        index: {
            key: spread_like(parameter, value)
            for key, value in states[names[id(parameter)]].items()
        }
        for index, parameter in enumerate(parameters)
        if names[id(parameter)] in states
    }
    optimizer.load_state_dict(current)


def whole(tensor: Tensor) -> Tensor:
    """All of a tensor that is spread over ranks (FSDP2); other tensors as they are."""
    if hasattr(tensor, "full_tensor"):
        gathered: Tensor = tensor.full_tensor()
        return gathered
    return tensor


def spread_like(target: Tensor, tensor: Tensor) -> Tensor:
    """`tensor` spread over ranks as `target` is, where it is and has its shape."""
    if not hasattr(target, "full_tensor") or tensor.shape != target.shape:
        return tensor
    from torch.distributed.tensor import DTensor, distribute_tensor

    assert isinstance(target, DTensor)
    return distribute_tensor(tensor, target.device_mesh, target.placements)


def write_tensors(
    path: Path,
    tensors: Mapping[str, Tensor],
    metadata: Mapping[str, str] | None = None,
    *,
    writes: bool = True,
) -> None:
    """A safetensors file, atomically; at most one entry of metadata, since their order on disk is
    random and equal tensors are to give equal files. Raises `StateError`."""
    held: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        full = whole(tensor.detach())
        if writes:
            held[name] = full.cpu().contiguous()
    if not writes:
        return
    replace_file(path, lambda aside: save_file(held, aside, metadata=dict(metadata or {})))


def read_tensors(path: Path) -> dict[str, Tensor]:
    """All tensors of a safetensors file. Raises `StateError` where it is missing or damaged."""
    try:
        with safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise StateError(f"cannot read {path}: {reason(error)}") from error
