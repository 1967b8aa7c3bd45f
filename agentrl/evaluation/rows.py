"""What all evaluations share: which episodes there are, and how each becomes a row of a file."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from agentrl.config import Config
from agentrl.errors import DataError
from agentrl.provenance import write_provenance
from agentrl.randomness import derive
from agentrl.tasks.base import Sample, Task

log = logging.getLogger(__name__)

GREEDY, SAMPLED = "greedy", "sampled"


@dataclass(frozen=True, slots=True)
class Job:
    """One episode of an evaluation."""

    mode: str
    sample: Sample
    repeat: int
    seed: int


def jobs(config: Config, tasks: Mapping[str, Task], split: str, seed: int, mode: str) -> list[Job]:
    """Every episode of one mode: greedy once a sample, sampled `evaluation.repeats` times."""
    repeats = config.evaluation.repeats if mode == SAMPLED else 1
    out = []
    for name, task in tasks.items():
        samples = task.samples(split)
        if not len(samples):
            raise DataError(f"task {name!r}: split {split!r} has no samples")
        for index in range(min(len(samples), config.evaluation.samples)):
            sample = samples[index]
            for repeat in range(repeats):
                place = derive(seed, "evaluation", name, split, sample.index, repeat)
                out.append(Job(mode, sample, repeat, place))
    return out


def row(
    job: Job, status: str, reward: float | None, metrics: Mapping[str, float], tokens: int | None
) -> dict[str, Any]:
    """`tokens`: sampled ones; None where an API does not say."""
    return {
        "task": job.sample.task,
        "split": job.sample.split,
        "index": job.sample.index,
        "repeat": job.repeat,
        "mode": job.mode,
        "status": str(status),
        "reward": reward,
        "success": None if reward is None else float(reward >= 1.0),
        "turns": metrics.get("turns", 0.0),
        "invalid_calls": metrics.get("invalid_calls", 0.0),
        "tokens": tokens,
        "policy_version": 0,
    }


def write_rows(
    output: Path,
    rows: Sequence[Mapping[str, Any]],
    config: Config,
    tasks: Mapping[str, Task],
    *,
    name: str | Sequence[str],
    seed: int,
    started: float,
    **facts: Any,
) -> None:
    """Write `output` (columns of `reporting.episodes`), complete or not at all, and its provenance.

    `name`: of all rows, or one a row. `started` is a reading of `time.monotonic`; `facts` go into the
    provenance as they are.
    """
    called = name if isinstance(name, str) else ", ".join(dict.fromkeys(name))
    frame = pd.DataFrame(rows)
    frame.insert(0, "row", name)
    frame.insert(1, "run_seed", seed)
    frame.insert(3, "level", frame["task"].map({t: task.level for t, task in tasks.items()}))
    for column in ("reward", "success", "tokens"):  # where all are missing, they are numbers still
        frame[column] = pd.to_numeric(frame[column])
    output.parent.mkdir(parents=True, exist_ok=True)
    part = output.with_name(output.name + ".part")
    frame.to_parquet(part, index=False)
    part.replace(output)
    write_provenance(
        output.with_suffix(".provenance.json"),
        config.model_dump(mode="json", exclude_unset=True),
        row=called,
        seed=seed,
        episodes=len(frame),
        tokens=int(frame["tokens"].sum()),
        seconds=round(time.monotonic() - started, 1),
        **facts,
    )
    for one, own in frame.groupby("row", sort=False):
        means = own.groupby(["mode", "task"], sort=False)["success"].mean().reset_index()
        shown = [f"{mode} {task} {mean:.3f}" for mode, task, mean in means.itertuples(index=False)]
        log.info("%s: %s", one, ", ".join(shown))
