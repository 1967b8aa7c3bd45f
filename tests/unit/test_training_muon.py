"""Muon against what defines it, and against the one of torch, which rounds to bfloat16."""

import pytest
import torch
from torch import nn

from agentrl.training.muon import Muon, orthogonalize


@pytest.mark.parametrize("shape", [(3, 8, 8), (2, 5, 12), (2, 12, 5)])
def test_singular_values_go_to_one_and_directions_stay(shape):
    matrices = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    u, s, vh = torch.linalg.svd(matrices, full_matrices=False)
    assert s.min() / s.max() > 0.01  # far enough from 0 for five steps
    out = orthogonalize(matrices)
    inner = u.mT @ out @ vh.mT  # diagonal exactly where the directions are kept
    off = inner - torch.diag_embed(torch.diagonal(inner, dim1=-2, dim2=-1))
    assert off.abs().max() < 1e-4
    values = torch.linalg.svdvals(out)
    assert values.min() > 0.3 and values.max() < 1.3


def test_a_rank_one_step_by_hand():
    """W = 0, g = 4·e1e1ᵀ: whatever the momentum, U = e1e1ᵀ times what five steps make of 1."""
    value = 1.0
    for _ in range(5):
        value = 3.4445 * value - 4.7750 * value**3 + 2.0315 * value**5
    weight = nn.Parameter(torch.zeros(4, 1))
    weight.grad = torch.tensor([[4.0], [0.0], [0.0], [0.0]])
    Muon([weight], lr=0.1, weight_decay=0.5).step()
    # sqrt(max(1, 4 / 1)) = 2
    assert weight.detach().flatten().tolist() == pytest.approx([-0.1 * 2 * value, 0, 0, 0])


def test_follows_torch_up_to_its_rounding():
    rows = {"a": (16, 16), "b": (16, 16), "c": (24, 16), "d": (8, 16)}
    draw = torch.Generator().manual_seed(2)
    start = {name: torch.randn(shape, generator=draw) for name, shape in rows.items()}
    ours = {name: nn.Parameter(value.clone()) for name, value in start.items()}
    theirs = {name: nn.Parameter(value.clone()) for name, value in start.items()}
    mine = Muon(ours.values(), lr=0.02, weight_decay=0.1)
    torchs = torch.optim.Muon(theirs.values(), lr=0.02, weight_decay=0.1, momentum=0.95)
    for _ in range(4):
        for name, shape in rows.items():
            grad = torch.randn(shape, generator=draw)
            ours[name].grad, theirs[name].grad = grad.clone(), grad.clone()
        mine.step()
        torchs.step()
    for name in rows:
        moved = (theirs[name] - start[name]).norm()
        assert (ours[name] - theirs[name]).norm() < 0.02 * moved
        keys = set(mine.state[ours[name]]) & set(torchs.state[theirs[name]])
        assert keys == {"momentum_buffer"}


def test_a_vector_is_refused():
    with pytest.raises(ValueError, match="matrices"):
        Muon([nn.Parameter(torch.zeros(3))], lr=0.1, weight_decay=0.0)
