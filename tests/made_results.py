"""Made-up result files of the right shape, for tests of what reads them. Never committed as results."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from made_trajectories import trajectory

from agentrl.rollout.trajectory_io import write_trajectories

RATES = {
    "base": {"alfworld": 0.02, "dbbench": 0.01},
    "expert": {"alfworld": 1.0, "dbbench": 1.0},
    "cloned": {"alfworld": 0.4, "dbbench": 0.55},
    "multi-task": {"alfworld": 0.6, "dbbench": 0.7},
    "single-alfworld": {"alfworld": 0.55, "dbbench": 0.3},
    "single-dbbench": {"alfworld": 0.1, "dbbench": 0.72},
}


def evaluation(
    row: str,
    outcomes: Mapping[str, Iterable[float | None]],
    *,
    seed: int = 0,
    mode: str = "sampled",
    repeat: int = 0,
) -> pd.DataFrame:
    """One evaluation; `outcomes[task]` lists each sample's success, None for a failed episode."""
    return pd.DataFrame(
        {
            "row": row,
            "run_seed": seed,
            "task": task,
            "level": "easy",
            "split": "std",
            "index": index,
            "repeat": repeat,
            "mode": mode,
            "status": "completed" if outcome is not None else "task error",
            "reward": np.nan if outcome is None else float(outcome),
            "success": np.nan if outcome is None else float(outcome),
            "turns": 4,
            "invalid_calls": 0,
            "tokens": 40,
            "policy_version": 3,
        }
        for task, results in outcomes.items()
        for index, outcome in enumerate(results)
    )


def random_evaluation(row: str, seed: int = 0, samples: int = 40) -> pd.DataFrame:
    """Both modes, with the success rates of `RATES` (0.3 for a name it does not have)."""
    draws = np.random.default_rng([seed, *row.encode()])
    rates = RATES.get(row, {"alfworld": 0.3, "dbbench": 0.3})
    return pd.concat(
        evaluation(
            row,
            {task: (draws.random(samples) < rate).astype(float) for task, rate in rates.items()},
            seed=seed,
            mode=mode,
        )
        for mode in ("sampled", "greedy")
    )


def training_history(tasks: Iterable[str], seed: int = 0, steps: int = 12) -> pd.DataFrame:
    """Rising curves with the columns that `agentrl.pipeline.history` writes."""
    draws = np.random.default_rng([seed, 7])
    rows = []
    for step in range(steps):
        for task in (*tasks, "*"):
            success = 0.2 + 0.5 * step / steps + 0.05 * float(draws.standard_normal())
            rows.append(
                {
                    "step": step,
                    "task": task,
                    "version": step,
                    "episodes": 64,
                    "reward_mean": success,
                    "success_mean": success,
                    "turns_mean": 5.0,
                    "invalid_calls": 0.5,
                    "truncated": 3,
                    "failures": 0,
                    "sampled_tokens": 2000 + 10 * step,
                    "staleness_mean": min(step, 1) * 0.8,
                    "staleness_max": float(min(step, 2)),
                    "stale_share": 0.25,
                    "dead_groups": 2,
                }
            )
            if task == "*":
                learner = {"loss": 0.1, "clip_fraction": 0.01, "ratio_mean": 1.0}
                timings = {"seconds_generate": 2.0, "seconds_train": 1.0, "seconds_wait": 0.2}
                timings["seconds"] = 3.2
                rows[-1] |= learner | timings | {"kl_behaviour": 0.001, "grad_norm": 0.4}
    return pd.DataFrame(rows)


def provenance_record(**facts: object) -> str:
    """A sidecar as `agentrl.provenance` writes it."""
    record = {
        "commit": "0123456789abcdef0123456789abcdef01234567",
        "dirty": False,
        "versions": {"torch": "2.13.0"},
        "machine": {"cores": 2, "processor": "Test CPU", "gpus": []},
    }
    return json.dumps(record | facts)


def write_run(folder: Path, tasks: Iterable[str], seed: int = 0) -> Path:
    """History, provenance and one shard of trajectories (600 tokens) of a training run."""
    names = list(tasks)
    played = [
        trajectory(task=names[i % len(names)], index=i, group_id=i, padding=195) for i in range(3)
    ]
    write_trajectories(folder / "trajectories" / "step-000000.parquet", played)
    training_history(names, seed).to_parquet(folder / "history.parquet")
    (folder / "provenance.json").write_text(provenance_record(run=folder.parent.name))
    return folder


def write_pass_at_k(folder: Path, policies: Sequence[str], seed: int = 0) -> Path:
    """Four attempts at each of six samples by two policies and their mixture."""
    draws = np.random.default_rng([seed, 11])
    rows = [*policies, "mixture"]
    parts = [
        evaluation(
            row,
            {task: (draws.random(6) < 0.3).astype(float) for task in ("alfworld", "dbbench")},
            seed=seed,
            repeat=attempt,
        )
        for row in rows
        for attempt in range(4)
    ]
    folder.mkdir(parents=True, exist_ok=True)
    pd.concat(parts, ignore_index=True).to_parquet(folder / "episodes.parquet")
    (folder / "episodes.provenance.json").write_text(provenance_record())
    spoken = [trajectory(roles=policies, speakers=(name, name)) for name in policies]
    write_trajectories(folder / "trajectories" / "attempts.parquet", spoken)
    return folder


def made_scaling() -> str:
    """The CSV of `agentrl bench scaling`, made up."""
    lines = ["mode,latency,concurrency,seed,tokens_per_second,learner_idle"]
    for mode, speed in (("sync", 100), ("one-step-off", 150), ("async", 200)):
        for latency in (0.0, 1.0):
            lines += [
                f"{mode},{latency},{n},{seed},{n * speed + seed},0.5"
                for n in (4, 16)
                for seed in (0, 1)
            ]
    return "\n".join(lines) + "\n"


def write_clone(folder: Path, steps: int = 4) -> Path:
    """The record of steps (300 tokens, 1.5 seconds each) and the provenance that lie beside a clone's weights."""
    folder.mkdir(parents=True, exist_ok=True)
    step = json.dumps({"tokens": 300, "seconds_expert": 0.5, "seconds_train": 1.0})
    (folder / "warm_start.jsonl").write_text((step + "\n") * steps)
    (folder / "provenance.json").write_text(provenance_record())
    return folder


def write_collected(folder: Path, seeds: int = 1) -> Path:
    """`episodes.parquet`, `history.parquet`, `provenance.json` as the collect rule leaves them."""
    from agentrl.reporting.collect import collect

    runs = {
        "multi-task": ("alfworld", "dbbench"),
        "single-alfworld": ("alfworld",),
        "single-dbbench": ("dbbench",),
    }
    evaluations = []
    for seed in range(seeds):
        for row in RATES:
            path = folder / "evaluate" / row / f"seed{seed}.parquet"
            path.parent.mkdir(parents=True, exist_ok=True)
            random_evaluation(row, seed).to_parquet(path)
            path.with_suffix(".provenance.json").write_text(provenance_record())
            evaluations.append(path)
    trained = [
        write_run(folder / "train" / run / f"seed{seed}", tasks, seed)
        for seed in range(seeds)
        for run, tasks in runs.items()
    ]
    clones = [write_clone(folder / "policies" / "cloned" / f"seed{seed}") for seed in range(seeds)]
    starts = {"cloned": "base", **dict.fromkeys(runs, "cloned")}
    collect(folder, evaluations, trained, clones, starts)
    return folder
