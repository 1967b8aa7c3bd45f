"""The learner: what a step's gradient depends on, and what it must not depend on."""

import errno
import os
import random
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from training_toys import (
    SPANS,
    config_of,
    failure,
    gradients,
    step_of,
    tiny_model,
    trajectory,
)

from agentrl.config.algorithm import AlgorithmConfig
from agentrl.errors import ConfigError, InfrastructureError, StateError
from agentrl.messages import Status
from agentrl.rollout.policy import Policy
from agentrl.training import weights
from agentrl.training.files import sha256
from agentrl.training.learner import Learner
from agentrl.training.step_batch import prepare_step


@pytest.fixture
def model():
    return tiny_model()


def learner_of(config=None, seed=0, model=None):
    config = config or config_of()
    reference = tiny_model(1) if config.algorithm.kl_coefficient else None
    policy = Policy(model or tiny_model(), None, None, None)
    return Learner(policy, config, seed, reference)


def gradient_of(trajectories, config=None, *, denominator=None):
    """The gradient of the loss over all `trajectories` as one optimiser step."""
    learner = learner_of(config)
    batch = learner.prepare(trajectories)
    rows = {index: batch.row(index) for index, live in enumerate(batch.live) if live}
    if learner.algorithm.proximal == "step":
        rows = learner._with_proximal(rows)
    denominator = denominator or batch.denominator(range(len(batch.tokens)))
    learner.accumulate(list(rows.values()), denominator, len(batch.tasks), len(batch.roles))
    return gradients(learner.model)


def batch_of(trajectories, budget=1024, **algorithm):
    config = config_of(algorithm=algorithm)
    return prepare_step(trajectories, config.algorithm, budget=budget, room=200)


def assert_close(left, right, tolerance=1e-6):
    assert left.keys() == right.keys()
    for name in left:
        torch.testing.assert_close(left[name], right[name], rtol=1e-4, atol=tolerance)


def differs(left, right):
    return any(not torch.allclose(left[name], right[name], rtol=1e-2, atol=1e-6) for name in left)


def by_hand(trajectories, advantages, *, clip=(0.2, 0.28), temperature=1.0):
    """The gradient from the definition: one trajectory, one token at a time, in one graph."""
    model = tiny_model()
    losses, tokens = [], 0
    for one, advantage in zip(trajectories, advantages, strict=True):
        logits = model(torch.tensor(one.token_ids[None].astype(np.int64))).logits[0] / temperature
        for place in np.flatnonzero(one.loss_mask):
            logprob = torch.log_softmax(logits[place - 1], -1)[one.token_ids[place]]
            ratio = (logprob - float(one.behaviour_logprobs[place])).exp()
            bounded = ratio.clamp(1 - clip[0], 1 + clip[1])
            loss = -torch.minimum(ratio * advantage, bounded * advantage)
            losses.append(loss if advantage > 0 else loss.clamp(max=-3 * advantage))
            tokens += 1
    (torch.stack(losses).sum() / tokens).backward()
    return gradients(model)


def test_gradient_against_the_definition(model):
    rewards = [1.0, 0.0, 0.0, 0.5]
    group = [
        trajectory(SPANS[i], r, member=i, model=model, offset=0.15 * (-1) ** i)
        for i, r in enumerate(rewards)
    ]
    config = config_of(algorithm={"task_normalization": False})
    mean = sum(rewards) / 4
    assert_close(gradient_of(group, config), by_hand(group, [r - mean for r in rewards]))


def test_gradient_at_another_temperature(model):
    group = [
        trajectory(SPANS[i], float(i == 0), member=i, model=model, temperature=0.8)
        for i in range(3)
    ]
    config = config_of(algorithm={"task_normalization": False}, rollout={"temperature": 0.8})
    expected = by_hand(group, [2 / 3, -1 / 3, -1 / 3], temperature=0.8)
    assert_close(gradient_of(group, config), expected)


@pytest.mark.parametrize("budget", [200, 224, 1024, 8192])
def test_gradient_does_not_depend_on_micro_batches(model, budget):
    step = step_of(model, offset=0.1)
    whole = gradient_of(step, config_of(training={"max_tokens_per_microbatch": 8192}))
    cut = gradient_of(step, config_of(training={"max_tokens_per_microbatch": budget}))
    assert_close(cut, whole)


def test_gradient_does_not_depend_on_order(model):
    step = step_of(model)
    shuffled = step.copy()
    random.Random(3).shuffle(shuffled)
    straight, mixed = gradient_of(step), gradient_of(shuffled)
    assert all(torch.equal(straight[name], mixed[name]) for name in straight)


