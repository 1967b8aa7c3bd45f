"""Keys and values of many sessions, a row each, in which every token has its own position.

Invariants: position p of a row is written before any query at or behind p reads it, so what a row
held before, and what padding leaves behind, is never seen; rows never move, and rows that are read
together are a slice wherever possible, for gathering them copies them (DESIGN §4).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin

ROW_BLOCK = 32
"""Rows that a decode step reads together: as far as the longest of them reaches."""


@dataclass(slots=True)
class Group:
    """Some tokens of a batch, as attention sees them: a padded grid of [lanes, steps].

    A lane is a row of the cache. A group's tokens are neighbours in the batch.
    """

    tokens: slice
    rows: slice | Tensor
    """rows of the cache that are read, in the order of lanes"""
    lane: Tensor
    """int64[n], where each token stands in the grid"""
    step: Tensor
    """int64[n]"""
    grid: tuple[int, int]
    length: int
    """positions that are read"""
    mask: Tensor
    """[lanes, 1, steps, length], added to attention scores"""

    @property
    def dense(self) -> bool:
        """Whether the grid is the tokens, without padding."""
        return len(self.lane) == self.grid[0] * self.grid[1]

    def to(self, device: torch.device) -> Group:
        rows = self.rows if isinstance(self.rows, slice) else self.rows.to(device)
        lane, step, mask = (part.to(device) for part in (self.lane, self.step, self.mask))
        return replace(self, rows=rows, lane=lane, step=step, mask=mask)


@dataclass(slots=True)
class TokenBatch:
    """N new tokens of several rows: flat for projections, in groups for attention."""

    tokens: Tensor
    """int64[N]"""
    positions: Tensor
    """int64[N], place in the row"""
    rows: Tensor
    """int64[N], row of the cache"""
    groups: list[Group]
    wanted: Tensor
    """int64[W], tokens after which logits are wanted: the last of each row, in the order given"""

    def to(self, device: torch.device) -> TokenBatch:
        """Itself on a CPU, where it was made."""
        if device.type == "cpu":
            return self
        tokens, positions, rows, wanted = (
            part.to(device) for part in (self.tokens, self.positions, self.rows, self.wanted)
        )
        groups = [group.to(device) for group in self.groups]
        return TokenBatch(tokens, positions, rows, groups, wanted)


@dataclass(slots=True)
class RowWork:
    """New tokens of one row, from position `start` on."""

    row: int
    start: int
    tokens: Sequence[int]


def make_batch(work: Sequence[RowWork], dtype: Any, block: int = ROW_BLOCK) -> TokenBatch:
    """Rows with one token each are read in blocks of `block` neighbours, others in padded grids.

    `work` is in the order of rows; `wanted` follows it.
    """
    single = [w for w in work if len(w.tokens) == 1]
    several = [w for w in work if len(w.tokens) > 1]
    blocks: dict[int, list[RowWork]] = {}
    for w in single:
        blocks.setdefault(w.row // block, []).append(w)
    groups, start = [], 0
    for number, members in blocks.items():
        first = number * block
        lanes = np.array([w.row - first for w in members])
        groups.append(
            _group(members, start, slice(first, first + int(lanes[-1]) + 1), lanes, dtype)
        )
        start += len(members)
    order = list(single)
    for alike in _of_like_length(several):
        rows = np.array([w.row for w in alike])
        apart = rows[-1] - rows[0] + 1 != len(rows)
        read = torch.from_numpy(rows) if apart else slice(int(rows[0]), int(rows[-1]) + 1)
        groups.append(_group(alike, start, read, np.arange(len(rows)), dtype))
        start += sum(len(w.tokens) for w in alike)
        order += alike
    counts = np.array([len(w.tokens) for w in order])
    ends = {w.row: end for w, end in zip(order, np.cumsum(counts) - 1, strict=True)}
    return TokenBatch(
        torch.tensor([token for w in order for token in w.tokens]),
        torch.from_numpy(np.concatenate([np.arange(len(w.tokens)) + w.start for w in order])),
        torch.from_numpy(np.repeat([w.row for w in order], counts)),
        groups,
        torch.tensor([ends[w.row] for w in work]),
    )


def _of_like_length(work: Sequence[RowWork]) -> list[list[RowWork]]:
    """In parts in which none is twice as long as another: a grid is padded to its longest."""
    parts: dict[int, list[RowWork]] = {}
    for w in work:
        parts.setdefault(len(w.tokens).bit_length(), []).append(w)
    return list(parts.values())


def _group(
    work: Sequence[RowWork], start: int, rows: slice | Tensor, lanes: np.ndarray, dtype: Any
) -> Group:
    counts = np.array([len(w.tokens) for w in work])
    starts = np.array([w.start for w in work])
    count = rows.stop - rows.start if isinstance(rows, slice) else len(rows)
    grid = (count, int(counts.max()))
    step = np.concatenate([np.arange(n) for n in counts])
    lane = np.repeat(lanes, counts)
    positions = np.repeat(starts, counts) + step
    length = int(positions.max()) + 1
    # Padding reads position 0: it must read something, or its softmax would be 0/0.
    reach = np.zeros(grid, np.int64)
    reach[lane, step] = positions
    hidden = torch.from_numpy(np.arange(length) > reach[:, None, :, None])
    mask = torch.zeros(hidden.shape, dtype=dtype).masked_fill_(hidden, float("-inf"))
    tokens = slice(start, start + len(lane))
    return Group(tokens, rows, torch.from_numpy(lane), torch.from_numpy(step), grid, length, mask)


class KVCache:
    """[layers, rows, 2 (keys, values), kv_heads, max_tokens, head_dim]."""

    def __init__(
        self,
        layers: int,
        rows: int,
        kv_heads: int,
        max_tokens: int,
        head_dim: int,
        dtype: Any,
        device: str = "cpu",
    ) -> None:
        # Zeros, not empty: padding reads position 0 of rows that were never written.
        shape = (layers, rows, 2, kv_heads, max_tokens, head_dim)
        self._data = torch.zeros(shape, dtype=dtype, device=device)
        self._layers = list(self._data)

    def __len__(self) -> int:
        return len(self._layers)

    @property
    def max_tokens(self) -> int:
        return self._data.shape[4]

    def write(self, layer: int, rows: Tensor, positions: Tensor, states: Tensor) -> None:
        """Keys and values [n, 2, kv_heads, head_dim] of n tokens."""
        self._layers[layer][rows, :, :, positions] = states

    def read(self, layer: int, group: Group) -> tuple[Tensor, Tensor]:
        """Keys and values [lanes, kv_heads, length, head_dim] of the rows that a group reads."""
        found = self._layers[layer][group.rows, :, :, : group.length]
        return found[:, 0], found[:, 1]


class SlotCache(Cache):
    """A `KVCache` as models of `transformers` see it, for one group of a batch."""

    def __init__(self, cache: KVCache, batch: TokenBatch, group: Group) -> None:
        layers: list[Any] = [_SlotLayer(cache, layer, batch, group) for layer in range(len(cache))]
        super().__init__(layers=layers)


class _SlotLayer(CacheLayerMixin):  # type: ignore[misc, no-untyped-call]
    def __init__(self, cache: KVCache, layer: int, batch: TokenBatch, group: Group) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._cache, self._layer, self._batch, self._group = cache, layer, batch, group
        self.is_initialized = True

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        return None

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """New states [lanes, kv_heads, steps, head_dim]; padding is dropped here."""
        group, batch = self._group, self._batch
        both = torch.stack((key_states, value_states), 1)[group.lane, :, :, group.step]
        rows, positions = batch.rows[group.tokens], batch.positions[group.tokens]
        self._cache.write(self._layer, rows, positions, both)
        return self._cache.read(self._layer, group)

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self._group.length, 0

    def get_seq_length(self) -> int:
        return self._group.length - self._group.grid[1]

    def get_max_length(self) -> int:
        return self._cache.max_tokens
