"""The policy loss: numbers worked out by hand, and a plain implementation to compare with."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from agentrl.algorithms.losses import policy_loss
from agentrl.algorithms.statistics import LossStatistics
from agentrl.config.algorithm import AlgorithmConfig

CONFIG = AlgorithmConfig(clip_low=0.2, clip_high=0.28, dual_clip=3.0)


def doubles(values):
    return torch.tensor(values, dtype=torch.float64)


def loss_of(ratios, advantages, config=CONFIG, denominator=1, ids=None, **columns):
    """Loss, gradient by log-probability and metrics for tokens whose ratio to the sampling policy is
    given; `proximal` too as a ratio to it."""
    behaviour = torch.full((len(ratios),), -2.0, dtype=torch.float64)
    logprobs = (behaviour + doubles(ratios).log()).requires_grad_()
    if "proximal" in columns:
        columns["proximal"] = behaviour + doubles(columns["proximal"]).log()
    loss, table = policy_loss(
        logprobs,
        behaviour,
        doubles(advantages),
        denominator,
        config,
        sequence_ids=None if ids is None else torch.tensor(ids),
        **columns,
    )
    loss.backward()
    statistics = LossStatistics.of(table, torch.zeros(len(ratios), dtype=torch.int64), 1)
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
@pytest.mark.parametrize("level", ["token", "sequence"])
def test_one_token(ratio, advantage, loss, gradient, level):
    """Where a trajectory is one token, its ratio is the token's."""
    config = AlgorithmConfig(clip_low=0.2, clip_high=0.28, dual_clip=3.0, ratio=level)
    value, (slope,), _ = loss_of([ratio], [advantage], config)
    assert value == pytest.approx(loss, abs=1e-12)
    assert slope == pytest.approx(gradient, abs=1e-12)


def test_without_dual_clip_a_bad_token_is_not_bounded_above():
    config = AlgorithmConfig(dual_clip=None)
    assert loss_of([4.0], [-1.0], config)[0] == pytest.approx(4.0)


def test_sequence_ratio_is_the_geometric_mean():
    """GSPO. Trajectory 0: ratios 1.21 and 1 have the mean 1.1; trajectory 1: 4 and 1 the mean 2, which
    is clipped; each token's slope is its trajectory's -A s / 2, once a token."""
    config = AlgorithmConfig(ratio="sequence", clip_high=0.28, clip_low=0.2)
    value, slopes, metrics = loss_of([1.21, 4, 1, 1], [1, 1, 1, 1], config, ids=[0, 1, 0, 1])
    assert value == pytest.approx(2 * -1.1 + 2 * -1.28)
    assert slopes == pytest.approx([-1.1, 0, -1.1, 0])
    assert metrics["ratio_mean"] == pytest.approx((1.1 + 2) / 2)
    assert metrics["clip_fraction"] == 0.5
    assert metrics["logprob_gap"] == pytest.approx((math.log(1.21) + math.log(4)) / 4)


def test_decoupled_ratio_is_to_the_proximal_policy():
    """The learner is where it was at the start of the step: ratio 1, whatever sampled."""
    config = AlgorithmConfig(proximal="step")
    value, slopes, metrics = loss_of([3.0, 0.2], [1.0, -1.0], config, proximal=[3.0, 0.2])
    assert (value, slopes) == (pytest.approx(0.0), pytest.approx([-1.0, 1.0]))
    assert (metrics["ratio_mean"], metrics["clip_fraction"]) == (pytest.approx(1.0), 0)
    assert metrics["kl_behaviour"] == pytest.approx(
        ((3 - 1 - math.log(3)) + (0.2 - 1 - math.log(0.2))) / 2
    )
    assert "importance_mean" not in metrics


@pytest.mark.parametrize(
    ("level", "cap", "weights", "capped"),
    [
        ("token", 2.0, [2.0, 0.5, 1.5, 1.0], 1 / 4),
        ("token", None, [4.0, 0.5, 1.5, 1.0], 0),
        ("sequence", 2.0, [2.0, 2.0, 1.5, 1.5], 0),  # products 4 · 0.5 and 1.5 · 1
        ("sequence", 1.6, [1.6, 1.6, 1.5, 1.5], 2 / 4),
        ("sequence", 1.0, [1.0] * 4, 1.0),
    ],
)
def test_truncated_importance_sampling(level, cap, weights, capped):
    """Proximal over sampling policy: 4 and 0.5 in trajectory 0, 1.5 and 1 in trajectory 1."""
    moved, sampled = [4.4, 0.5, 1.5, 1.0], [4.0, 0.5, 1.5, 1.0]  # ratio 1.1 at the first token
    config = AlgorithmConfig(proximal="step", importance=level, importance_cap=cap)
    value, slopes, metrics = loss_of(
        moved, [1, 1, -1, -1], config, ids=[0, 0, 1, 1], proximal=sampled
    )
    signed = [-1.1 * weights[0], -weights[1], weights[2], weights[3]]
    assert value == pytest.approx(sum(signed))
    assert slopes == pytest.approx(signed)  # the weight itself has no gradient
    assert metrics["importance_mean"] == pytest.approx(sum(weights) / 4)
    assert metrics["importance_capped"] == pytest.approx(capped)


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