RAW = {"task_normalization": False}
DECOUPLED = {"proximal": "step"}
WITH_KL = {"kl_coefficient": 0.5}


@pytest.mark.parametrize(
    ("base", "option"),
    [
        ({}, RAW),
        (RAW, {"estimator": "grpo"}),
        (RAW, {"estimator": "rloo"}),
        (RAW, {"estimator": "reinforce++"}),
        ({}, {"min_group_size": 4}),
        ({}, {"dead_groups": "drop"}),
        ({}, {"dead_groups": "keep"}),
        ({}, {"incomplete_reward": -0.7}),
        ({}, {"truncated": "mask"}),
        ({}, {"truncated": "drop"}),
        ({}, {"overlong_buffer": 190}),
        ({"overlong_buffer": 190}, {"overlong_penalty": 0.3}),
        ({}, {"clip_low": 0.01, "clip_high": 0.01}),
        ({}, {"dual_clip": 1.05}),
        ({}, {"ratio": "sequence"}),
        ({}, DECOUPLED),
        (DECOUPLED, {"importance": "token"}),
        (DECOUPLED, {"importance": "sequence"}),
        ({**DECOUPLED, "importance": "token"}, {"importance_cap": 1.2}),
        ({}, {"loss_mean": "sequence"}),
        ({}, {"loss_mean": "constant"}),
        ({}, WITH_KL),
        (WITH_KL, {"kl_estimator": "k1"}),
        (WITH_KL, {"kl_estimator": "k2"}),
        ({}, {"preset": "faithful"}),
    ],
)
def test_every_option_changes_the_gradient(model, base, option):
    """Pitfall 12."""
    step = step_of(model, offset=0.1) + dead(task="alpha")
    step = [one for one in step if one.key != (3, 3)]  # one group has three members
    for one in step[::3]:
        one.behaviour_logprobs[np.flatnonzero(one.loss_mask)[::2]] -= 0.4
        if one.reward == 0:
            one.status = Status.LIMIT_REACHED
    plain, changed = (
        gradient_of(step, config_of(algorithm=keys)) for keys in (base, {**base, **option})
    )
    assert differs(plain, changed)


def test_every_key_of_the_algorithm_is_among_the_options():
    (mark,) = test_every_option_changes_the_gradient.pytestmark
    tried = {key for _, option in mark.args[1] for key in option}
    assert tried | {"ablate"} == set(AlgorithmConfig.model_fields)


def weighed_by_hand(trajectories, advantages, weights):
    """Σ -weight · A · log π over sampled tokens: the slope of any ratio at 1."""
    model = tiny_model()
    total = 0.0
    for one, advantage, weight in zip(trajectories, advantages, weights, strict=True):
        logits = model(torch.tensor(one.token_ids[None].astype(np.int64))).logits[0]
        table = torch.log_softmax(logits, -1)
        for place in np.flatnonzero(one.loss_mask):
            share = weight[place] if np.ndim(weight) else weight
            total = total - float(share) * advantage * table[place - 1, one.token_ids[place]]
    total.backward()
    return gradients(model)


def two_groups(model, **options):
    return [
        trajectory(SPANS[(g + m) % 4], float(m == 0), group=g, member=m, model=model, **options)
        for g in range(2)
        for m in range(3)
    ]


ADVANTAGES = [2 / 3, -1 / 3, -1 / 3] * 2


@pytest.mark.parametrize("mean", ["token", "sequence", "constant"])
def test_what_weighs_the_same_in_a_step(model, mean):
    step = two_groups(model)
    config = config_of(algorithm={**RAW, "loss_mean": mean})
    lengths = [one.sampled for one in step]
    share = {
        "token": [1 / sum(lengths)] * 6,
        "sequence": [1 / (6 * n) for n in lengths],
        "constant": [1 / (6 * 200)] * 6,  # rollout.max_total_tokens of the toys
    }[mean]
    assert_close(gradient_of(step, config), weighed_by_hand(step, ADVANTAGES, share))


@pytest.mark.parametrize("level", ["token", "sequence"])
def test_decoupled_gradient_with_importance_by_hand(model, level):
    """Tokens sampled by an older policy, 0.1 more likely under it: at the step's start the ratio to
    the proximal policy is 1 and only the importance weight is left, e^-0.1 for each token."""
    step = two_groups(model, offset=0.1)
    config = config_of(algorithm={**RAW, **DECOUPLED, "importance": level, "importance_cap": None})
    tokens = sum(one.sampled for one in step)
    lengths = [1 if level == "token" else one.sampled for one in step]
    share = [np.exp(-0.1 * n) / tokens for n in lengths]
    assert_close(gradient_of(step, config), weighed_by_hand(step, ADVANTAGES, share))


