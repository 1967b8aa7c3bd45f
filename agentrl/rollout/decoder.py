"""The forward pass of a policy over a `KVCache`: an own one for Llama shapes, else the library's.

Invariants: both give the log-probabilities of a plain full forward pass - `check` compares them
when an engine starts, and nothing falls back silently (13); `tensors` shows what is really held,
so that new weights can be proven to have arrived (pitfall 26).

Why an own one: a small model spends most of a step on overhead. Prompts and running completions
share one pass; tokens stay flat, with padding in attention only; projections are fused, and what
only logits need is computed for the wanted tokens. The query heads of one key-value head are taken
as queries of it, so its keys are read once.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from agentrl.errors import InfrastructureError, StateError
from agentrl.rollout.kv_cache import Group, KVCache, RowWork, SlotCache, TokenBatch, make_batch
from agentrl.rollout.weights import read_weights

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
TOLERANCE = {"fp32": 1e-4, "bf16": 0.25}
"""Largest difference of a log-probability from the plain forward pass, by type."""
_STATIC_ROPE = ("default", "linear", "llama3", "yarn")


class Decoder(Protocol):
    def tensors(self) -> dict[str, Tensor]:
        """The weights that it computes with, under their Hugging Face names."""
        ...

    def logits(self, batch: TokenBatch, cache: KVCache) -> Tensor:
        """float32[W, vocabulary] after the wanted tokens; the whole batch goes into the cache."""
        ...


def create_decoder(
    path: Path, max_tokens: int, dtype: str, kind: str, device: str = "cpu"
) -> Decoder:
    """A decoder with the weights of the policy in `path`.

    `kind`: "own", "transformers", or "auto" for the own one where the model's shape allows."""
    config = AutoConfig.from_pretrained(path, local_files_only=True)
    if kind == "own" or (kind == "auto" and supports(config)):
        decoder = LlamaDecoder(config, max_tokens, DTYPES[dtype], device)
        load_tensors(decoder, read_weights(path), path)
        return decoder
    return ModelDecoder(path, DTYPES[dtype], device)


def supports(config: Any) -> bool:
    """Whether `LlamaDecoder` computes exactly what the library's model does."""
    rope = getattr(config, "rope_parameters", None) or {}
    return (
        config.model_type in ("llama", "qwen2")
        and config.hidden_act == "silu"
        and not getattr(config, "mlp_bias", False)
        and not getattr(config, "use_sliding_window", False)
        and rope.get("rope_type") in _STATIC_ROPE
    )


def create_cache(
    config: Any, rows: int, max_tokens: int, dtype: str, device: str = "cpu"
) -> KVCache:
    heads = config.num_attention_heads
    return KVCache(
        config.num_hidden_layers,
        rows,
        getattr(config, "num_key_value_heads", None) or heads,
        max_tokens,
        getattr(config, "head_dim", None) or config.hidden_size // heads,
        DTYPES[dtype],
        device,
    )


def load_tensors(decoder: Decoder, tensors: Mapping[str, Tensor], source: Path) -> None:
    """Copy weights into a decoder, and prove that it holds them.

    Raises `StateError` where they are of another model, `InfrastructureError` where they do not
    arrive.
    """
    held = decoder.tensors()
    for name, target in held.items():
        if name not in tensors or tensors[name].shape != target.shape:
            what = "shape" if name in tensors else "lack"
            raise StateError(f"{source} holds the weights of another model: {what} of {name!r}")
    unknown = sorted(set(tensors) - set(held) - {"lm_head.weight"})
    if unknown:
        raise StateError(f"{source} holds the weights of another model: {unknown[0]!r}")
    with torch.no_grad():
        for name, target in held.items():
            target.copy_(tensors[name])
    for name, now in decoder.tensors().items():
        if not torch.equal(now, tensors[name].to(now)):
            raise InfrastructureError(f"the engine does not hold {name!r} of {source}")