@pytest.mark.parametrize(
    ("estimator", "value", "slope"),
    [
        # d = log q - log p = log 2
        ("k1", -math.log(2), 1.0),
        ("k2", math.log(2) ** 2 / 2, -math.log(2)),
        ("k3", 2 - math.log(2) - 1, -1.0),  # 1 - e^d
    ],
)
def test_kl_to_the_reference(estimator, value, slope):
    config = AlgorithmConfig(kl_coefficient=0.5, kl_estimator=estimator)
    reference = doubles([-2.0 + math.log(2.0)])
    loss, (got,), metrics = loss_of([1.0], [0.0], config, reference=reference)
    assert loss == pytest.approx(0.5 * value)
    assert got == pytest.approx(0.5 * slope)
    assert metrics["kl_reference"] == pytest.approx(value)


@pytest.mark.parametrize("level", ["token", "sequence"])
def test_wild_ratio_stays_finite(level):
    config = AlgorithmConfig(
        dual_clip=None, ratio=level, proximal="step", importance=level, importance_cap=None
    )
    value, (slope,), metrics = loss_of([math.exp(300)], [-1.0], config, proximal=[math.exp(150)])
    assert math.isfinite(value) and math.isfinite(slope)
    assert all(math.isfinite(v) for v in metrics.values())


def plainly(trajectories, config, denominator):
    """The loss from its definition: one trajectory, one token at a time."""
    total = 0.0
    for one in trajectories:
        anchor = one["proximal"] if config.proximal == "step" else one["behaviour"]
        ratios = [(p - a).exp() for p, a in zip(one["logprobs"], anchor, strict=True)]
        if config.ratio == "sequence":
            geometric = math.prod(ratios) ** (1 / len(ratios))
            ratios = [geometric] * len(ratios)
        weights = [math.exp(a - b) for a, b in zip(anchor, one["behaviour"], strict=True)]
        if config.importance == "none":
            weights = [1.0] * len(ratios)
        elif config.importance == "sequence":
            weights = [math.prod(weights)] * len(ratios)
        for token, (ratio, weight) in enumerate(zip(ratios, weights, strict=True)):
            a = one["advantage"]
            bounded = ratio.clamp(1 - config.clip_low, 1 + config.clip_high)
            gain = torch.minimum(ratio * a, bounded * a)
            if a < 0 and config.dual_clip is not None:
                gain = torch.maximum(gain, doubles(config.dual_clip * a))
            d = one["reference"][token] - one["logprobs"][token]
            kl = {"k1": -d, "k2": d**2 / 2, "k3": d.exp() - 1 - d}[config.kl_estimator]
            cap = math.inf if config.importance_cap is None else config.importance_cap
            loss = -min(weight, cap) * gain + config.kl_coefficient * kl
            total = total + one["weight"] * loss
    return total / denominator


logs = st.floats(-1.5, 1.5, width=32)
tokens = st.lists(st.tuples(logs, logs, logs, logs), min_size=1, max_size=5)
trajectories = st.lists(
    st.tuples(tokens, st.floats(-2, 2), st.floats(0.1, 2)), min_size=1, max_size=4
)
configs = st.builds(
    AlgorithmConfig,
    ratio=st.sampled_from(["token", "sequence"]),
    proximal=st.just("step"),
    importance=st.sampled_from(["none", "token", "sequence"]),
    importance_cap=st.sampled_from([None, 1.0, 2.0]),
    clip_low=st.sampled_from([0.1, 0.2, 0.6]),
    clip_high=st.sampled_from([0.1, 0.28, 0.6]),
    dual_clip=st.sampled_from([None, 1.5, 3.0]),
    kl_coefficient=st.sampled_from([0.0, 0.3]),
    kl_estimator=st.sampled_from(["k1", "k2", "k3"]),
) | st.builds(
    AlgorithmConfig,
    ratio=st.sampled_from(["token", "sequence"]),
    dual_clip=st.sampled_from([None, 1.5, 3.0]),
)


