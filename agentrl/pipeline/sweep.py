"""`agentrl bench scaling`: throughput by mode, environment latency and concurrency, as CSV."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from agentrl.errors import ConfigError
from agentrl.pipeline.timed import MODES, Load, measure

LATENCIES = (0.0, 0.1, 1.0)
"""Seconds: a generated task in this process, a database server, a container."""
CONCURRENCIES = (4, 8, 16, 32, 64)
COLUMNS = (
    "mode",
    "latency",
    "concurrency",
    "seed",
    "steps",
    "tokens",
    "seconds",
    "tokens_per_second",
    "learner_idle",
    "staleness_max",
)


def sweep(
    latencies: Sequence[float], concurrencies: Sequence[int], seeds: Sequence[int], steps: int
) -> Iterator[dict[str, Any]]:
    """One row of `COLUMNS` a mode, latency, concurrency and seed; every mode plays the same episodes."""
    if min(latencies) < 0 or min(concurrencies) < 1 or steps < 1:
        raise ConfigError(
            "latencies are at least 0, concurrencies and steps at least 1: "
            f"not {list(latencies)}, {list(concurrencies)}, {steps}"
        )
    for latency, concurrency, mode, seed in product(latencies, concurrencies, MODES, seeds):
        found = measure(Load(mode, latency, concurrency, steps), seed)
        yield {
            "mode": mode,
            "latency": latency,
            "concurrency": concurrency,
            "seed": seed,
            "steps": steps,
            "tokens": found.tokens,
            "seconds": f"{found.seconds:.4f}",
            "tokens_per_second": f"{found.tokens_per_second:.2f}",
            "learner_idle": f"{found.learner_idle:.4f}",
            "staleness_max": f"{found.staleness_max:g}",
        }


def write_csv(path: Path, rows: Iterator[dict[str, Any]]) -> None:
    """Complete or not there at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    with part.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        for row in rows:
            writer.writerow(row)
    part.replace(path)