def check(decoder: Decoder, path: Path, dtype: str, device: str = "cpu") -> None:
    """Compare with a plain forward pass: two rows, two turns of different lengths.

    Raises `InfrastructureError` where a log-probability is off by more than `TOLERANCE`.
    """
    auto: Any = AutoModelForCausalLM
    kind, held = DTYPES[dtype], decoder.tensors()
    config = AutoConfig.from_pretrained(path, local_files_only=True)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        model = auto.from_config(config, dtype=kind).eval().to(device)
        for name, value in model.named_parameters():
            value.copy_(held[name])
    size = model.config.vocab_size
    rows = [[(7 * i + 3) % size for i in range(9)], [(5 * i + 2) % size for i in range(6)]]
    cache = create_cache(model.config, 3, 16, dtype, device)
    with torch.inference_mode():
        for cuts in [((0, 5), (0, 2)), ((5, 8), (2, 5)), ((8, 9), (5, 6))]:
            work = [
                RowWork(2 * n, start, rows[n][start:end]) for n, (start, end) in enumerate(cuts)
            ]
            got = decoder.logits(make_batch(work, kind).to(model.device), cache)
        for row, ids in enumerate(rows):
            plain = model(torch.tensor([ids], device=device)).logits[0, -1].float()
            worst = (plain.log_softmax(-1) - got[row].log_softmax(-1)).abs().max().item()
            if not worst <= TOLERANCE[dtype]:
                raise InfrastructureError(
                    f"the engine's decoder {type(decoder).__name__} is off by {worst:.1e} for the "
                    f"policy {path} ({model.config.model_type}); it cannot serve this model"
                )


