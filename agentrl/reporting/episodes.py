"""Evaluation results and training histories, as read from Parquet and checked.

Invariants: an episode without a reward is an infrastructure failure and has no success (4); every
row and seed was measured with one policy version (12); nothing is counted twice. A file that breaks
one of them is refused by name, never averaged in.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pandas as pd

from agentrl.errors import DataError

KEY = ["row", "run_seed", "task", "split", "index", "repeat", "mode"]
COLUMNS = (
    *KEY,
    "level",
    "status",
    "reward",
    "success",
    "turns",
    "invalid_calls",
    "tokens",
    "policy_version",
)
"""One row an episode. `row`: the policy's name; `mode`: "sampled" or "greedy"; `tokens`: sampled."""
HISTORY_COLUMNS = (
    "run",
    "seed",
    "step",
    "task",
    "reward_mean",
    "success_mean",
    "sampled_tokens",
    "staleness_mean",
    "staleness_max",
    "stale_share",
    "seconds",
    "seconds_train",
    "seconds_wait",
)


def read_episodes(paths: Iterable[Path]) -> pd.DataFrame:
    """Evaluated episodes of all files, checked as one set; raises `DataError`."""
    frames = [_read(Path(path), COLUMNS) for path in paths]
    if not frames:
        raise DataError("no evaluation files to read")
    return check_episodes(pd.concat(frames, ignore_index=True))


def check_episodes(episodes: pd.DataFrame) -> pd.DataFrame:
    """The same frame, or a `DataError` that names the first broken rule and where."""
    twice = episodes[episodes.duplicated(KEY)]
    if len(twice):
        raise DataError(f"the same episode stands twice: {twice.iloc[0][KEY].to_dict()}")
    versions = episodes.groupby(["row", "run_seed"])["policy_version"].nunique()
    if (versions > 1).any():
        row, seed = versions[versions > 1].index[0]
        raise DataError(f"evaluation of {row}, seed {seed}: more than one policy version")
    failed = episodes["reward"].isna()
    if (failed != episodes["success"].isna()).any():
        raise DataError("an episode has a reward and no success, or the other way round")
    odd = episodes[~failed & ~episodes["success"].isin((0, 1))]
    if len(odd):
        raise DataError(f"success is neither 0 nor 1: {odd.iloc[0][[*KEY, 'success']].to_dict()}")
    return episodes


def read_history(path: Path) -> pd.DataFrame:
    """A collected training history: one row a run, seed, step and task ("*": the whole step)."""
    return _read(Path(path), HISTORY_COLUMNS)


def success_cells(episodes: pd.DataFrame) -> np.ndarray:
    """float[seeds, samples]: mean success over repeats, NaN where none counts. One task and mode."""
    table = episodes.pivot_table(
        index="run_seed", columns="index", values="success", aggfunc="mean", dropna=False
    )
    return table.to_numpy(dtype=float)


def _read(path: Path, columns: Iterable[str]) -> pd.DataFrame:
    try:
        frame = pd.read_parquet(path)
    except FileNotFoundError:
        raise DataError(f"{path} does not exist: run the workflow, or give another path") from None
    except (OSError, ValueError) as error:
        raise DataError(f"{path} is not a readable Parquet file: {error}") from None
    missing = [name for name in columns if name not in frame.columns]
    if missing:
        raise DataError(f"{path}: column {missing[0]!r} is missing")
    return frame
