"""What one GPU makes of this package, in minutes: learner, engine, and both at once.

    python3 scripts/gpu_check.py [--out gpu-check.json] [--cpu]

Needs torch, transformers, accelerate and numpy; no network, no vLLM. What else is missing is stood in for
(`stand_ins.py`). All weights are random. `--cpu` does everything on a tiny model: it shows that the script
works, and its figures mean nothing.

    learner      model FLOP/s of whole optimiser steps (6 a parameter and token, attention, logits where they
                 are computed) as a share of the FLOP/s of a large matrix product, measured here
    engine       decoded tokens a second, prompts included, beside what reading weights and cache once a step
                 allows at the bandwidth of a large copy, measured here
    agreement    |log p(engine) - log p(learner)| on the tokens that the engine has just sampled
    pipeline     seconds of a step, synchronous and asynchronous, on a toy task that never sleeps; beside the
                 speed-up, (G + T) / max(G, T) of the synchronous run: both share one GPU, so it is no promise
"""

import argparse
import asyncio
import json
import math
import os
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]
import stand_ins  # noqa: E402

# Before anything of the package, also in the learner's process, which imports this file again.
STOOD_IN = stand_ins.install(force=bool(os.environ.get("GPU_CHECK_STAND_INS")))

import numpy as np  # noqa: E402
import torch  # noqa: E402
from transformers import Qwen2Config, Qwen2ForCausalLM  # noqa: E402

from agentrl.config.models import Config  # noqa: E402
from agentrl.hosting.client import Opening  # noqa: E402
from agentrl.messages import Message, Status, ToolSpec  # noqa: E402
from agentrl.pipeline.admission import Admission  # noqa: E402
from agentrl.pipeline.buffer import GroupBuffer  # noqa: E402
from agentrl.pipeline.rollouts import Rollouts  # noqa: E402
from agentrl.pipeline.run import TrainingRun  # noqa: E402
from agentrl.pipeline.stream import GroupStream  # noqa: E402
from agentrl.randomness import derive, stream  # noqa: E402
from agentrl.rollout.agent_loop import EpisodeSettings  # noqa: E402
from agentrl.rollout.conductor import Conductor  # noqa: E402
from agentrl.rollout.cross_policy import PolicyPool  # noqa: E402
from agentrl.rollout.engine import Sampling  # noqa: E402
from agentrl.rollout.policy import Policy, PolicyCard, load_policy, save_policy  # noqa: E402
from agentrl.rollout.rendering import create_renderer  # noqa: E402
from agentrl.rollout.tokenizer import train_tokenizer  # noqa: E402
from agentrl.rollout.trajectory import Trajectory  # noqa: E402
from agentrl.rollout.transformers_engine import TransformersEngine  # noqa: E402
from agentrl.tasks.base import Sample, Step  # noqa: E402
from agentrl.training.batch import Row, micro_batches  # noqa: E402
from agentrl.training.learner import ENGINE_TOLERANCE, Learner  # noqa: E402
from agentrl.training.process import LearnerProcess  # noqa: E402

SAY = ToolSpec("say", "Say it.", {"properties": {"text": {"type": "string"}}, "required": ["text"]})


@dataclass(frozen=True)
class Size:
    """How large everything is."""

    device: str
    dtype: str
    shape: dict
    episodes: int = 64
    length: int = 1024
    sampled: int = 320
    budget: int = 16384
    steps: int = 4
    slots: int = 256
    prompt: int = 256
    new: int = 256
    groups: int = 8
    members: int = 8
    turns: int = 12
    turn_tokens: int = 48
    pipeline_steps: int = 8
    matrix: int = 8192


GPU = Size(
    "cuda",
    "bf16",
    {
        "hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24, "vocab_size": 151936,
        "num_attention_heads": 14, "num_key_value_heads": 2, "max_position_embeddings": 4096,
    },
)  # fmt: skip
CPU = Size(
    "cpu",
    "fp32",
    {
        "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "vocab_size": 300,
        "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 512,
    },
    episodes=4, length=64, sampled=16, budget=512, steps=2, slots=4, prompt=8, new=8, groups=2,
    members=2, turns=3, turn_tokens=6, pipeline_steps=2, matrix=128,
)  # fmt: skip


