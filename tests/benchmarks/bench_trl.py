"""AgentRL beside TRL's GRPOTrainer: the same policy, episodes and number of trained tokens, in one run on a CPU.

TRL comes from PyPI into a temporary folder, without its dependencies: both sides run on the torch,
transformers and accelerate of this environment. Its side is a `rollout_func` (TRL's hook for environments of many turns) in
which ALFWorld episodes are played by AgentRL's own loop - rendering, parsing of tool calls, environment - while
every completion of a turn is sampled by the trainer's own batched `generate`; rewards, advantages, loss and
optimizer are the trainer's.

The same: start policy, samples and their order, groups and their size, turns and token limits, temperature, GRPO with
the group's std, clip 0.2 / 0.28, token mean, AdamW and its settings, float32, no KL, eager attention, one optimiser step
a step. TRL's gradient checkpointing, on by default, is off.

Different: AgentRL plays and trains at once, one thread each in two processes (`schedule: eager`, tokens up to
`pipeline.max_staleness` = 2 steps old); TRL takes turns, with as many threads as there are
cores (`--threads`: for a tiny model one may be quicker). AgentRL's engine keeps each
episode's keys and values between turns and lets a short completion go on; `generate` reads every prompt anew and
waits for the longest of the batch. AgentRL reads micro-batches of similar length; TRL pads a step's episodes to its
longest. AgentRL's loss has a dual clip at 3. The random draws differ, so the curves agree in tendency only.

AgentRL's run decides the number of sampled tokens; TRL goes on until it has trained as many, and its time is
interpolated within the last step. Starting, installing and cloning do not count. Aim: time ratio at most 0.7.

    python tests/benchmarks/bench_trl.py [--policy DIR] [--steps 8] [--groups 6] [--quick]

`--policy`: where both start, a clone of scale mini; without one a base policy is cloned for `--clone-steps` first.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parents[1])]
TASK, SIZE = "alfworld", 8
TRL = "trl==1.16.0"


def settings_of(folder: Path, steps: int, groups: int) -> Path:
    from bench_modes import write_config

    return write_config(
        folder / "config.yaml",
        {
            # Every task of the vocabulary, but one is trained.
            "tasks": {"dbbench": None},
            "warm_start": {"episodes_per_step": {"dbbench": None}},
            "training": {
                "steps": steps,
                "groups_per_task": groups,
                "group_size": SIZE,
                "minibatches": 1,
                "warmup_steps": 0,
                "decay_fraction": 0.0,
                "snapshot_every": 1000,
            },
            "algorithm": {"estimator": "grpo", "task_normalization": False},
            "rollout": {"cross_policy": {"stale_ratio": 0.0}},
            "pipeline": {"mode": "async", "schedule": "eager", "max_staleness": 2},
        },
    )


def play_with_trl(config_path: Path, policy: Path, tokens: int, threads: int, out: Path) -> None:
    """TRL's side, in a process of its own; writes seconds, tokens and rewards of each step to `out`."""
    import torch
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    from agentrl.config.load import load
    from agentrl.hosting.controller import Controller
    from agentrl.pipeline.assembly import create_stream
    from agentrl.rollout.agent_loop import AgentEpisode, EpisodeSettings
    from agentrl.rollout.conductor import Conductor
    from agentrl.rollout.cross_policy import PolicyPool
    from agentrl.rollout.engine import Completion
    from agentrl.rollout.policy import load_policy
    from agentrl.tasks.registry import create_task

    torch.set_num_threads(threads)
    config = load([config_path])
    training, rollout, algorithm = config.training, config.rollout, config.algorithm
    loaded = load_policy(policy)
    controller = Controller({})
    task = controller.tasks[TASK] = create_task(TASK, config.tasks[TASK], config.data_root)
    stream = create_stream(config, {TASK: task.samples("train")}, 0)
    loop = asyncio.new_event_loop()

    @dataclass
    class TrainersEngine:
        """Answers all waiting requests with one call of the trainer's `generate`."""

        version: int = 0
        digest: str = ""
        on_request: object = None
        waiting: list = field(default_factory=list)

        @property
        def pending(self):
            return len(self.waiting)

        async def generate(self, prompt_ids, sampling, *, session, partial=None):
            answer = asyncio.get_running_loop().create_future()
            self.waiting.append((session, list(prompt_ids), sampling, answer))
            self.on_request()
            return await answer

        def step(self):
            batch, self.waiting = sorted(self.waiting, key=lambda w: w[0]), []
            found, _ = trainer._generate_single_turn([ids for _, ids, _, _ in batch], None, {}, 1)
            for (_, _, sampling, answer), ids in zip(batch, found, strict=True):
                ids = ids[: sampling.max_new_tokens]
                stopped = ids[-1] in sampling.stop_token_ids
                answer.set_result(
                    Completion(
                        ids, [0.0] * len(ids), [0] * len(ids), "stop" if stopped else "length"
                    )
                )
            return len(batch)

        def partial(self, session):
            return None

        def release(self, session):
            pass

    class Record:
        steps: list = []  # noqa: RUF012
        rewards: list = []  # noqa: RUF012
        started = 0.0

    async def play(first: int, count: int):
        engine = TrainersEngine()
        conductor = Conductor([engine])
        pool = PolicyPool({"current": engine})
        limits = EpisodeSettings(
            loaded.renderer, rollout.temperature, rollout.max_new_tokens, rollout.max_total_tokens
        )

        def episode(place):
            group, member = divmod(first * SIZE + place, SIZE)
            return AgentEpisode(
                controller,
                pool,
                limits,
                stream.group(group).sample,
                seed=stream.episode_seed(group, member),
                group_id=group,
                member=member,
                session=place + 1,
            ).run

        return await conductor.run_all([episode(place) for place in range(count)], count)

    def rollout_func(prompts, _trainer):
        first = len(Record.steps) * stream.groups_per_step
        found = loop.run_until_complete(play(first, len(prompts)))
        out = {"prompt_ids": [], "completion_ids": [], "logprobs": None, "env_mask": []}
        end = loaded.tokenizer.eos_token_id
        for trajectory in found:
            sampled = np.flatnonzero(trajectory.loss_mask)
            ids, mask = trajectory.token_ids.tolist(), trajectory.loss_mask.astype(int).tolist()
            low, high = (sampled[0], sampled[-1] + 1) if len(sampled) else (len(ids), len(ids))
            out["prompt_ids"].append(ids[:low] or [end])
            out["completion_ids"].append(ids[low:high] or [end])
            out["env_mask"].append(mask[low:high] or [0])
        Record.rewards = [trajectory.reward or 0.0 for trajectory in found]
        Record.steps.append(
            {
                "tokens": int(sum(t.sampled for t in found)),
                "reward": float(np.mean(Record.rewards)),
            }
        )
        return out

    class Clock(TrainerCallback):
        def on_train_begin(self, args, state, control, **_):
            Record.started = time.monotonic()

        def on_step_end(self, args, state, control, **_):
            Record.steps[-1]["at"] = time.monotonic() - Record.started
            if sum(step["tokens"] for step in Record.steps) >= tokens:
                control.should_training_stop = True

    episodes = stream.groups_per_step * SIZE
    trainer = GRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(
            policy, dtype=torch.float32, attn_implementation="eager", local_files_only=True
        ),
        reward_funcs=lambda prompts, completions, **_: Record.rewards,
        args=GRPOConfig(
            output_dir=str(out.with_suffix(".trl")),
            use_cpu=True,
            bf16=False,
            gradient_checkpointing=False,
            per_device_train_batch_size=episodes,
            num_generations=SIZE,
            max_completion_length=rollout.max_new_tokens,
            max_steps=4 * training.steps,
            learning_rate=training.learning_rate,
            lr_scheduler_type="constant",
            adam_beta1=training.betas[0],
            adam_beta2=training.betas[1],
            weight_decay=training.weight_decay,
            max_grad_norm=training.grad_clip,
            temperature=rollout.temperature,
            beta=0.0,
            epsilon=algorithm.clip_low,
            epsilon_high=algorithm.clip_high,
            scale_rewards="group",
            loss_type="bnpo",
            seed=0,
            report_to="none",
            save_strategy="no",
            disable_tqdm=True,
            logging_steps=10_000,
            dataloader_pin_memory=False,
        ),
        train_dataset=Dataset.from_dict({"prompt": [str(n) for n in range(10 * episodes)]}),
        processing_class=loaded.tokenizer,
        rollout_func=rollout_func,
        callbacks=[Clock()],
    )
    trainer.train()
    out.write_text(json.dumps([step for step in Record.steps if "at" in step]))
    loop.run_until_complete(controller.close())
    loop.close()


