"""Estimates against exact expectations over a small vocabulary."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from agentrl.algorithms.ratios import importance_weights, kl_estimate, sequence_log_ratio
from agentrl.algorithms.statistics import AGES, age_cells

scores = st.lists(st.floats(-2, 2, width=32), min_size=4, max_size=4)


def distributions(left, right):
    """Log-probabilities of p, by its parameters, and of q."""
    theta = torch.tensor(left, dtype=torch.float64, requires_grad=True)
    return theta, theta.log_softmax(0), torch.tensor(right, dtype=torch.float64).log_softmax(0)


def slope(value, theta):
    (gradient,) = torch.autograd.grad(value, theta, retain_graph=True)
    return gradient


@given(scores, scores)
def test_k1_and_k3_are_unbiased_and_k3_is_never_negative(left, right):
    _, p, q = distributions(left, right)
    exact = (p.exp() * (p - q)).sum().item()
    for estimator in ("k1", "k3"):
        mean = (p.exp() * kl_estimate(q - p, estimator)).sum().item()
        assert mean == pytest.approx(exact, abs=1e-9)
    assert (kl_estimate(q - p, "k3") >= -1e-12).all() and (kl_estimate(q - p, "k2") >= 0).all()


@given(scores, scores)
def test_what_each_estimator_pulls_towards_as_a_loss(left, right):
    """Mean gradient over tokens sampled from p: 0 for k1, that of KL(p || q) for k2, that of
    KL(q || p) for k3."""
    theta, p, q = distributions(left, right)
    sampled = p.detach().exp()
    wanted = {
        "k1": torch.zeros(4, dtype=torch.float64),
        "k2": slope((p.exp() * (p - q)).sum(), theta),
        "k3": slope((q.exp() * (q - p)).sum(), theta),
    }
    for estimator, exact in wanted.items():
        mean = slope((sampled * kl_estimate(q - p, estimator)).sum(), theta)
        torch.testing.assert_close(mean, exact, rtol=1e-9, atol=1e-9)


@given(scores, scores, st.lists(st.floats(-1, 1), min_size=4, max_size=4))
def test_untruncated_weights_give_the_mean_under_the_other_policy(left, right, values):
    _, p, q = distributions(left, right)
    f = torch.tensor(values, dtype=torch.float64)
    weights, capped = importance_weights(q - p, torch.arange(4), "token", None)
    assert not weights.requires_grad and not capped.any()
    assert (p.exp() * weights * f).sum().item() == pytest.approx(
        (q.exp() * f).sum().item(), abs=1e-9
    )


@given(
    st.lists(st.tuples(st.floats(-3, 3), st.integers(0, 3)), min_size=1, max_size=12),
    st.sampled_from([1.0, 2.0, 5.0]),
)
def test_weights_of_sequences_by_definition(tokens, cap):
    log_ratio = torch.tensor([x for x, _ in tokens], dtype=torch.float64)
    ids = torch.tensor([i for _, i in tokens])
    weights, capped = importance_weights(log_ratio, ids, "sequence", cap)
    means = sequence_log_ratio(log_ratio, ids)
    for place, (_, own) in enumerate(tokens):
        members = [x for x, i in tokens if i == own]
        product = torch.tensor(members, dtype=torch.float64).exp().prod().item()
        assert weights[place].item() == pytest.approx(min(product, cap), rel=1e-9)
        assert capped[place].item() == (weights[place].item() >= cap and product > cap)
        assert means[place].item() == pytest.approx(sum(members) / len(members), abs=1e-12)


def test_ages():
    steps = [-1, 0, 1, 2, 3, 4, 5, 8, 9, 16, 17, 1000]
    names = [AGES[i] for i in age_cells(steps)]
    assert names == [
        "0",
        "0",
        "1",
        "2",
        "3-4",
        "3-4",
        "5-8",
        "5-8",
        "9-16",
        "9-16",
        "over-16",
        "over-16",
    ]