def test_the_proximal_policy_is_that_of_the_steps_start(model, monkeypatch):
    """Also in the last minibatch, when the weights have moved on."""
    step = step_of(model, offset=0.3, version=9)
    learner = learner_of(config_of(algorithm=DECOUPLED, training={"minibatches": 2, "epochs": 2}))
    seen, accumulate = [], learner.accumulate

    def watched(rows, *arguments):
        seen.append(rows)
        return accumulate(rows, *arguments)

    monkeypatch.setattr(learner, "accumulate", watched)
    metrics = learner.train_step(step)
    assert len(seen) == 4 and metrics["ratio_max"] > 1.0
    for row in (row for rows in seen for row in rows):
        learned = row.weights != 0
        wanted = row.behaviour[learned] - 0.3
        np.testing.assert_allclose(row.proximal[learned], wanted, atol=2e-5)


@pytest.mark.parametrize("level", ["token", "sequence"])
@pytest.mark.parametrize("budget", [200, 8192])
def test_trajectories_stay_whole_in_micro_batches(model, level, budget):
    step = step_of(model, offset=0.1)
    keys = {"ratio": level, **DECOUPLED, "importance": level}
    whole, cut = (
        gradient_of(step, config_of(algorithm=keys, training={"max_tokens_per_microbatch": size}))
        for size in (1024, budget)
    )
    assert_close(cut, whole)


def test_metrics_by_role_and_by_age(model):
    """Invariant 2: what the stale copy sampled is off by 0.4, the rest by nothing."""
    step = step_of(model, groups=2)
    stale_tokens = 0
    for one in step:
        one.roles = ("current", "stale")
        first = one.loss_mask & (one.turn == 0)
        one.policy_role[first] = 1
        one.policy_version[one.loss_mask] = 9
        one.policy_version[first] = 4
        one.behaviour_logprobs[first] -= 0.4
        stale_tokens += first.sum()
    learner = learner_of(config_of(training={"minibatches": 1}))
    learner.step = 10
    metrics = learner.train_step(step)
    assert metrics["logprob_gap/role/stale"] == pytest.approx(0.4, abs=1e-5)
    assert metrics["logprob_gap/role/current"] == pytest.approx(0.0, abs=1e-5)
    assert metrics["ratio_mean/age/1"] == pytest.approx(1.0, abs=1e-5)
    assert metrics["ratio_mean/age/5-8"] == pytest.approx(np.exp(0.4), abs=1e-5)
    assert not [name for name in metrics if name.endswith(("age/0", "age/2", "age/over-16"))]
    tokens = sum(one.sampled for one in step)
    mean = 0.4 * stale_tokens / tokens
    assert metrics["logprob_gap"] == pytest.approx(mean, abs=1e-5)


def test_advantages_that_enter_the_loss_are_normalized_by_task(model):
    step = step_of(model)
    for one in step:
        one.reward *= 10 if one.task == "alpha" else 1
    batch = batch_of(step)
    for task in (0, 1):
        entering = [
            batch.row(i).advantage
            for i in range(len(step))
            if batch.task_ids[i] == task
            for _ in range(batch.tokens[i])
        ]
        assert np.mean(entering) == pytest.approx(0, abs=1e-9)
        assert np.std(entering, ddof=1) == pytest.approx(1, abs=1e-9)


def test_environment_tokens_have_no_gradient_of_their_own(model):
    """After the last sampled token they change nothing; before it they only are context."""
    step = step_of(model)
    longer = [
        replace(
            one,
            **{
                name: np.append(getattr(one, name), np.array([value], getattr(one, name).dtype))
                for name, value in {
                    "token_ids": 5,
                    "loss_mask": False,
                    "behaviour_logprobs": 0,
                    "policy_version": -1,
                    "policy_role": -1,
                    "turn": 9,
                }.items()
            },
        )
        for one in step
    ]
    assert_close(gradient_of(longer), gradient_of(step), 0)
    config = config_of(algorithm={"task_normalization": False})
    one, other = (
        trajectory([(5, 3), (2, 4)], reward, member=member, model=model)
        for member, reward in enumerate((1.0, 0.0))
    )
    for place in np.flatnonzero(~one.loss_mask):
        one.behaviour_logprobs[place] = -7.0  # an environment token's number enters nothing
    assert_close(gradient_of([one, other], config), by_hand([one, other], [0.5, -0.5]))


