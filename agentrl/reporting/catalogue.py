"""Which recorded trajectories a folder of results holds, without reading their tokens.

`ROOT/…/NAME/seedN/trajectories/*.parquet`, the same places under `results/SCALE` and `published/SCALE`.
All runs with one run seed meet the same samples in the same order (`agentrl.pipeline.stream`), so two
policies can be compared on one sample.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from agentrl.errors import DataError
from agentrl.messages import Status
from agentrl.rollout.trajectory_io import read_trajectories, write_trajectories

CURRENT, STALE = "current", "stale"
"""Of `rollout.cross_policy`, which would load torch."""
SAMPLE = ["seed", "task", "split", "index"]
COLUMNS = (
    "policy",
    *SAMPLE,
    "step",
    "group_id",
    "member",
    "status",
    "reward",
    "turns",
    "sampled",
    "stale_turns",
    "file",
    "row",
)
"""One row a trajectory. `policy`: the run, or those who spoke where models of several names did; `step`: from
the file's name, -1 where it has none; `file` and `row`: where it stands."""
_READ = (
    "task",
    "split",
    "index",
    "group_id",
    "member",
    "status",
    "reward",
    "roles",
    "turns",
    "metrics",
)


def catalogue(root: Path, files: int | None = None) -> pd.DataFrame:
    """`COLUMNS` of every trajectory below `root`, in the order of paths.

    Args:
        files: of each folder of trajectories at most so many files: the first, the last, and some
            evenly between; None: all.

    Raises `DataError` that names a file which holds no trajectories.
    """
    rows: list[dict[str, Any]] = []
    for folder in sorted(root.glob("**/seed*/trajectories")):
        found = re.fullmatch(r"seed(\d+)", folder.parent.name)
        if found is None:
            continue
        for path in _some(sorted(folder.glob("*.parquet")), files):
            rows += _rows(path, folder.parent.parent.name, int(found.group(1)))
    return pd.DataFrame(rows, columns=list(COLUMNS))


def pairs(episodes: pd.DataFrame, first: str, second: str) -> pd.DataFrame:
    """Samples that both policies played, the most different rewards first.

    Columns: those of `SAMPLE`, then `first`, `second` (numbers of one trajectory of each, in the rows'
    index) and their rewards. Of several trajectories of a sample, those with the same step and member are
    put together as far as they go, then the earliest of each.
    """
    left, right = (episodes[episodes["policy"] == name] for name in (first, second))
    if left.empty or right.empty:
        return pd.DataFrame(columns=[*SAMPLE, "first", "second", "reward_first", "reward_second"])
    both = left.assign(first=left.index).merge(
        right.assign(second=right.index), on=SAMPLE, suffixes=("_first", "_second")
    )
    same = (both["step_first"] == both["step_second"]) & (
        both["member_first"] == both["member_second"]
    )
    gap = (both["reward_first"].fillna(0) - both["reward_second"].fillna(0)).abs()
    both = both.assign(unlike=~same, gap=gap).sort_values(
        ["gap", "unlike", "first", "second"], ascending=[False, True, True, True]
    )
    one = both.drop_duplicates(SAMPLE)
    columns = [*SAMPLE, "first", "second", "reward_first", "reward_second"]
    return one[columns].reset_index(drop=True)


def examples(episodes: pd.DataFrame, samples: int = 2) -> pd.DataFrame:
    """Rows worth shipping: of each task the same few samples for every policy, at their first and last step.

    Of each sample and step the episode with the most and the one with the least reward. Samples whose
    rewards differ most come first.
    """
    if episodes.empty:
        return episodes
    ends = episodes.groupby(["policy", "seed"])["step"].agg(["min", "max"]).reset_index()
    at = episodes.reset_index(names="number").merge(ends, on=["policy", "seed"])
    at = at[(at["step"] == at["min"]) | (at["step"] == at["max"])]
    spread = at.groupby([*SAMPLE, "step"])["reward"].agg(lambda found: found.max() - found.min())
    policies = at.groupby([*SAMPLE, "step"])["policy"].nunique()
    worth = pd.DataFrame({"policies": policies, "spread": spread.fillna(0.0)}).reset_index()
    worth = worth.sort_values(
        ["policies", "spread", *SAMPLE], ascending=[False, False, *[True] * len(SAMPLE)]
    )
    chosen = worth.groupby(["seed", "task", "step"], sort=False).head(samples)
    at = at.merge(chosen[[*SAMPLE, "step"]], on=[*SAMPLE, "step"])
    at = at.sort_values(["reward", "number"], ascending=[False, True])
    each = at.groupby([*SAMPLE, "step", "policy"], sort=False)["number"]
    return episodes.loc[sorted(set(each.first()) | set(each.last()))]


def copy_examples(results: Path, published: Path, samples: int = 2) -> list[Path]:
    """Write the `examples` of the first seed of `results` to the same places below `published`."""
    found = catalogue(results, files=2)
    chosen = examples(found[found["seed"] == found["seed"].min()], samples)
    written = []
    for name, rows in chosen.groupby("file", sort=True):
        source = Path(str(name))
        read = read_trajectories(source)
        target = published / source.relative_to(results)
        write_trajectories(target, [read[row] for row in rows["row"]])
        written.append(target)
    return written


def _some(paths: Sequence[Path], count: int | None) -> list[Path]:
    if count is None or len(paths) <= count:
        return list(paths)
    last = len(paths) - 1
    return [paths[round(place * last / max(count - 1, 1))] for place in range(count)]


def _rows(path: Path, run: str, seed: int) -> list[dict[str, Any]]:
    try:
        lines = pq.read_table(path, columns=list(_READ)).to_pylist()
    except (OSError, KeyError, pa.ArrowException) as error:
        raise DataError(f"{path} holds no trajectories: {error}") from None
    step = re.search(r"(\d+)$", path.stem)
    rows = []
    for number, line in enumerate(lines):
        turns = json.loads(line.pop("turns"))
        roles = line.pop("roles")
        metrics = {pair["name"]: pair["value"] for pair in line.pop("metrics")}
        spoken = [turn["role"] for turn in turns]
        named = [role for role in roles if role in spoken]
        rows.append(
            {
                **line,
                "policy": run if set(roles) <= {CURRENT, STALE} else " + ".join(named),
                "seed": seed,
                "step": int(step.group(1)) if step else -1,
                "status": str(Status(line["status"])),
                "turns": len(turns),
                "sampled": int(metrics.get("sampled_tokens", 0)),
                "stale_turns": spoken.count(STALE),
                "file": str(path),
                "row": number,
            }
        )
    return rows
