"""A tiny model and hand-made trajectories for the tests of algorithms and training."""

import itertools

import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from agentrl.config.load import resolve
from agentrl.messages import Status
from agentrl.rollout.trajectory import Trajectory, empty_columns

VOCABULARY = 61


def tiny_model(seed=0):
    """A random Llama of 2 layers in float32: sharp enough that temperature matters."""
    torch.manual_seed(seed)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=VOCABULARY,
            hidden_size=32,
            intermediate_size=48,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=256,
            tie_word_embeddings=True,
            initializer_range=0.3,
        )
    )
    return model.eval()


def config_of(**sections):
    """A run's settings, small and in float32; each section is overlaid on these."""
    settings = {
        "tasks": {"alpha": {}, "beta": {}},
        "training": {
            "autocast": "none",
            "learning_rate": 0.01,
            "warmup_steps": 0,
            "max_tokens_per_microbatch": 1024,
        },
        "rollout": {"max_total_tokens": 200},
    }
    for name, section in sections.items():
        settings[name] = {**settings.get(name, {}), **section}
    return resolve(settings)


def trajectory(
    spans,
    reward,
    *,
    task="alpha",
    group=0,
    member=0,
    seed=0,
    status=Status.COMPLETED,
    model=None,
    temperature=1.0,
    version=0,
    offset=0.0,
):
    """A trajectory of `spans`: (environment tokens, sampled tokens) a turn, ids drawn by `seed`.

    With `model` the behaviour log-probabilities are the model's own, computed token by token from
    the plain definition; otherwise they are -1. `offset` is added to them (an older policy).
    """
    generator = np.random.default_rng([seed, group, member])
    mask = [flag for env, own in spans for flag in [False] * env + [True] * own]
    ids = generator.integers(0, VOCABULARY, len(mask))
    logprobs = np.where(mask, -1.0, 0.0)
    if model is not None:
        with torch.no_grad():
            logits = model(torch.tensor(ids)[None]).logits[0].double() / temperature
        table = torch.log_softmax(logits, -1)
        for place in np.flatnonzero(mask):
            logprobs[place] = table[place - 1, ids[place]]
    logprobs = np.where(mask, logprobs + offset, 0.0)
    turn = [n for n, (env, own) in enumerate(spans) for _ in range(env + own)]
    return Trajectory(
        task=task,
        split="train",
        index=group,
        group_id=group,
        member=member,
        seed=seed,
        status=status,
        reward=reward,
        metrics={},
        opening=[],
        turns=[],
        timings={},
        roles=("current",),
        token_ids=ids.astype(np.int32),
        loss_mask=np.array(mask, bool),
        behaviour_logprobs=logprobs.astype(np.float32),
        policy_version=np.where(mask, version, -1).astype(np.int32),
        policy_role=np.where(mask, 0, -1).astype(np.int8),
        turn=np.array(turn, np.int16),
    )


def failure(*, task="alpha", group=0, member=0):
    """An episode whose environment died before the first token."""
    return Trajectory(
        task=task,
        split="train",
        index=group,
        group_id=group,
        member=member,
        seed=0,
        status=Status.TASK_ERROR,
        reward=None,
        metrics={},
        opening=[],
        turns=[],
        timings={},
        roles=(),
        error="died",
        **empty_columns(),
    )


SPANS = ([(5, 3), (2, 4)], [(4, 2)], [(7, 1), (1, 1), (3, 6)], [(3, 5)])


def step_of(model=None, *, groups=4, size=4, seed=0, **options):
    """A step of two tasks with groups of mixed rewards and lengths."""
    rewards = np.random.default_rng(seed).integers(0, 2, (groups, size)).astype(float)
    rewards[:, 0], rewards[:, 1] = 1.0, 0.0  # no dead group
    return [
        trajectory(
            SPANS[(group + member) % len(SPANS)],
            float(rewards[group, member]),
            task="alpha" if group % 2 else "beta",
            group=group,
            member=member,
            seed=seed,
            model=model,
            **options,
        )
        for group, member in itertools.product(range(groups), range(size))
    ]


def gradients(model):
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