def test_inserted_environment_spans_leave_advantages_alone(model):
    short = [trajectory([(5, 3)], float(m == 0), member=m) for m in range(4)]
    long = [trajectory([(5, 2), (40, 1)], float(m == 0), member=m) for m in range(4)]
    left, right = (batch_of(step).advantages.values for step in (short, long))
    assert left.tolist() == right.tolist()


def dead(group=99, reward=0.0, **options):
    return [
        trajectory(SPANS[m], reward, group=group, member=m, seed=8, version=5, **options)
        for m in range(4)
    ]


@pytest.mark.parametrize("kl", [0.0, 0.5])
def test_dropped_dead_groups_are_as_if_they_had_not_been(model, kl):
    """Pitfall 13, the other choice."""
    step = step_of(model)
    config = config_of(algorithm={"dead_groups": "drop", "kl_coefficient": kl})
    assert_close(gradient_of(step + dead(), config), gradient_of(step, config), 0)
    metrics = learner_of(config).train_step(step + dead())
    assert metrics["dead_groups"] == 1
    assert metrics["tokens"] == sum(one.sampled for one in step)


def test_kept_dead_groups_are_trained_on_like_any_other(model):
    """With a reference the released code gives them a KL gradient too, be their advantage 0."""
    keys = {"dead_groups": "keep", "kl_coefficient": 0.5, "task_normalization": False}
    metrics = learner_of(config_of(algorithm=keys)).train_step(step_of(model) + dead())
    assert metrics["trained_trajectories"] == len(step_of()) + 4


def test_masked_truncations_are_in_the_baseline_only(model):
    step = step_of(model)
    for one in step:
        if one.member == 1:
            one.status = Status.LIMIT_REACHED
    batch = batch_of(step, truncated="mask", task_normalization=False)
    plain = batch_of(step, task_normalization=False)
    assert batch.advantages.values.tolist() == plain.advantages.values.tolist()
    assert [n > 0 for n in batch.tokens] == [t.member != 1 for t in batch.trajectories]
    dropped = batch_of(step, truncated="drop", task_normalization=False)
    rest = batch_of([one for one in step if one.member != 1], task_normalization=False)
    present = dropped.advantages.present
    assert dropped.advantages.values[present].tolist() == rest.advantages.values.tolist()


def test_dead_group_has_no_gradient_but_counts_in_the_denominator(model):
    step = step_of(model)
    tokens = sum(one.sampled for one in step)
    more = sum(one.sampled for one in dead())
    assert_close(
        gradient_of(step + dead()), gradient_of(step, denominator=tokens + more), tolerance=1e-7
    )
    config = config_of(algorithm={"kl_coefficient": 0.5})  # nor a KL gradient (pitfall 13)
    assert_close(
        gradient_of(step + dead(), config),
        gradient_of(step, config, denominator=tokens + more),
        tolerance=1e-7,
    )
    metrics = learner_of().train_step(step + dead() + dead(98, 1.0))
    assert metrics["dead_groups"] == 2
    assert metrics["trained_trajectories"] == len(step)
    assert metrics["tokens"] == tokens + 2 * more


def test_failures_leave_loss_and_baseline_as_they_were(model):
    step = step_of(model)
    damaged = [*step, *(failure(group=group, member=9, task="beta") for group in (0, 2))]
    assert_close(gradient_of(damaged), gradient_of(step), 0)
    metrics = learner_of().train_step(damaged)
    assert metrics["without_advantage"] == 2
    assert metrics["trajectories"] == len(step) + 2


def test_nan_reward_is_left_out(model):
    step = [trajectory(SPANS[m % 4], float(m % 2), member=m, model=model) for m in range(8)]
    step[2].reward = float("nan")
    step[3] = replace(step[3], status=Status.CANCELLED, reward=None)
    batch = batch_of(step)
    assert batch.counts()["without_advantage"] == 2
    assert torch.isfinite(batch.advantages.values[batch.advantages.present]).all()
    assert [bool(n) for n in batch.tokens] == [m not in (2, 3) for m in range(8)]
    rest = [one for m, one in enumerate(step) if m not in (2, 3)]
    assert_close(gradient_of(step), gradient_of(rest), 0)