def seconds_until(steps: list[dict], tokens: int) -> float:
    """When `tokens` had been trained, within a step in proportion."""
    done = before = 0.0
    for step in steps:
        if done + step["tokens"] >= tokens:
            return before + (step["at"] - before) * (tokens - done) / step["tokens"]
        done, before = done + step["tokens"], step["at"]
    return float("nan")


def main() -> None:
    if sys.argv[1:2] == ["--trl-side"]:
        config, policy, tokens, threads, out = sys.argv[2:]
        play_with_trl(Path(config), Path(policy), int(tokens), int(threads), Path(out))
        return
    parser = argparse.ArgumentParser()
    parser.add_argument("--policy", type=Path)
    parser.add_argument("--clone-steps", type=int, default=60)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--groups", type=int, default=6)
    parser.add_argument(
        "--threads", type=int, default=os.cpu_count(), help="of TRL's side; ours has one a process"
    )
    parser.add_argument("--trl", default=TRL, help="requirement of pip")
    parser.add_argument("--site", type=Path, help="folder that already holds TRL")
    parser.add_argument("--quick", action="store_true", help="two small steps, hardly cloned")
    options = parser.parse_args()
    if options.quick:
        options.steps, options.groups, options.clone_steps = 2, 1, 3

    from bench_modes import run, start_policy

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        site = options.site or folder / "site"
        if not options.site:
            subprocess.run(
                [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", site,
                 options.trl],
                check=True,
            )  # fmt: skip
        policy = (options.policy or start_policy(folder, options.clone_steps)).resolve()
        config = settings_of(folder, options.steps, options.groups)
        run(
            "train", "--config", config, "--policy", policy, "--run", "ours", "--seed", 0,
            "--state", folder / "state", "--output", folder / "ours",
        )  # fmt: skip
        history = pd.read_parquet(folder / "ours" / "history.parquet")
        rows = history[history["task"] == "*"].sort_values("step")
        ours, tokens = rows["seconds"].sum(), int(rows["sampled_tokens"].sum())
        paths = [str(site), *filter(None, [os.environ.get("PYTHONPATH")])]
        done = subprocess.run(
            [
                sys.executable,
                __file__,
                "--trl-side",
                config,
                policy,
                str(tokens),
                str(options.threads),
                folder / "trl.json",
            ],
            capture_output=True,
            text=True,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(paths),
                "TRL_EXPERIMENTAL_SILENCE": "1",
            },
        )
        if done.returncode:
            raise SystemExit(f"TRL's side failed:\n{done.stderr[-3000:]}")
        theirs = json.loads((folder / "trl.json").read_text())
    seconds = seconds_until(theirs, tokens)
    print(
        f"{options.trl}; {options.groups} groups of {SIZE} ALFWorld episodes a step; "
        f"{tokens} sampled tokens trained; {os.cpu_count()} cores"
    )
    print(f"{'step':>4}{'AgentRL reward':>16}{'TRL reward':>12}")
    mine = rows["reward_mean"].tolist()
    for step in range(max(len(mine), len(theirs))):
        left = f"{mine[step]:.3f}" if step < len(mine) else ""
        right = f"{theirs[step]['reward']:.3f}" if step < len(theirs) else ""
        print(f"{step:>4}{left:>16}{right:>12}")
    last = max(1, len(mine) // 3)
    print(
        f"mean reward of the last {last} steps: AgentRL {np.mean(mine[-last:]):.3f}, "
        f"TRL {np.mean([s['reward'] for s in theirs[-last:]]):.3f}"
    )
    print(
        f"AgentRL {ours:.1f} s, TRL {seconds:.1f} s for as many tokens: "
        f"ratio {ours / seconds:.2f}  aim 0.70"
    )


if __name__ == "__main__":
    main()
