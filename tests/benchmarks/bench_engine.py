"""The embedded engine against plain batched `generate`, on the same multi-turn work.

Both play the same sessions: equal prompts, equal replies, equally many tokens a turn. `generate`
computes every prompt anew, left-padded, and waits for the longest completion of its batch; the
engine keeps keys and values, and a session goes on as soon as its own turn is over. The rounds
alternate, the best of each counts, seconds are those of the thread's processor.

    python tests/benchmarks/bench_engine.py [--sessions 64] [--turns 6] [--rounds 3]
"""

from __future__ import annotations

import argparse
import asyncio
import random
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from transformers.utils import logging

from agentrl.config.models import PolicyConfig
from agentrl.messages import ToolSpec
from agentrl.rollout.engine import Sampling
from agentrl.rollout.policy import create_tiny_policy, load_policy
from agentrl.rollout.transformers_engine import TransformersEngine

FIRST, NEW, REPLY = (45, 75), (4, 16), (14, 30)
"""Tokens of an opening, of a completion, of a reply: the ranges of mini's ALFWorld episodes."""


class Work:
    """What every session says and hears, fixed beforehand."""

    def __init__(self, sessions: int, turns: int, vocabulary: int) -> None:
        numbers = random.Random(0)

        def ids(bounds: tuple[int, int]) -> list[int]:
            return [numbers.randrange(8, vocabulary) for _ in range(numbers.randint(*bounds))]

        self.openings = [ids(FIRST) for _ in range(sessions)]
        self.replies = [[ids(REPLY) for _ in range(turns)] for _ in range(sessions)]
        self.lengths = [[numbers.randint(*NEW) for _ in range(turns)] for _ in range(sessions)]
        self.sessions, self.turns = range(sessions), range(turns)
        self.tokens = sum(map(sum, self.lengths))


def play_engine(engine: TransformersEngine, work: Work) -> None:
    async def session(number: int) -> None:
        ids = list(work.openings[number])
        for turn in work.turns:
            sampling = Sampling(1.0, work.lengths[number][turn], (), number)
            completion = await engine.generate(ids, sampling, session=number + 1)
            ids += completion.token_ids + work.replies[number][turn]
        engine.release(number + 1)

    async def play() -> None:
        tasks = [asyncio.create_task(session(number)) for number in work.sessions]
        await asyncio.sleep(0)
        while engine.pending:
            engine.step()
            await asyncio.sleep(0)
        await asyncio.gather(*tasks)

    asyncio.run(play())


def play_generate(model: Any, work: Work) -> None:
    told = [list(opening) for opening in work.openings]
    for turn in work.turns:
        width = max(map(len, told))
        ids = torch.tensor([[0] * (width - len(one)) + one for one in told])
        mask = torch.tensor([[0] * (width - len(one)) + [1] * len(one) for one in told])
        longest = max(work.lengths[number][turn] for number in work.sessions)
        with torch.inference_mode():
            out = model.generate(
                ids, attention_mask=mask, do_sample=True, top_k=0, max_new_tokens=longest,
                min_new_tokens=longest, pad_token_id=0,
            )  # fmt: skip
        for number in work.sessions:
            new = out[number, width : width + work.lengths[number][turn]].tolist()
            told[number] += new + work.replies[number][turn]


def seconds(play: Callable[[], None]) -> float:
    started = time.thread_time()
    play()
    return time.thread_time() - started


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--sessions", type=int, default=64)
    parser.add_argument("--turns", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    logging.disable_progress_bar()
    tool = ToolSpec("say", "", {"properties": {"text": {"type": "string"}}, "required": ["text"]})
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "policy"
        words = " ".join(f"word{number}" for number in range(1050))
        create_tiny_policy(PolicyConfig(), [words] * 2, [tool], 0, path)
        model = load_policy(path).model
        engines = {
            kind: TransformersEngine(
                path, slots=arguments.sessions, max_tokens=768, threads=1, decoder=kind
            )
            for kind in ("own", "transformers")
        }
    work = Work(arguments.sessions, arguments.turns, model.config.vocab_size)
    plays: dict[str, Callable[[], None]] = {
        "generate": lambda: play_generate(model, work),
        "engine, library's decoder": lambda: play_engine(engines["transformers"], work),
        "engine": lambda: play_engine(engines["own"], work),
    }
    best = dict.fromkeys(plays, float("inf"))
    for _ in range(arguments.rounds):
        for name, play in plays.items():
            best[name] = min(best[name], seconds(play))
    print(
        f"{arguments.sessions} sessions, {arguments.turns} turns, {work.tokens} sampled tokens, "
        f"{model.num_parameters():,} parameters, 1 thread"
    )
    for name, spent in best.items():
        ratio = best["generate"] / spent
        print(f"{name:26} {work.tokens / spent:8.0f} tokens/s   x{ratio:.2f}")
    pure = engines["own"]

    async def decode() -> None:
        for number in work.sessions:
            task = pure.generate(work.openings[number], Sampling(1.0, 200), session=number + 1)
            asyncio.create_task(task)  # noqa: RUF006 (given up when the loop ends)
        await asyncio.sleep(0)
        pure.step()
        times = []
        for _ in range(100):
            started = time.thread_time()
            pure.step()
            times.append(time.thread_time() - started)
        for number in work.sessions:
            pure.release(number + 1)
        spent = sorted(times)[len(times) // 2]
        print(
            f"decode alone, {arguments.sessions} rows: {spent * 1e3:.2f} ms a step, "
            f"{arguments.sessions / spent:.0f} tokens/s"
        )

    asyncio.run(decode())


if __name__ == "__main__":
    main()
