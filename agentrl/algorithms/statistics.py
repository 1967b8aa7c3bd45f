"""What a step's losses were like, by task, by policy role and by policy age.

Invariant: statistics are sums over tokens in float64, so that they add up exactly over micro-batches
and cells (7).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

SUMS = (
    "tokens",
    "loss",
    "clipped",
    "dual_clipped",
    "ratio",
    "kl_behaviour",
    "logprob_gap",
    "entropy",
    "kl_reference",
    "importance",
    "importance_capped",
)
"""Columns that `policy_loss` fills for every token: float64[K, len(SUMS)]."""

AGES = ("0", "1", "2", "3-4", "5-8", "9-16", "over-16")
_LAST_OF_AGE = (0, 1, 2, 4, 8, 16)


def age_cells(steps: np.ndarray) -> np.ndarray:
    """int64: the place in `AGES` of ages in steps (version trained on minus version that sampled)."""
    return np.searchsorted(_LAST_OF_AGE, steps).astype(np.int64)


@dataclass(slots=True)
class LossStatistics:
    """Sums over tokens by cell (a task, a role, an age), and the largest ratio."""

    sums: Tensor
    """float64[cells, len(SUMS)]"""
    ratio_max: Tensor
    """float64[cells]"""

    @classmethod
    def empty(cls, cells: int) -> LossStatistics:
        return cls(
            torch.zeros(cells, len(SUMS), dtype=torch.float64),
            torch.zeros(cells, dtype=torch.float64),
        )

    @classmethod
    def of(cls, columns: Tensor, cell_ids: Tensor, cells: int) -> LossStatistics:
        """Of K tokens; `cell_ids` int64[K], below `cells`."""
        sums = columns.new_zeros(cells, len(SUMS)).index_add(0, cell_ids, columns)
        ratio = columns[:, SUMS.index("ratio")]
        ratio_max = columns.new_zeros(cells).scatter_reduce(0, cell_ids, ratio, "amax")
        return cls(sums.cpu(), ratio_max.cpu())

    def __add__(self, other: LossStatistics) -> LossStatistics:
        return LossStatistics(
            self.sums + other.sums, torch.maximum(self.ratio_max, other.ratio_max)
        )

    @property
    def loss(self) -> float:
        """Sum of the per-token losses."""
        return float(self.sums[:, SUMS.index("loss")].sum())

    def metrics(self, cell: int | None = None) -> dict[str, float]:
        """Means over the tokens that carried a gradient; of one cell, or of all. Empty without any.

        `ratio_*` are of the ratio in the loss. `kl_behaviour` estimates KL(behaviour || learner) with
        k3 and `logprob_gap` is the mean |log ratio|, both to the policy that sampled: at age 0, in
        the first minibatch, they are engine against learner. `importance_*` only where there is one.
        """
        sums = (self.sums.sum(0) if cell is None else self.sums[cell]).tolist()
        values = dict(zip(SUMS, sums, strict=True))
        tokens = values.pop("tokens")
        if not tokens:
            return {}
        means = {name: value / tokens for name, value in values.items()}
        del means["loss"]  # its denominator is the optimiser step, not these tokens
        means["clip_fraction"] = means.pop("clipped")
        means["dual_clip_fraction"] = means.pop("dual_clipped")
        means["ratio_mean"] = means.pop("ratio")
        means["ratio_max"] = float(self.ratio_max.max() if cell is None else self.ratio_max[cell])
        weight, capped = means.pop("importance"), means.pop("importance_capped")
        if weight:
            means |= {"importance_mean": weight, "importance_capped": capped}
        return means


@dataclass(slots=True)
class StepStatistics:
    """The same tokens three times over: each partition's cells sum to the same."""

    tasks: LossStatistics
    roles: LossStatistics
    ages: LossStatistics

    @classmethod
    def empty(cls, tasks: int, roles: int) -> StepStatistics:
        return cls(*(LossStatistics.empty(cells) for cells in (tasks, roles, len(AGES))))

    def __add__(self, other: StepStatistics) -> StepStatistics:
        return StepStatistics(
            self.tasks + other.tasks, self.roles + other.roles, self.ages + other.ages
        )

    def metrics(self, tasks: Sequence[str], roles: Sequence[str]) -> dict[str, float]:
        """All tokens as `name`; a task's as `name/<task>`, a role's as `name/role/<role>`, an age's
        as `name/age/<age>`."""
        out = self.tasks.metrics()
        cells = [
            *((self.tasks.metrics(i), task) for i, task in enumerate(tasks)),
            *((self.roles.metrics(i), f"role/{role}") for i, role in enumerate(roles)),
            *((self.ages.metrics(i), f"age/{age}") for i, age in enumerate(AGES)),
        ]
        for metrics, name in cells:
            out |= {f"{key}/{name}": value for key, value in metrics.items()}
        return out