def test_truncation_is_counted(model):
    """Pitfall 10: episodes that a limit ended, and turns that the token limit cut off."""
    step = step_of(model)
    step[0].status, step[1].status = Status.LIMIT_REACHED, Status.CONTEXT_LIMIT
    step[2].metrics["truncated_turns"] = 3.0
    metrics = learner_of().train_step(step)
    assert (metrics["truncated_trajectories"], metrics["truncated_turns"]) == (2, 3)


def test_too_long_is_dropped_and_counted_but_stays_in_the_baseline(model):
    step = [trajectory(SPANS[m], float(m == 0), member=m, model=model) for m in range(3)]
    step.append(trajectory([(250, 4)], 1.0, member=3))
    config = config_of(training={"max_tokens_per_microbatch": 220})
    metrics = learner_of(config).train_step(step)
    assert metrics["dropped_too_long"] == 1
    assert metrics["tokens"] == sum(one.sampled for one in step[:3])
    batch = batch_of(step, budget=220, task_normalization=False)
    assert batch.advantages.values.tolist() == [0.5, -0.5, -0.5, 0.5]
    assert batch.live == [True, True, True, False]


def test_budget_below_the_longest_episode_is_refused_at_the_start():
    with pytest.raises(ConfigError, match=r"training\.max_tokens_per_microbatch"):
        learner_of(config_of(training={"max_tokens_per_microbatch": 100}))


def test_step_of_dead_groups_moves_on_and_changes_nothing():
    learner = learner_of()
    before = {name: value.clone() for name, value in learner.model.state_dict().items()}
    metrics = learner.train_step(dead() + dead(98))
    assert (metrics["optimizer_steps"], metrics["skipped_minibatches"], learner.step) == (0, 2, 1)
    assert "loss" not in metrics
    assert all(torch.equal(before[name], v) for name, v in learner.model.state_dict().items())
    assert learner.train_step([])["trajectories"] == 0


def test_metrics_of_a_step_on_policy(model):
    config = config_of(training={"minibatches": 1})
    metrics = learner_of(config).train_step(step_of(model))
    assert metrics["ratio_mean"] == pytest.approx(1, abs=1e-5)
    assert metrics["clip_fraction"] == 0
    assert metrics["kl_behaviour"] == pytest.approx(0, abs=1e-6)
    assert metrics["logprob_gap"] < 1e-5
    assert 0 < metrics["entropy"] <= np.log(61)
    assert metrics["grad_norm"] > 0
    for task in ("alpha", "beta"):
        assert metrics[f"ratio_mean/{task}"] == pytest.approx(1, abs=1e-5)


def test_warm_up_of_the_learning_rate(model):
    learner = learner_of(config_of(training={"warmup_steps": 4, "learning_rate": 0.4}))
    rates = [learner.train_step(dead())["learning_rate"] for _ in range(6)]
    assert rates == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.4, 0.4])


def test_training_makes_rewarded_tokens_likelier(model):
    step = step_of(model, groups=2)
    learner = learner_of(config_of(training={"epochs": 5, "learning_rate": 1e-3}))
    learner.train_step(step)

    def mean_logprob(wanted):
        own = [trajectory(s, r, **k, model=learner.model) for s, r, k in wanted]
        return np.mean(np.concatenate([one.behaviour_logprobs[one.loss_mask] for one in own]))

    def parts(reward):
        return [
            (
                SPANS[(t.group_id + t.member) % 4],
                t.reward,
                {"group": t.group_id, "member": t.member},
            )
            for t in step
            if t.reward == reward
        ]

    def before(reward):
        own = [t for t in step if t.reward == reward]
        return np.mean(np.concatenate([t.behaviour_logprobs[t.loss_mask] for t in own]))

    assert mean_logprob(parts(1.0)) > before(1.0)
    assert mean_logprob(parts(0.0)) < before(0.0)


def test_ratio_is_one_at_zero_lag_and_a_wrong_temperature_is_noticed(model):
    at = {"rollout": {"temperature": 0.8}}
    step = step_of(model, temperature=0.8)
    assert learner_of(config_of(**at)).train_step(step)["engine_gap"] < 1e-5
    with pytest.raises(InfrastructureError, match=r"rollout\.temperature"):
        learner_of(config_of(**at)).train_step(step_of(model, temperature=1.0))
    with pytest.raises(InfrastructureError, match="disagree on version 0"):
        learner_of(config_of()).train_step(step_of(tiny_model(5)))