def settings(size: Size, **training) -> Config:
    """Settings of all parts; `training`: further keys of that section."""
    return Config.model_validate(
        {
            "tasks": {"toy": {"factory": "toy:Toy"}},
            "training": {
                "start": "base", "groups_per_task": size.groups, "group_size": size.members,
                "max_tokens_per_microbatch": size.budget, "learning_rate": 1e-5, "warmup_steps": 0,
                "autocast": "bf16" if size.dtype == "bf16" else "none", "minibatches": 1,
                "snapshot_every": 10_000, **training,
            },
            "rollout": {
                "dtype": size.dtype, "max_total_tokens": size.shape["max_position_embeddings"] // 2,
                "max_new_tokens": size.turn_tokens, "concurrency": size.slots,
                "cross_policy": {"stale_ratio": 0.0},
            },
            "pipeline": {"schedule": "eager", "mode": "async"},
        }
    )  # fmt: skip


def make_policy(size: Size, folder: Path, *, own_vocabulary: bool) -> Policy:
    """Random weights in `folder`, sharper than a fresh model's so that log-probabilities can differ.

    `own_vocabulary`: as many rows as the toy's tokenizer has tokens; else as many as the shape says.
    """
    texts = ["You said that. Say 7 words. Go on, and stop when it is enough."] * 3
    tokenizer = train_tokenizer(texts, [SAY], 300)
    shape = {**size.shape, "tie_word_embeddings": True}
    if own_vocabulary:
        shape["vocab_size"] = len(tokenizer)
    torch.manual_seed(0)
    model = Qwen2ForCausalLM(Qwen2Config(**shape))
    with torch.no_grad():
        model.model.norm.weight.fill_(4.0)
    save_policy(folder, model.eval(), tokenizer, PolicyCard("compact", "tiny", {"random": True}))
    return load_policy(folder, [SAY])


def settle(size: Size) -> float:
    """Now, with nothing under way on the device."""
    if size.device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def best(size: Size, work, times: int = 5) -> float:
    """Least seconds of `work()`."""
    found = []
    for _ in range(times + 1):
        started = settle(size)
        work()
        found.append(settle(size) - started)
    return min(found[1:])


def limits(size: Size) -> dict[str, float]:
    """What the device does at best: FLOP/s of a matrix product, bytes/s of a copy (read and written)."""
    kind = torch.bfloat16 if size.dtype == "bf16" else torch.float32
    one = torch.randn(size.matrix, size.matrix, device=size.device, dtype=kind)
    other = torch.empty_like(one)
    flops = 2 * size.matrix**3 / best(size, lambda: torch.mm(one, one, out=other))
    large = torch.empty(size.matrix**2 * (8 if size.device == "cuda" else 1), device=size.device)
    target = torch.empty_like(large)
    copied = 2 * large.nbytes / best(size, lambda: target.copy_(large))
    return {"matmul_flops": flops, "copy_bytes_per_second": copied}


def step_flops(model, trajectories) -> float:
    """Forward and backward: 6 a weight and token, 12LHT² / 2 of causal attention, 6HV a scored token."""
    shape = model.config
    hidden, layers = shape.hidden_size, shape.num_hidden_layers
    body = sum(p.numel() for n, p in model.named_parameters() if "embed_tokens" not in n)
    lengths = [int(np.flatnonzero(t.loss_mask)[-1]) for t in trajectories]
    scored = sum(int(t.loss_mask.sum()) for t in trajectories)
    attention = sum(6 * layers * hidden * length**2 for length in lengths)
    return float(6 * body * sum(lengths) + attention + 6 * hidden * shape.vocab_size * scored)


