"""What the learner costs: beside a bare forward-backward-step, in memory, and as a step grows.

One run prints the ratios, on one thread; seconds are of CPU time, so that a busy machine disturbs less.

1. Tokens a second. Both sides get the same episodes, model (0.86M parameters), precision and optimizer, and
   take turns. `bare` is given its micro-batches ready-made, with logits at the selected positions and the
   mean of the log-probabilities as its loss; `full logits` is the same with the output layer on every
   position, as `model(input_ids, labels=…)` would do it. Aim: learner / bare at least 0.9.
2. Padding: the share of what the model reads that is no token. Aim: at most 5%.
3. Memory: how far the process grows in one forward and backward pass, by tokens of the micro-batch.
4. A step of twice as many episodes, and of episodes twice as long, over the step before it.

    OMP_NUM_THREADS=1 python tests/benchmarks/bench_learner.py [--quick]
"""

import argparse
import gc
import multiprocessing
import statistics
import time
from pathlib import Path

import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from agentrl.config.load import resolve
from agentrl.messages import Status
from agentrl.rollout.policy import Policy
from agentrl.rollout.trajectory import Trajectory
from agentrl.training.batch import micro_batches, padded, split_minibatches
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


def episode(task, group, member, generator, longer=1):
    tokens, sampled, turns = (longer * value for value in SHAPES[task])
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


def step_of(tasks, groups, size=8, longer=1):
    """`groups` groups of each task; groups without spread are rare, and the seed is fixed."""
    generator = np.random.default_rng(0)
    return [
        episode(task, group, member, generator, longer)
        for place, task in enumerate(tasks)
        for group in range(place * groups, (place + 1) * groups)
        for member in range(size)
    ]


def learner_of(minibatches=2):
    config = resolve(
        {
            "tasks": {name: {} for name in SHAPES},
            "training": {"minibatches": minibatches, "threads": 1},
            "rollout": {"max_total_tokens": 2048},
        }
    )
    return Learner(Policy(tiny_model(), None, None, None), config, 0)


def throughput(groups, rounds):
    step = step_of(SHAPES, groups)
    learner, bare = learner_of(), learner_of()
    budget = learner.training.max_tokens_per_microbatch
    batch = learner.prepare(step)
    rows = [batch.row(i) for i, live in enumerate(batch.live) if live]
    tokens = sum(row.inputs for row in rows)
    parts = split_minibatches(
        [t.group_id for t in batch.trajectories], batch.task_ids, 2, learner.seed, 0, 0
    )
    halves = [
        micro_batches([batch.row(i) for i in part if batch.live[i]], budget) for part in parts
    ]
    read = sum(micro.input_ids.numel() for half in halves for micro in half)
    count = sum(micro.count for half in halves for micro in half)

    def run_learner():
        learner.train_step(step)

    def run_bare():
        for half in halves:
            for micro in half:
                with bare._autocast():
                    scores, _ = bare.scorer(micro.input_ids, micro.select, micro.targets)
                (-scores[: micro.count].mean()).backward()
            bare._optimizer_step()

    def run_full():
        for half in halves:
            for micro in half:
                with bare._autocast():
                    logits = bare.model(input_ids=micro.input_ids, use_cache=False).logits
                table = torch.log_softmax(logits.flatten(0, 1).float(), -1)
                chosen = table[micro.select[: micro.count], micro.targets[: micro.count]]
                (-chosen.mean()).backward()
            bare._optimizer_step()

    seconds = {run_learner: [], run_bare: [], run_full: []}
    for round_ in range(rounds + 1):
        for run, times in seconds.items():
            took = cpu_seconds(run)
            if round_:  # the first prepares kernels
                times.append(took)
    mean = {run.__name__: statistics.median(times) for run, times in seconds.items()}
    best = {run.__name__: min(times) for run, times in seconds.items()}
    print(
        f"1. {len(rows)} of {len(step)} episodes carry a gradient: {tokens} tokens, {count} learned"
    )
    for name, value in mean.items():
        print(
            f"   {name:12} {value:.3f} CPU s a step (best {best[name]:.3f}), {tokens / value:,.0f} tokens/s"
        )
    for name, words, aim in (("run_bare", "bare", "aim 0.90"), ("run_full", "full logits", "")):
        median, least = mean[name] / mean["run_learner"], best[name] / best["run_learner"]
        print(
            f"   learner / {words}: {median:.3f} by medians, {least:.3f} by the best of each  {aim}"
        )
    print(f"2. padding: {1 - tokens / read:.1%} of what is read  aim 5%")


def cpu_seconds(run):
    started = time.process_time()
    run()
    return time.process_time() - started


def memory(sizes):
    """Lines about how far a fresh process grows in one pass, for each size in tokens."""
    context = multiprocessing.get_context("fork")  # freed memory stays with a process
    with context.Pool(1, maxtasksperchild=1) as pool:
        found = pool.map(grown, sizes, chunksize=1)
    for tokens, size, _ in found:
        yield f"   {tokens:6d} tokens read at once: {size / 2**20:7.1f} MiB, {size / tokens / 1024:.1f} KiB a token"
    yield f"   weights, gradients and AdamW's two moments: {4 * found[0][2] / 2**20:.1f} MiB"


def grown(size):
    """(tokens, bytes that a forward and backward pass over them takes, bytes of the weights)."""
    torch.set_num_threads(1)
    learner = learner_of()
    batch = learner.prepare(step_of(["alfworld"], 8))
    # Copies of one row, so that all of them are one micro-batch.
    row = batch.row(batch.live.index(True))
    width = padded(row.inputs, learner.training.max_tokens_per_microbatch)
    few = [row] * (size // width)
    learner.accumulate([row], 1.0, 2, 1)  # gradients are there from now on, kernels too
    gc.collect()
    before = status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # VmHWM starts again at what is held now
    learner.accumulate(few, 1.0, 2, 1)
    weights = sum(p.numel() * p.element_size() for p in learner.model.parameters())
    return width * len(few), status("VmHWM") - before, weights


def status(key):
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(f"{key}:"))


def growth(doublings, times):
    print("4. CPU seconds of a step (best of each), over the one before")
    for what, options in (
        ("episodes", [{"groups": 2 * 2**n} for n in range(doublings + 1)]),
        ("tokens an episode", [{"groups": 2, "longer": 2**n} for n in range(doublings + 1)]),
    ):
        before = None
        for option in options:
            step = step_of(["alfworld"], **option)
            learner = learner_of(minibatches=1)
            learner.train_step(step)
            took = min(cpu_seconds(lambda: learner.train_step(step)) for _ in range(times))  # noqa: B023
            tokens = sum(len(t.token_ids) for t in step)
            ratio = f"{took / before:6.2f}" if before else ""
            print(f"   {what:18} {len(step):4d} x {tokens // len(step):5d}: {took:7.3f} {ratio}")
            before = took


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="small and few, a run of seconds")
    quick = parser.parse_args().quick
    torch.set_num_threads(1)
    lines = list(
        memory([1024, 2048] if quick else [1024, 2048, 4096, 8192])
    )  # before it has threads
    throughput(groups=2 if quick else 8, rounds=1 if quick else 5)
    print("3. memory of one forward and backward pass", *lines, sep="\n")
    growth(doublings=1 if quick else 2, times=1 if quick else 2)


if __name__ == "__main__":
    main()
