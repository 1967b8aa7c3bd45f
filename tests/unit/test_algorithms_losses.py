"""The policy loss against numbers worked out by hand."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from agentrl.algorithms.losses import LossStatistics, low_variance_kl, policy_loss
from agentrl.config.models import AlgorithmConfig

CONFIG = AlgorithmConfig(clip_low=0.2, clip_high=0.28, dual_clip=3.0)


def loss_of(ratios, advantages, config=CONFIG, denominator=1, reference=None):
    """Loss and gradient by log-probability for tokens whose ratio is given."""
    behaviour = torch.full((len(ratios),), -2.0, dtype=torch.float64)
    logprobs = (behaviour + torch.tensor(ratios, dtype=torch.float64).log()).requires_grad_()
    loss, statistics = policy_loss(
        logprobs,
        behaviour,
        torch.tensor(advantages, dtype=torch.float64),
        denominator,
        config,
        task_ids=torch.zeros(len(ratios), dtype=torch.int64),
        tasks=1,
        reference=reference,
    )
    loss.backward()
    return loss.item(), logprobs.grad.tolist(), statistics.metrics()


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "gradient"),
    [
        (1.0, 2.0, -2.0, -2.0),  # on policy: plain policy gradient
        (1.1, 2.0, -2.2, -2.2),
        (1.5, 2.0, -2.56, 0.0),  # bounded at 1.28
        (0.5, 2.0, -1.0, -1.0),  # a good token that became unlikely is not bounded
        (0.5, -1.0, 0.8, 0.0),  # bounded at 0.8
        (1.5, -1.0, 1.5, 1.5),
        (4.0, -1.0, 3.0, 0.0),  # dual clip at 3
        (4.0, 1.0, -1.28, 0.0),
        (1.7, 0.0, 0.0, 0.0),
    ],
)
def test_one_token(ratio, advantage, loss, gradient):
    value, (slope,), _ = loss_of([ratio], [advantage])
    assert value == pytest.approx(loss, abs=1e-12)
    assert slope == pytest.approx(gradient, abs=1e-12)


def test_without_dual_clip_a_bad_token_is_not_bounded_above():
    config = AlgorithmConfig(dual_clip=None)
    assert loss_of([4.0], [-1.0], config)[0] == pytest.approx(4.0)


def test_statistics_of_a_small_batch():
    value, _, metrics = loss_of([1.0, 1.5, 0.5, 4.0], [1.0, 1.0, -1.0, -1.0], denominator=8)
    assert value == pytest.approx((-1.0 - 1.28 + 0.8 + 3.0) / 8)
    logs = [math.log(r) for r in (1.0, 1.5, 0.5, 4.0)]
    assert metrics["clip_fraction"] == pytest.approx(2 / 4)  # 1.5 and 0.5
    assert metrics["dual_clip_fraction"] == pytest.approx(1 / 4)
    assert metrics["ratio_mean"] == pytest.approx(7 / 4)
    assert metrics["ratio_max"] == pytest.approx(4.0)
    assert metrics["kl_behaviour"] == pytest.approx((7 - 4 - sum(logs)) / 4)
    assert metrics["logprob_gap"] == pytest.approx(sum(abs(x) for x in logs) / 4)


def test_kl_to_the_reference():
    config = AlgorithmConfig(kl_coefficient=0.5)
    reference = torch.tensor([-2.0 + math.log(2.0)], dtype=torch.float64)
    value, (slope,), metrics = loss_of([1.0], [0.0], config, reference=reference)
    # d = log 2: k3 = 2 - log 2 - 1, and its slope by logprobs is 1 - e^d = -1
    assert value == pytest.approx(0.5 * (1 - math.log(2)))
    assert slope == pytest.approx(-0.5)
    assert metrics["kl_reference"] == pytest.approx(1 - math.log(2))


def test_low_variance_kl_is_unbiased():
    p, q = torch.tensor([0.7, 0.2, 0.1]).double(), torch.tensor([0.5, 0.25, 0.25]).double()
    exact = (p * (p / q).log()).sum()
    assert (p * low_variance_kl(q.log() - p.log())).sum().item() == pytest.approx(exact.item())


def test_wild_ratio_stays_finite():
    value, (slope,), metrics = loss_of([math.exp(300)], [-1.0], AlgorithmConfig(dual_clip=None))
    assert math.isfinite(value) and math.isfinite(slope)
    assert all(math.isfinite(v) for v in metrics.values())


@settings(max_examples=25)
@given(
    st.lists(
        st.tuples(st.floats(-1, 1), st.floats(-2, 2), st.integers(0, 2)), min_size=1, max_size=12
    ),
    st.integers(1, 12),
)
def test_statistics_and_loss_add_up_over_any_cut(tokens, cut):
    log_ratios, advantages, tasks = (torch.tensor(column) for column in zip(*tokens, strict=True))

    def part(where):
        n = len(log_ratios[where])
        return policy_loss(
            log_ratios[where].double(),
            torch.zeros(n, dtype=torch.float64),
            advantages[where].double(),
            len(tokens),
            CONFIG,
            task_ids=tasks[where],
            tasks=3,
            entropy=torch.ones(n, dtype=torch.float64),
        )

    whole, all_statistics = part(slice(None))
    (first, left), (second, right) = part(slice(0, cut)), part(slice(cut, None))
    assert (first + second).item() == pytest.approx(whole.item(), abs=1e-12)
    both = LossStatistics.empty(3) + left + right
    for task in (None, 0, 1, 2):
        assert both.metrics(task) == pytest.approx(all_statistics.metrics(task), abs=1e-12)
    assert all_statistics.metrics()["entropy"] == pytest.approx(1.0)
    assert both.loss == pytest.approx(whole.item() * len(tokens), abs=1e-9)


def test_no_tokens_no_metrics():
    assert LossStatistics.empty(2).metrics() == {}
    assert LossStatistics.empty(2).metrics(1) == {}