def test_only_tokens_of_the_present_weights_are_compared(model, tmp_path):
    learner = learner_of()
    assert "engine_gap" not in learner.train_step(step_of(tiny_model(5), version=7))
    learner.publish(tmp_path, 1)
    current = step_of(learner.model, version=1, seed=1)
    assert learner.train_step(current)["engine_gap"] < 1e-5


@pytest.mark.parametrize("algorithm", [{}, {"proximal": "step", "importance": "sequence"}])
def test_resumed_learner_is_the_unbroken_one_bit_by_bit(model, tmp_path, algorithm):
    steps = [step_of(model, seed=seed, offset=0.05, version=9) for seed in range(4)]
    config = config_of(training={"warmup_steps": 3, "autocast": "bf16"}, algorithm=algorithm)
    unbroken = learner_of(config)
    expected = [unbroken.train_step(step) for step in steps]
    first = learner_of(config)
    got = [first.train_step(step) for step in steps[:2]]
    first.save(tmp_path)
    second = learner_of(config, model=tiny_model(9))  # other weights: all must come from the file
    assert second.load(tmp_path) == 2
    got += [second.train_step(step) for step in steps[2:]]
    assert got == expected
    left, right = unbroken.model.state_dict(), second.model.state_dict()
    assert all(torch.equal(left[name], right[name]) for name in left)


def test_state_of_another_run_is_refused(tmp_path):
    learner_of().save(tmp_path)
    with pytest.raises(StateError, match="seed 0, this run has 1"):
        learner_of(seed=1).load(tmp_path)
    (tmp_path / "learner.safetensors").write_bytes(b"torn")
    with pytest.raises(StateError, match=r"learner\.safetensors"):
        learner_of().load(tmp_path)
    with pytest.raises(StateError, match=r"learner\.json"):
        learner_of().load(tmp_path / "nowhere")


def test_published_weights_are_what_the_learner_holds(model, tmp_path):
    learner = learner_of()
    learner.train_step(step_of(model))
    reference = learner.publish(tmp_path / "weights", 1)
    assert (reference.version, reference.path.parent) == (1, tmp_path / "weights")
    assert reference.sha256 == sha256(reference.path)
    assert [path.name for path in reference.path.parent.iterdir()] == [reference.path.name]
    assert len({learner.publish(tmp_path / str(n), 1).sha256 for n in range(6)}) == 1
    engine = tiny_model(3)
    missing, unexpected = engine.load_state_dict(load_file(reference.path), strict=False)
    assert missing == ["lm_head.weight"] and not unexpected  # tied
    engine.set_attn_implementation("eager")
    ids = torch.arange(20)[None]
    assert torch.equal(engine(ids).logits, learner.model(ids).logits)


def test_full_disk_is_one_line_and_the_file_before_stays(tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def torn(_, aside, **__):
        aside.write_bytes(b"half")
        raise SafetensorError("I/O error: No space left on device (os error 28)")

    learner = learner_of()
    reference = learner.publish(tmp_path, 1)
    for where, name, fake in ((os, "fsync", full), (weights, "save_file", torn)):
        with monkeypatch.context() as patch:
            patch.setattr(where, name, fake)
            for write in (lambda: learner.publish(tmp_path, 1), lambda: learner.save(tmp_path)):
                with pytest.raises(StateError, match="No space left on device") as error:
                    write()
                assert "\n" not in str(error.value)
        assert sha256(reference.path) == reference.sha256
        assert list(tmp_path.iterdir()) == [reference.path]


def test_a_step_is_the_same_in_any_process_order(model):
    """Minibatches, sums and all: nothing depends on what this process did before."""
    step = step_of(model)
    results = []
    for noise in (0, 100):
        torch.manual_seed(noise)
        np.random.seed(noise)
        learner = learner_of(config_of(training={"epochs": 2}))
        results.append(learner.train_step(random.Random(noise).sample(step, len(step))))
    assert results[0] == results[1]


@pytest.mark.parametrize("bad", [np.nan, -np.inf])
def test_broken_log_probability_is_an_error_that_names_the_episode(model, bad):
    step = step_of(model)
    step[5].behaviour_logprobs[step[5].loss_mask] = bad
    learner = learner_of()
    with pytest.raises(InfrastructureError, match="alpha 1, group 1 member 1"):
        learner.train_step(step)
    assert learner.step == 0


def test_broken_weights_end_the_run(model):
    learner = learner_of()
    with torch.no_grad():
        next(learner.model.parameters()).fill_(float("nan"))
    with pytest.raises(FloatingPointError, match="step 0"):
        learner.train_step(step_of(model, version=9))