def as_tensors(made):
    """Trajectories as dictionaries, and the same tokens as columns."""
    split = [
        {
            **dict(
                zip(("logprobs", "behaviour", "proximal", "reference"), doubles(t).T, strict=True)
            ),
            "advantage": advantage,
            "weight": weight,
        }
        for t, advantage, weight in made
    ]
    for one in split:
        one["logprobs"] = one["logprobs"].clone().requires_grad_()
    lengths = [len(t) for t, _, _ in made]
    columns = {
        name: torch.cat([one[name].detach() for one in split])
        for name in ("logprobs", "behaviour", "proximal", "reference")
    }
    for name in ("advantage", "weight"):
        columns[name] = doubles(
            [one[name] for one, n in zip(split, lengths, strict=True) for _ in range(n)]
        )
    columns["ids"] = torch.tensor([i for i, n in enumerate(lengths) for _ in range(n)])
    return split, columns


def loss_of_columns(columns, config, denominator):
    logprobs = columns["logprobs"].clone().requires_grad_()
    loss, table = policy_loss(
        logprobs,
        columns["behaviour"],
        columns["advantage"],
        denominator,
        config,
        weights=columns["weight"],
        sequence_ids=columns["ids"],
        proximal=columns["proximal"] if config.proximal == "step" else None,
        reference=columns["reference"] if config.kl_coefficient else None,
    )
    loss.backward()
    return loss.item(), logprobs.grad, table


@settings(max_examples=300)
@given(trajectories, configs)
def test_loss_and_gradient_are_those_of_the_plain_definition(made, config):
    split, columns = as_tensors(made)
    expected = plainly(split, config, 7)
    expected.backward()
    loss, gradient, _ = loss_of_columns(columns, config, 7)
    assert loss == pytest.approx(expected.item(), abs=1e-9)
    wanted = torch.cat([one["logprobs"].grad for one in split])
    # At a kink of the clip the two may take either side.
    torch.testing.assert_close(gradient, wanted, rtol=1e-7, atol=1e-9)


@settings(max_examples=50)
@given(trajectories, configs, st.randoms(use_true_random=False))
def test_tokens_of_a_trajectory_may_lie_anywhere(made, config, numbers):
    _, columns = as_tensors(made)
    order = list(range(len(columns["ids"])))
    numbers.shuffle(order)
    loss, gradient, _ = loss_of_columns(columns, config, 3)
    mixed = {name: column[order] for name, column in columns.items()}
    again, moved, _ = loss_of_columns(mixed, config, 3)
    assert again == pytest.approx(loss, abs=1e-9)
    torch.testing.assert_close(moved, gradient[order], rtol=1e-9, atol=1e-9)


@settings(max_examples=50)
@given(trajectories, configs, st.integers(0, 4))
def test_loss_and_statistics_add_up_over_any_cut_between_trajectories(made, config, cut):
    """Invariant 7; each task is a cell."""
    _, columns = as_tensors(made)

    def part(where):
        some = {name: column[where] for name, column in columns.items()}
        if not len(some["ids"]):
            return 0.0, LossStatistics.empty(3)
        loss, _, table = loss_of_columns(some, config, len(columns["ids"]))
        return loss, LossStatistics.of(table, some["ids"] % 3, 3)

    whole, every = part(columns["ids"] >= 0)
    (first, left), (second, right) = part(columns["ids"] < cut), part(columns["ids"] >= cut)
    assert first + second == pytest.approx(whole, abs=1e-9)
    both = LossStatistics.empty(3) + left + right
    for cell in (None, 0, 1, 2):
        assert both.metrics(cell) == pytest.approx(every.metrics(cell), abs=1e-9)
    assert both.loss == pytest.approx(whole * len(columns["ids"]), abs=1e-9)


@settings(max_examples=50)
@given(trajectories, st.sampled_from(["token", "sequence"]))
def test_before_any_step_decoupled_is_the_importance_weighted_gradient(made, level):
    """At the step's start the learner is the proximal policy: the slope is -A w of each token."""
    config = AlgorithmConfig(proximal="step", importance=level, importance_cap=None)
    _, columns = as_tensors(made)
    columns["logprobs"] = columns["proximal"]
    _, gradient, _ = loss_of_columns(columns, config, 1)
    gap = columns["proximal"] - columns["behaviour"]
    if level == "sequence":
        gap = torch.stack([gap[columns["ids"] == i].sum() for i in columns["ids"]])
    wanted = -columns["advantage"] * columns["weight"] * gap.exp()
    torch.testing.assert_close(gradient, wanted, rtol=1e-9, atol=1e-9)


def test_no_tokens_no_metrics():
    assert LossStatistics.empty(2).metrics() == {}
    assert LossStatistics.empty(2).metrics(1) == {}
