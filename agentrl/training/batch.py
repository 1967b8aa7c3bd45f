"""From token sequences to padded tensors: minibatches, token-budget micro-batches, the shift.

Invariants: the logits at position t predict token t + 1, and this is done once, in `collate`
(pitfall 7); every sequence is in exactly one micro-batch and none is larger than the budget
(pitfall 24); what is learned depends neither on the order of the input nor on how it is cut
(invariant 7); whole groups share a minibatch, by id (invariant 5).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from agentrl.randomness import generator

LENGTH_MULTIPLE = 32
SELECT_MULTIPLE = 256
"""Few shapes keep a CPU from preparing its kernels anew at every batch (mini.md §4)."""
BIN_COST = 128
"""What one more micro-batch costs, in padded tokens."""


@dataclass(frozen=True, slots=True)
class Row:
    """One sequence to learn from; T tokens."""

    token_ids: np.ndarray
    """int32[T]"""
    weights: np.ndarray
    """float32[T]: loss weight of each token, 0 where nothing is learned"""
    task: int = 0
    advantage: float = 0.0
    behaviour: np.ndarray | None = None
    """float32[T]: log-probabilities under the policy that sampled the tokens"""
    proximal: np.ndarray | None = None
    """float32[T]: log-probabilities under the proximal policy, where there is one"""
    roles: np.ndarray | None = None
    """int64[T]: which policy of the step sampled"""
    ages: np.ndarray | None = None
    """int64[T]: cell of `AGES`"""
    inputs: int = field(init=False)
    """Tokens the model has to read: all before the last one that is learned; 0 if none is."""

    def __post_init__(self) -> None:
        learned = np.flatnonzero(self.weights)
        if len(learned) and learned[0] == 0:
            raise ValueError("the first token of a sequence has no context to be predicted from")
        object.__setattr__(self, "inputs", int(learned[-1]) if len(learned) else 0)


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """B rows of T tokens, of which K are learned; K' >= K is K padded with junk at the end."""

    input_ids: Tensor
    """int64[B, T], padded on the right with 0"""
    select: Tensor
    """int64[K'], flat positions whose logits predict `targets`"""
    targets: Tensor
    """int64[K']"""
    count: int
    """K"""
    weights: Tensor
    """float32[K]"""
    advantages: Tensor
    """float32[K]"""
    behaviour: Tensor
    """float32[K]"""
    proximal: Tensor
    """float32[K], 0 where the rows have none"""
    row_ids: Tensor
    """int64[K], below B"""
    task_ids: Tensor
    """int64[K]"""
    role_ids: Tensor
    """int64[K]"""
    age_ids: Tensor
    """int64[K]"""

    def to(self, device: torch.device) -> MicroBatch:
        moved = {
            name: getattr(self, name).to(device)
            for name in self.__dataclass_fields__
            if name != "count"
        }
        return MicroBatch(**moved, count=self.count)


def padded(length: int, budget: int) -> int:
    """`length` (at most `budget`) rounded up to the grid of shapes, but never over the budget."""
    return min(-(-length // LENGTH_MULTIPLE) * LENGTH_MULTIPLE, budget)


def pack(lengths: Sequence[int], budget: int) -> list[list[int]]:
    """Cut sequences into bins of at most `budget` padded tokens; indices, longest first.

    Every index of a positive length is in exactly one bin. Of all cuts of the sorted sequences, the
    one with the least padding is taken, a bin counting as `BIN_COST` tokens. Raises `ValueError`
    for a length over the budget: the caller decides what becomes of it.
    """
    order = sorted((i for i, n in enumerate(lengths) if n > 0), key=lambda i: (-lengths[i], i))
    if order and lengths[order[0]] > budget:
        raise ValueError(f"a sequence of {lengths[order[0]]} tokens is over the budget of {budget}")
    # best[k]: least cost of the sequences from the k-th on; end[k]: where their first bin ends.
    best = [0] * (len(order) + 1)
    end = [0] * len(order)
    for start in range(len(order) - 1, -1, -1):
        width = padded(lengths[order[start]], budget)
        most = min(len(order) - start, budget // width)
        best[start], end[start] = min(
            (rows * width + BIN_COST + best[start + rows], start + rows)
            for rows in range(1, most + 1)
        )
    bins: list[list[int]] = []
    start = 0
    while start < len(order):
        bins.append(order[start : end[start]])
        start = end[start]
    return bins


def collate(rows: Sequence[Row], budget: int) -> MicroBatch:
    """One micro-batch of `rows`, each with something to learn."""
    width = padded(max(row.inputs for row in rows), budget)
    input_ids = np.zeros((len(rows), width), np.int64)
    learned = [np.flatnonzero(row.weights) for row in rows]
    for place, row in enumerate(rows):
        input_ids[place, : row.inputs] = row.token_ids[: row.inputs]
    # The shift: the logits at t predict t + 1.
    select = [place * width + where - 1 for place, where in enumerate(learned)]
    counts = [len(where) for where in learned]
    junk = np.zeros(-sum(counts) % SELECT_MULTIPLE, np.int64)

    def gather(name: str, kind: type) -> Tensor:
        """A column of the learned tokens of all rows; 0 for a row that lacks it."""
        parts = [
            np.zeros(len(where)) if (column := getattr(row, name)) is None else column[where]
            for row, where in zip(rows, learned, strict=True)
        ]
        return torch.from_numpy(np.concatenate(parts).astype(kind))

    def repeat(values: Sequence[float], kind: type) -> Tensor:
        return torch.from_numpy(np.repeat(values, counts).astype(kind))

    return MicroBatch(
        input_ids=torch.from_numpy(input_ids),
        select=torch.from_numpy(np.concatenate([*select, junk])),
        targets=torch.cat([gather("token_ids", np.int64), torch.from_numpy(junk)]),
        count=sum(counts),
        weights=gather("weights", np.float32),
        advantages=repeat([row.advantage for row in rows], np.float32),
        behaviour=gather("behaviour", np.float32),
        proximal=gather("proximal", np.float32),
        row_ids=repeat(range(len(rows)), np.int64),
        task_ids=repeat([row.task for row in rows], np.int64),
        role_ids=gather("roles", np.int64),
        age_ids=gather("ages", np.int64),
    )


def micro_batches(rows: Sequence[Row], budget: int) -> list[MicroBatch]:
    """All rows that have something to learn, within the budget."""
    bins = pack([row.inputs for row in rows], budget)
    return [collate([rows[index] for index in places], budget) for places in bins]


def split_minibatches(
    group_ids: Sequence[int], task_ids: Sequence[int], count: int, seed: int, *counters: int
) -> list[list[int]]:
    """Indices of the trajectories of each of `count` minibatches.

    Groups stay whole and those of each task are dealt evenly, in an order drawn by
    (seed, counters). A part is empty when there are fewer groups than parts.
    """
    tasks: dict[int, set[int]] = {}
    for group, task in zip(group_ids, task_ids, strict=True):
        tasks.setdefault(task, set()).add(group)
    part_of: dict[int, int] = {}
    dealt = 0
    for task in sorted(tasks):
        order = sorted(tasks[task])
        for place in generator(seed, "minibatches", *counters, task).permutation(len(order)):
            part_of[order[place]] = dealt % count
            dealt += 1
    parts: list[list[int]] = [[] for _ in range(count)]
    for index, group in enumerate(group_ids):
        parts[part_of[group]].append(index)
    return parts
