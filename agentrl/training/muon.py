"""Muon for hidden weight matrices, orthogonalized in float32.

Why not `torch.optim.Muon`: it orthogonalizes in bfloat16, which a processor without bfloat16 units
emulates; that alone took half of a cloning step. This one is its equal up to rounding (a test
compares them), does matrices of one shape in one batch, and keeps its state under the same names.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""Of the quintic Newton-Schulz step (Jordan, Muon, 2024): steep at 0, singular values to 0.7-1.2."""
STEPS = 5
EPSILON = 1.0e-7


class Muon(Optimizer):
    """Nesterov momentum, then the nearest orthogonal matrix of it as the update.

    Per matrix W [m, n] with gradient g: B ← μB + (1 - μ)g; U = orthogonalize((1 - μ)g + μB);
    W ← (1 - lr·decay)W - lr·sqrt(max(1, m/n))·U.

    Args:
        parameters: matrices only.
        lr: learning rate.
        weight_decay: decoupled.
        momentum: μ.
    """

    def __init__(
        self,
        parameters: Iterable[nn.Parameter],
        lr: float,
        weight_decay: float,
        momentum: float = 0.95,
    ) -> None:
        super().__init__(parameters, {"lr": lr, "weight_decay": weight_decay, "momentum": momentum})
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.ndim != 2:
                    raise ValueError(f"Muon takes matrices, not shape {tuple(parameter.shape)}")

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            by_shape: dict[torch.Size, list[nn.Parameter]] = {}
            for parameter in group["params"]:
                if parameter.grad is not None:
                    by_shape.setdefault(parameter.shape, []).append(parameter)
            for parameters in by_shape.values():
                self._update(parameters, group["lr"], group["weight_decay"], group["momentum"])

    def _update(
        self, parameters: list[nn.Parameter], lr: float, decay: float, momentum: float
    ) -> None:
        directions = []
        for parameter in parameters:
            assert parameter.grad is not None
            state = self.state[parameter]
            if "momentum_buffer" not in state:
                state["momentum_buffer"] = torch.zeros_like(parameter)
            buffer = state["momentum_buffer"].lerp_(parameter.grad, 1 - momentum)
            directions.append(parameter.grad.lerp(buffer, momentum))
        rows, columns = parameters[0].shape
        rate = lr * max(1.0, rows / columns) ** 0.5
        updates = orthogonalize(torch.stack(directions))
        for parameter, update in zip(parameters, updates, strict=True):
            parameter.mul_(1 - lr * decay).add_(update, alpha=-rate)


def orthogonalize(matrices: Tensor) -> Tensor:
    """About UVᵀ of each matrix's singular value decomposition USVᵀ.

    Args:
        matrices: float[k, m, n].

    Returns:
        float[k, m, n] with singular values near 1 (those near 0 stay small).
    """
    a, b, c = COEFFICIENTS
    tall = matrices.shape[-2] > matrices.shape[-1]
    x = matrices.mT if tall else matrices
    x = x / torch.linalg.matrix_norm(x, keepdim=True).clamp(min=EPSILON)
    for _ in range(STEPS):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    out: Tensor = x.mT if tall else x
    return out