def episodes(size: Size) -> list[Trajectory]:
    """Invented ones: two turns' worth of sampled tokens, rewards by halves of a group."""
    draws = np.random.default_rng(0)
    out = []
    for number in range(size.episodes):
        mask = np.zeros(size.length, bool)
        half = size.sampled // 2
        mask[size.length // 2 - half : size.length // 2] = True
        mask[-half:] = True
        spoke = np.where(mask, 0, -1)
        group, member = divmod(number, size.members)
        out.append(
            Trajectory(
                task="toy", split="train", index=group, group_id=group, member=member, seed=number,
                status=Status.COMPLETED, reward=float(member % 2), metrics={}, opening=[], turns=[],
                timings={}, roles=("current",),
                token_ids=draws.integers(8, size.shape["vocab_size"], size.length).astype(np.int32),
                loss_mask=mask,
                behaviour_logprobs=np.where(mask, -5.0, 0.0).astype(np.float32),
                # Of another version than the learner's, so that nothing is compared with it.
                policy_version=np.where(mask, 10**6, -1).astype(np.int32),
                policy_role=spoke.astype(np.int8),
                turn=(np.arange(size.length) * 2 // size.length).astype(np.int16),
            )
        )  # fmt: skip
    return out


def check_learner(size: Size, learner: Learner, limit: float) -> dict[str, float]:
    batch = episodes(size)
    learner.train_step(batch)
    seconds = []
    for _ in range(size.steps):
        started = settle(size)
        learner.train_step(batch)
        seconds.append(settle(size) - started)
    spent = sorted(seconds)[len(seconds) // 2]
    flops = step_flops(learner.model, batch) / spent
    return {
        "seconds": spent,
        "tokens_per_second": size.episodes * size.length / spent,
        "model_flops": flops,
        "limit_flops": limit,
        "mfu": flops / limit,
    }


def check_engine(size: Size, folder: Path, policy: Policy, limit: float):
    """Throughput, and the completions with their prompts."""
    engine = TransformersEngine(
        folder, slots=size.slots, max_tokens=size.prompt + size.new, dtype=size.dtype,
        device=size.device,
    )  # fmt: skip
    draws = np.random.default_rng(1)
    prompts = draws.integers(8, size.shape["vocab_size"], (size.slots, size.prompt)).tolist()

    async def play(new):
        async def one(number):
            sampling = Sampling(1.0, new, (), number)
            out = await engine.generate(prompts[number], sampling, session=number + 1)
            engine.release(number + 1)
            return out

        jobs = [asyncio.create_task(one(number)) for number in range(size.slots)]
        await asyncio.sleep(0)
        while engine.pending:
            engine.step()
            await asyncio.sleep(0)
        return await asyncio.gather(*jobs)

    asyncio.run(play(4))
    started = settle(size)
    completions = asyncio.run(play(size.new))
    spent = settle(size) - started
    shape, width = policy.model.config, 2 if size.dtype == "bf16" else 4
    head = shape.hidden_size // shape.num_attention_heads
    token = 2 * shape.num_hidden_layers * shape.num_key_value_heads * head * width
    held = size.slots * (size.prompt + size.new / 2) * token
    bound = size.slots / ((policy.model.num_parameters() * width + held) / limit)
    rate = size.slots * size.new / spent
    report = {
        "tokens_per_second": rate,
        "slots": size.slots,
        "limit_tokens_per_second": bound,
        "share": rate / bound,
    }
    return report, list(zip(prompts, completions, strict=True))


@torch.no_grad()
def check_agreement(size: Size, learner: Learner, spoken) -> dict[str, float]:
    rows = []
    for prompt, completion in spoken:
        start, new = len(prompt), len(completion.token_ids)
        weights, behaviour = np.zeros(start + new, np.float32), np.zeros(start + new, np.float32)
        weights[start:], behaviour[start:] = 1, completion.logprobs
        ids = np.array([*prompt, *completion.token_ids], np.int32)
        rows.append(Row(ids, weights, behaviour=behaviour))
    gaps = []
    for micro in micro_batches(rows, size.budget):
        micro = micro.to(learner.accelerator.device)
        scores, _ = learner.scorer(micro.input_ids, micro.select, micro.targets)
        gaps.append((scores[: micro.count] - micro.behaviour).abs())
    gap = torch.cat(gaps)
    return {
        "tokens": len(gap),
        "mean": float(gap.mean()),
        "max": float(gap.max()),
        "limit_mean": ENGINE_TOLERANCE[size.dtype],
    }


class ToyEpisode:
    """Lasts as many turns as its sample has, few or many; the reward is whether most words were long."""

    def __init__(self, sample: Sample, most: int) -> None:
        # A heavy tail, as agents' episodes have: half last a quarter of the longest or less.
        draw = stream(sample.index, "turns").random()
        self.turns = max(1, round(most * draw**2))
        self.heard: list[str] = []

    def step(self, message: Message) -> Step:
        self.heard.append(message.content or "".join(c.arguments for c in message.tool_calls))
        done = len(self.heard) >= self.turns
        reward = float(sum(map(len, self.heard)) % 2) if done else 0.0
        status = Status.COMPLETED if done else Status.RUNNING
        return Step((Message("user", "You said that. Go on."),), reward, done, status)


class ToyClient:
    """The toy's episodes in this process, without a pause."""

    def __init__(self, most: int) -> None:
        self._most, self._live, self._next = most, {}, 1

    async def start(self, sample: Sample, seed: int) -> Opening:
        number, self._next = self._next, self._next + 1
        self._live[number] = ToyEpisode(sample, self._most)
        return Opening(number, (Message("user", f"Say {sample.index} words."),), (SAY,))

    async def interact(self, session: int, message: Message) -> Step:
        return self._live[session].step(message)

    async def cancel(self, session: int) -> None:
        self._live.pop(session, None)


class Surroundings:
    """Publishes weights to a folder, keeps history rows, takes no snapshots."""

    def __init__(self, learner: LearnerProcess, folder: Path) -> None:
        self._learner, self._folder, self.rows, self._files = learner, folder, [], []

    async def train_step(self, trajectories):
        return await self._learner.train_step(trajectories)

    async def publish(self, version: int) -> Path:
        self._files.append((await self._learner.publish(self._folder, version)).path)
        return self._files[-1]

    async def log(self, step, values):
        return None

    async def save(self, step, rollouts, buffered):
        return None

    def prune_weights(self, versions) -> None:
        for path in self._files[:-1]:
            path.unlink(missing_ok=True)

    def step(self, step, trajectories, rows, report) -> None:
        self.rows += [row for row in rows if row["task"] == "*"]


async def run_pipeline(size: Size, folder: Path, mode: str, weights: Path) -> list[dict]:
    """Rows of the steps of a run in `mode`."""
    steps = size.pipeline_steps
    config = settings(size, steps=steps)
    config = Config.model_validate(
        {**_plain(config), "pipeline": {"schedule": "eager", "mode": mode}}
    )
    places = size.groups * size.members
    engine = TransformersEngine(
        folder, slots=places, max_tokens=config.rollout.max_total_tokens, dtype=size.dtype,
        device=size.device,
    )  # fmt: skip
    conductor = Conductor([engine], lockstep=False)
    driver = asyncio.create_task(engine.run())
    conductor.watch(driver)
    samples = [Sample("toy", "train", index) for index in range(1000)]
    tokens = load_policy(folder, [SAY])
    learner = await LearnerProcess.start(folder, config, 0)
    try:
        surroundings = Surroundings(learner, weights)
        staleness = 0 if mode == "sync" else config.pipeline.max_staleness
        groups = GroupStream({"toy": samples}, {"toy": size.groups}, derive(0, "toy"))
        rollouts = Rollouts(
            stream=groups,
            buffer=GroupBuffer(groups.groups_per_step, size.members),
            admission=Admission(staleness, places, steps),
            conductor=conductor,
            client=ToyClient(size.turns),
            pool=PolicyPool({"current": engine}),
            settings=EpisodeSettings(
                create_renderer("compact", tokens.tokenizer, [SAY]),
                max_new_tokens=size.turn_tokens,
                max_total_tokens=config.rollout.max_total_tokens,
            ),
            attempts=1,
        )
        run = TrainingRun(
            config, learner=surroundings, rollouts=rollouts, snapshots=surroundings,
            recorder=surroundings,
        )  # fmt: skip
        await run.run()
        return surroundings.rows
    finally:
        await conductor.close()
        driver.cancel()
        await asyncio.gather(driver, return_exceptions=True)
        await engine.close()
        await learner.close()


def _plain(config: Config) -> dict:
    return {name: getattr(config, name) for name in ("tasks", "training", "rollout")}


def check_pipeline(size: Size, folder: Path, scratch: Path) -> dict[str, float]:
    mean = {}
    for mode in ("sync", "async"):
        weights = scratch / mode
        weights.mkdir()
        rows = asyncio.run(run_pipeline(size, folder, mode, weights))
        # The first step warms up, and the last ones have nothing left to play.
        kept = rows[size.pipeline_steps // 4 : -(size.pipeline_steps // 4) or None]
        names = ("seconds", "seconds_generate", "seconds_train")
        mean[mode] = {name: sum(row[name] for row in kept) / len(kept) for name in names}
        mean[mode]["staleness_max"] = max(row["staleness_max"] for row in kept)
    generate, train = mean["sync"]["seconds_generate"], mean["sync"]["seconds_train"]
    return {
        "sync_seconds": mean["sync"]["seconds"],
        "sync_seconds_generate": generate,
        "sync_seconds_train": train,
        "async_seconds": mean["async"]["seconds"],
        "async_staleness_max": mean["async"]["staleness_max"],
        "speed_up": mean["sync"]["seconds"] / mean["async"]["seconds"],
        "limit_speed_up": (generate + train) / max(generate, train),
    }


def check(size: Size) -> dict:
    started = time.perf_counter()
    report: dict = {
        "device": torch.cuda.get_device_name() if size.device == "cuda" else "cpu",
        "torch": torch.__version__,
        "stood_in": STOOD_IN,
        "seconds": {},
    }

    def took(name):
        report["seconds"][name] = time.perf_counter() - started
        print(f"# {name} after {report['seconds'][name]:.0f} s", file=sys.stderr, flush=True)

    report["limits"] = limits(size)
    took("limits")
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "policy"
        policy = make_policy(size, folder, own_vocabulary=False)
        report["parameters"] = policy.model.num_parameters()
        bandwidth, flops = (report["limits"][k] for k in ("copy_bytes_per_second", "matmul_flops"))
        report["engine"], spoken = check_engine(size, folder, policy, bandwidth)
        took("engine")
        learner = Learner(policy, settings(size, steps=100), 0)
        report["agreement"] = check_agreement(size, learner, spoken)
        took("agreement")
        report["learner"] = check_learner(size, learner, flops)
        took("learner")
        learner.close()
        del learner, policy
        if size.device == "cuda":
            torch.cuda.empty_cache()
        small = Path(scratch) / "small"
        make_policy(size, small, own_vocabulary=True)
        report["pipeline"] = check_pipeline(size, small, Path(scratch))
        took("pipeline")
    return report


def lines(report: dict) -> list[str]:
    """Each figure with its limit beside it."""
    learner, engine = report["learner"], report["engine"]
    agreement, pipeline = report["agreement"], report["pipeline"]
    return [
        f"{report['device']}, torch {report['torch']}, {report['parameters'] / 1e6:.1f}M parameters"
        + (f"; stood in for: {', '.join(report['stood_in'])}" if report["stood_in"] else ""),
        f"learner    {learner['model_flops'] / 1e12:10.3f} TFLOP/s of {learner['limit_flops'] / 1e12:.3f}"
        f"   MFU {learner['mfu']:.1%}   {learner['tokens_per_second']:,.0f} tokens/s",
        f"engine     {engine['tokens_per_second']:10,.0f} tokens/s of "
        f"{engine['limit_tokens_per_second']:,.0f}   {engine['share']:.1%}   {engine['slots']} slots",
        f"agreement  {agreement['mean']:10.2e} mean |Δ log p|, at most {agreement['limit_mean']:.0e}"
        f"   max {agreement['max']:.2e}   {agreement['tokens']} tokens",
        f"pipeline   {pipeline['speed_up']:10.2f} times faster asynchronous, at most "
        f"{pipeline['limit_speed_up']:.2f}   {pipeline['sync_seconds']:.3f} s and "
        f"{pipeline['async_seconds']:.3f} s a step",
    ]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, default=Path("gpu-check.json"))
    parser.add_argument("--cpu", action="store_true", help="tiny, on the processor")
    arguments = parser.parse_args()
    if not arguments.cpu and not torch.cuda.is_available():
        sys.exit("error: no NVIDIA GPU here; --cpu does the same on a tiny model")
    report = check(CPU if arguments.cpu else GPU)
    arguments.out.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    print("\n".join(lines(report)))
    good = report["agreement"]["mean"] <= report["agreement"]["limit_mean"]
    if not good or not all(map(math.isfinite, report["pipeline"].values())):
        sys.exit("error: engine and learner disagree on the log-probabilities of equal weights")


if __name__ == "__main__":
    main()