class LlamaDecoder:
    """Llama and Qwen2 shapes, from the tensors of a checkpoint."""

    def __init__(
        self, config: Any, max_tokens: int, dtype: torch.dtype, device: str = "cpu"
    ) -> None:
        self._heads = config.num_attention_heads
        self._kv_heads = config.num_key_value_heads
        self._head_dim = getattr(config, "head_dim", None) or config.hidden_size // self._heads
        self._epsilon = config.rms_norm_eps
        self._dtype, self._device = dtype, device
        rotary = LlamaRotaryEmbedding(config)
        cos, sin = rotary(torch.zeros(1), torch.arange(max_tokens).unsqueeze(0))
        # Values are rotated by 0, and the sign stands in the table, so that rotating queries, keys
        # and values together is one multiplication and one roll.
        half, turned = self._head_dim // 2, self._heads + self._kv_heads
        shape = (max_tokens, turned + self._kv_heads, self._head_dim)
        self._cos, self._sin = torch.ones(shape, dtype=dtype), torch.zeros(shape, dtype=dtype)
        self._cos[:, :turned] = cos[0].unsqueeze(1)
        self._sin[:, :turned] = torch.cat((-sin[0][:, :half], sin[0][:, half:]), -1).unsqueeze(1)
        self._cos, self._sin = self._cos.to(device), self._sin.to(device)
        self._names: dict[str, Tensor] = {}
        hidden = config.hidden_size
        self._embed = self._own("model.embed_tokens.weight", config.vocab_size, hidden)
        self._layers = [self._layer(config, n) for n in range(config.num_hidden_layers)]
        self._norm = self._own("model.norm.weight", hidden)
        tied = config.tie_word_embeddings
        self._head = self._embed if tied else self._own("lm_head.weight", config.vocab_size, hidden)

    def tensors(self) -> dict[str, Tensor]:
        return dict(self._names)

    def logits(self, batch: TokenBatch, cache: KVCache) -> Tensor:
        cos, sin = self._cos[batch.positions], self._sin[batch.positions]
        heads, kv_heads, size = self._heads, self._kv_heads, self._head_dim
        masks = [self._mask(group) for group in batch.groups]
        x = F.embedding(batch.tokens, self._embed)
        for number, layer in enumerate(self._layers):
            h = self._rms_norm(x, layer["input"])
            qkv = F.linear(h, layer["qkv"], layer.get("qkv_bias")).view(cos.shape)
            qkv = torch.addcmul(qkv * cos, qkv.roll(size // 2, -1), sin)
            states = qkv[:, heads:].view(-1, 2, kv_heads, size)
            cache.write(number, batch.rows, batch.positions, states)
            h = torch.cat(
                [
                    self._attend(qkv[group.tokens, :heads], number, group, mask, cache)
                    for group, mask in zip(batch.groups, masks, strict=True)
                ]
            )
            if number == len(self._layers) - 1:
                x, h = x[batch.wanted], h[batch.wanted]
            x = x + F.linear(h, layer["out"], layer.get("out_bias"))
            h = self._rms_norm(x, layer["post"])
            gate, up = F.linear(h, layer["gate_up"]).chunk(2, -1)
            x = x + F.linear(F.silu(gate).mul_(up), layer["down"])
        return F.linear(self._rms_norm(x, self._norm), self._head).float()

    def _mask(self, group: Group) -> Tensor:
        """The mask for the queries of one key-value head: those of its query heads in turn."""
        heads, (_, steps) = self._heads // self._kv_heads, group.grid
        return group.mask if steps == 1 or heads == 1 else group.mask.repeat(1, 1, heads, 1)

    def _attend(self, q: Tensor, layer: int, group: Group, mask: Tensor, cache: KVCache) -> Tensor:
        """Queries [n, heads, head_dim] of a group to [n, heads * head_dim]."""
        lanes, steps = group.grid
        shape = (lanes, steps, self._kv_heads, self._heads // self._kv_heads, self._head_dim)
        if group.dense:
            grid = q.reshape(shape)
        else:
            grid = q.new_zeros(lanes, steps, self._heads, self._head_dim)
            grid[group.lane, group.step] = q
            grid = grid.view(shape)
        keys, values = cache.read(layer, group)
        out = F.scaled_dot_product_attention(
            grid.permute(0, 2, 3, 1, 4).reshape(lanes, self._kv_heads, -1, self._head_dim),
            keys,
            values,
            mask,
        )
        out = out.view(lanes, self._heads, steps, self._head_dim)
        out = out.transpose(1, 2) if group.dense else out[group.lane, :, group.step]
        return out.reshape(len(q), -1)

    def _rms_norm(self, x: Tensor, weight: Tensor) -> Tensor:
        if x.dtype == torch.float32:
            return F.rms_norm(x, weight.shape, weight, self._epsilon)
        return weight * F.rms_norm(x.float(), weight.shape, None, self._epsilon).to(x.dtype)

    def _own(self, name: str, *shape: int) -> Tensor:
        tensor = torch.zeros(shape, dtype=self._dtype, device=self._device)
        self._names[name] = tensor
        return tensor

    def _fuse(self, names: Mapping[str, int], *shape: int) -> Tensor:
        """One tensor for several projections; each name is a view of its part."""
        whole = (sum(names.values()), *shape)
        tensor = torch.zeros(whole, dtype=self._dtype, device=self._device)
        start = 0
        for name, size in names.items():
            self._names[name] = tensor[start : start + size]
            start += size
        return tensor

    def _layer(self, config: Any, number: int) -> dict[str, Tensor]:
        hidden, inner = config.hidden_size, config.intermediate_size
        prefix = f"model.layers.{number}"
        sizes = {"q": self._heads, "k": self._kv_heads, "v": self._kv_heads}
        qkv = {f"{prefix}.self_attn.{n}_proj": s * self._head_dim for n, s in sizes.items()}
        attention = f"{prefix}.self_attn.o_proj"
        layer = {
            "input": self._own(f"{prefix}.input_layernorm.weight", hidden),
            "qkv": self._fuse({f"{n}.weight": s for n, s in qkv.items()}, hidden),
            "out": self._own(f"{attention}.weight", hidden, self._heads * self._head_dim),
            "post": self._own(f"{prefix}.post_attention_layernorm.weight", hidden),
            "gate_up": self._fuse(
                {f"{prefix}.mlp.{n}_proj.weight": inner for n in ("gate", "up")}, hidden
            ),
            "down": self._own(f"{prefix}.mlp.down_proj.weight", hidden, inner),
        }
        if config.model_type == "qwen2" or getattr(config, "attention_bias", False):
            layer["qkv_bias"] = self._fuse({f"{n}.bias": s for n, s in qkv.items()})
        if config.model_type == "llama" and getattr(config, "attention_bias", False):
            layer["out_bias"] = self._own(f"{attention}.bias", hidden)
        return layer


class ModelDecoder:
    """Any causal language model of `transformers` with full attention, through `SlotCache`."""

    def __init__(self, path: Path, dtype: torch.dtype, device: str = "cpu") -> None:
        model: Any = AutoModelForCausalLM.from_pretrained(path, local_files_only=True, dtype=dtype)
        self._model: Any = model.eval().to(device)
        names = inspect.signature(self._model.forward).parameters
        self._cache_name = "cache" if "cache" in names else "past_key_values"

    def tensors(self) -> dict[str, Tensor]:
        return {name: value.data for name, value in self._model.named_parameters()}

    def logits(self, batch: TokenBatch, cache: KVCache) -> Tensor:
        return torch.cat([self._logits(batch, group, cache) for group in batch.groups])[
            batch.wanted
        ]

    def _logits(self, batch: TokenBatch, group: Group, cache: KVCache) -> Tensor:
        ids = batch.tokens.new_zeros(group.grid)
        positions = batch.tokens.new_zeros(group.grid)
        ids[group.lane, group.step] = batch.tokens[group.tokens]
        positions[group.lane, group.step] = batch.positions[group.tokens]
        every: Tensor = self._model(
            input_ids=ids,
            position_ids=positions,
            attention_mask=group.mask,
            use_cache=True,
            **{self._cache_name: SlotCache(cache, batch, group)},
        ).logits
        return every[group.lane, group.step].float()
