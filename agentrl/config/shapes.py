"""Shapes of decoder-only models: parameters, and bytes of a token's keys and values."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from agentrl.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Shape:
    """A decoder with grouped-query attention and a gated feed-forward part."""

    vocab_size: int
    hidden_size: int
    layers: int
    heads: int
    kv_heads: int
    intermediate_size: int
    tied: bool = False
    """Whether input and output embeddings are one matrix."""
    attention_bias: bool = True
    """Of queries, keys and values."""
    norms: int = 2
    """A layer."""
    head_size: int = 128

    @property
    def layer_parameters(self) -> int:
        queries, keys = self.heads * self.head_size, self.kv_heads * self.head_size
        attention = self.hidden_size * (2 * queries + 2 * keys)
        bias = (queries + 2 * keys) * self.attention_bias
        return (
            attention
            + bias
            + 3 * self.hidden_size * self.intermediate_size
            + self.norms * self.hidden_size
        )

    @property
    def embedding_parameters(self) -> int:
        return self.vocab_size * self.hidden_size

    @property
    def parameters(self) -> int:
        embeddings = self.embedding_parameters * (1 if self.tied else 2)
        return embeddings + self.layers * self.layer_parameters + self.hidden_size

    def kv_bytes(self, width: int = 2) -> int:
        """Of one token in a KV cache whose numbers take `width` bytes."""
        return 2 * self.layers * self.kv_heads * self.head_size * width


SHAPES: Mapping[str, Shape] = {
    "Qwen2.5-3B-Instruct": Shape(151936, 2048, 36, 16, 2, 11008, tied=True),
    "Qwen2.5-7B-Instruct": Shape(152064, 3584, 28, 28, 4, 18944),
    "Qwen2.5-14B-Instruct": Shape(152064, 5120, 48, 40, 8, 13824),
    "Qwen2.5-32B-Instruct": Shape(152064, 5120, 64, 40, 8, 27648),
    "GLM-4-9B-0414": Shape(151552, 4096, 40, 32, 2, 13696, attention_bias=False, norms=4),
}
"""By the name of the folder that a model is kept in: its plan can be made before it is there."""


def shape_of(folder: Path) -> Shape:
    """From the folder's `config.json`, else by its name. Raises `ConfigError`."""
    file = folder / "config.json"
    if not file.is_file():
        if folder.name not in SHAPES:
            raise ConfigError(
                f"config key 'policy.path': {folder} has no config.json, and {folder.name!r} is none of "
                f"{', '.join(SHAPES)}"
            )
        return SHAPES[folder.name]
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
        heads = int(data["num_attention_heads"])
        return Shape(
            int(data["vocab_size"]),
            int(data["hidden_size"]),
            int(data["num_hidden_layers"]),
            heads,
            int(data.get("num_key_value_heads") or heads),
            int(data["intermediate_size"]),
            tied=bool(data.get("tie_word_embeddings", False)),
            attention_bias=bool(data.get("attention_bias", data.get("model_type") == "qwen2")),
            norms=4 if data.get("model_type") == "glm4" else 2,
            head_size=int(data.get("head_dim") or int(data["hidden_size"]) // heads),
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"config key 'policy.path': {file} cannot be read: {error!r}") from None
