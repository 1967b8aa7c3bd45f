"""How much of a bare forward-backward-step the learner delivers, in tokens a second, on one thread.

One run prints the ratios; both sides get the same episodes, model (0.86M parameters), precision and
optimizer, and take turns. Seconds are of CPU time, so that a busy machine disturbs less. `bare` is given its micro-batches ready-made, with logits at the selected
positions and the mean of the log-probabilities as its loss; `full logits` is the same with the
output layer on every position, as `model(input_ids, labels=…)` would do it.

    OMP_NUM_THREADS=1 python tests/benchmarks/bench_learner.py
"""

import statistics
import time

import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from agentrl.config.load import resolve
from agentrl.messages import Status
from agentrl.rollout.policy import Policy
from agentrl.rollout.trajectory import Trajectory
from agentrl.training.batch import micro_batches, split_minibatches
from agentrl.training.learner import Learner

VOCABULARY = 1300
SHAPES = {"alfworld": (314, 81, 12), "dbbench": (56, 22, 3)}
"""Tokens, sampled tokens and turns of an episode after RL at scale mini (mini.md §3)."""


def tiny_model():
    torch.manual_seed(0)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=VOCABULARY,
            hidden_size=128,
            intermediate_size=320,
            num_hidden_layers=4,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=1024,
            tie_word_embeddings=True,
        )
    )


def episode(task, group, member, generator):
    tokens, sampled, turns = SHAPES[task]
    length = int(tokens * generator.uniform(0.6, 1.4))
    mask = np.zeros(length, bool)
    per_turn, span = max(1, sampled // turns), length // turns
    for turn in range(turns):
        mask[(turn + 1) * span - per_turn : (turn + 1) * span] = True
    return Trajectory(
        task=task,
        split="train",
        index=group,
        group_id=group,
        member=member,
        seed=0,
        status=Status.COMPLETED,
        reward=float(generator.random() < 0.4),
        metrics={},
        opening=[],
        turns=[],
        timings={},
        roles=("current",),
        token_ids=generator.integers(0, VOCABULARY, length).astype(np.int32),
        loss_mask=mask,
        behaviour_logprobs=np.where(mask, -7.2, 0).astype(np.float32),
        policy_version=np.where(mask, 99, -1).astype(np.int32),
        policy_role=np.where(mask, 0, -1).astype(np.int8),
        turn=np.zeros(length, np.int16),
    )


def main():
    torch.set_num_threads(1)
    config = resolve(
        {"tasks": {name: {} for name in SHAPES}, "training": {"minibatches": 2, "threads": 1}}
    )
    generator = np.random.default_rng(0)
    step = [
        episode(task, group, member, generator)
        for place, task in enumerate(SHAPES)
        for group in range(place * 8, place * 8 + 8)
        for member in range(8)
    ]
    learner = Learner(Policy(tiny_model(), None, None, None), config, 0)
    bare = Learner(Policy(tiny_model(), None, None, None), config, 0)
    budget = config.training.max_tokens_per_microbatch
    batch = learner.prepare(step)
    rows = [batch.row(i) for i, live in enumerate(batch.live) if live]
    tokens = sum(row.inputs for row in rows)
    parts = split_minibatches(
        [t.group_id for t in batch.trajectories], batch.task_ids, 2, learner.seed, 0, 0
    )
    halves = [
        micro_batches([batch.row(i) for i in part if batch.live[i]], budget) for part in parts
    ]
    padded = sum(micro.input_ids.numel() for half in halves for micro in half)
    count = sum(micro.count for half in halves for micro in half)

    def run_learner():
        learner.train_step(step)

    def run_bare():
        for half in halves:
            for micro in half:
                with torch.autocast("cpu", torch.bfloat16):
                    scores, _ = bare.scorer(micro.input_ids, micro.select, micro.targets)
                (-scores[: micro.count].mean()).backward()
            bare._optimizer_step()

    def run_full():
        for half in halves:
            for micro in half:
                with torch.autocast("cpu", torch.bfloat16):
                    logits = bare.model(input_ids=micro.input_ids, use_cache=False).logits
                table = torch.log_softmax(logits.flatten(0, 1).float(), -1)
                chosen = table[micro.select[: micro.count], micro.targets[: micro.count]]
                (-chosen.mean()).backward()
            bare._optimizer_step()

    seconds = {run_learner: [], run_bare: [], run_full: []}
    for round_ in range(9):
        for run, times in seconds.items():
            started = time.process_time()
            run()
            if round_:  # the first prepares kernels
                times.append(time.process_time() - started)
    mean = {run.__name__: statistics.median(times) for run, times in seconds.items()}
    best = {run.__name__: min(times) for run, times in seconds.items()}
    print(
        f"{len(rows)} of {len(step)} episodes carry a gradient: {tokens} tokens to read, {count} learned"
    )
    print(f"padding: {padded / tokens - 1:.0%} on top")
    for name, value in mean.items():
        print(
            f"{name:12} {value:.3f} CPU s a step (best {best[name]:.3f}), {tokens / value:,.0f} tokens/s"
        )
    for name, words in (("run_bare", "bare"), ("run_full", "full logits")):
        median, least = mean[name] / mean["run_learner"], best[name] / best["run_learner"]
        print(f"learner / {words}: {median:.3f} by medians, {least:.3f} by the best of each")


if __name__ == "__main__":
    main()
