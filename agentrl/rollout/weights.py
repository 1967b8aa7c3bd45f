"""Weights on disk as engines take them: one safetensors file, or a policy folder with one.

Invariant: what an engine holds can be compared with what was published (pitfall 26).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from agentrl.errors import InfrastructureError, StateError

WEIGHTS = "model.safetensors"


def weights_file(path: Path) -> Path:
    """The weights of a policy folder, or `path` itself where it is a file."""
    return path / WEIGHTS if path.is_dir() else path


def read_weights(path: Path, version: int | None = None) -> dict[str, Tensor]:
    """All tensors under their Hugging Face names.

    Raises `StateError` where the file is missing or damaged, `InfrastructureError` where it says
    that it holds another version than `version`.
    """
    file = weights_file(path)
    try:
        with safe_open(file, framework="pt") as opened:
            written = (opened.metadata() or {}).get("version")
            tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise StateError(f"cannot read the weights {file}: {error}") from None
    if None not in (version, written) and str(version) != written:
        raise InfrastructureError(f"weights {file} hold version {written}, not {version}")
    return tensors


def tensors_digest(tensors: Mapping[str, Tensor]) -> str:
    """BLAKE2b over names, types, shapes and bytes, in the order of names."""
    digest = hashlib.blake2b(digest_size=16)
    for name in sorted(tensors):
        tensor = tensors[name].detach().contiguous()
        digest.update(f"{name}:{tensor.dtype}:{tuple(tensor.shape)};".encode())
        digest.update(tensor.view(-1).view(torch.uint8).cpu().numpy().tobytes())
    return digest.hexdigest()


def file_digest(path: Path) -> str:
    """Checksum of the tensors in a weights file: two versions may well be equal."""
    return tensors_digest(read_weights(path))
