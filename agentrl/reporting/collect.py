"""One file each of all evaluated episodes, all training histories, and where they come from.

    python -m agentrl.reporting.collect results/mini --evaluations … --runs … --clones …

Name and seed are read from the paths that the workflow gives: `…/NAME/seedN…`. The files are named one
by one, never found by searching a folder: what an earlier configuration left there is not picked up
(invariant 13).
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.compute as pc
import pyarrow.parquet as pq

from agentrl.errors import AgentRLError, DataError
from agentrl.reporting.episodes import read_episodes, read_history


def collect(
    folder: Path,
    evaluations: Sequence[Path],
    runs: Sequence[Path] = (),
    clones: Sequence[Path] = (),
    starts: dict[str, str] | None = None,
) -> None:
    """Write `folder`/episodes.parquet, history.parquet and provenance.json.

    Args:
        evaluations: `…/ROW/seedN.parquet`, each with a sidecar `seedN.provenance.json`.
        runs: `…/RUN/seedN` with history.parquet, trajectories/ and provenance.json.
        clones: `…/CLONE/seedN` with warm_start.jsonl and provenance.json.
        starts: which policy each clone or run continued from.
    """
    folder.mkdir(parents=True, exist_ok=True)
    _write(read_episodes(evaluations), folder / "episodes.parquet")
    histories = []
    records = []
    for path in evaluations:
        facts = _read_json(path.with_suffix(".provenance.json"))
        records.append({**facts, "kind": "evaluation", **_name_and_seed(path.with_suffix(""))})
    for path in clones:
        facts = _read_json(path / "provenance.json")
        records.append({**facts, "kind": "policy", **_name_and_seed(path), **_clone_cost(path)})
    for path in runs:
        facts = _read_json(path / "provenance.json")
        history = pd.read_parquet(path / "history.parquet")
        place = _name_and_seed(path)
        cost = _run_cost(history, path / "trajectories")
        records.append({**facts, "kind": "policy", **place, **cost})
        histories.append(history.assign(run=place["name"], seed=place["seed"]))
    if histories:
        _write(pd.concat(histories, ignore_index=True), folder / "history.parquet")
        read_history(folder / "history.parquet")
    text = json.dumps({"starts": starts or {}, "records": records}, indent=1, sort_keys=True)
    (folder / "provenance.json").write_text(text + "\n", encoding="utf-8")


def budgets(provenance: dict[str, Any]) -> pd.DataFrame:
    """What training each policy cost: one row a policy, means over seeds.

    Columns: policy, start, steps, tokens (those its own training was fed, the environment's included),
    minutes, and tokens_in_all with those of the policies it continued from.
    """
    records = pd.DataFrame(
        [
            {"policy": record["name"], **{key: record[key] for key in _COSTS}}
            for record in provenance["records"]
            if record["kind"] == "policy"
        ],
        columns=["policy", *_COSTS],
    )
    costs = records.groupby("policy", sort=False)[list(_COSTS)].mean()
    costs["minutes"] = costs.pop("seconds") / 60
    starts: dict[str, str] = provenance["starts"]
    costs.insert(0, "start", [starts.get(str(name), "base") for name in costs.index])
    costs["tokens_in_all"] = [
        sum(costs["tokens"].get(name, 0.0) for name in _chain(str(policy), starts))
        for policy in costs.index
    ]
    return costs.reset_index()


def origin(provenance: dict[str, Any]) -> str:
    """One line: commits, versions and machines behind a result."""
    records = [record for record in provenance["records"] if "machine" in record]
    commits = sorted({_commit(record) for record in records})
    torch = sorted({str(record.get("versions", {}).get("torch", "?")) for record in records})
    machines = sorted({_machine(record.get("machine", {})) for record in records})
    return (
        f"Made at commit {', '.join(commits)}; torch {', '.join(torch)}; on {', '.join(machines)}."
    )


_COSTS = ("steps", "tokens", "seconds")


def _chain(policy: str, starts: dict[str, str]) -> list[str]:
    chain = [policy]
    while (start := starts.get(chain[-1])) is not None:
        chain.append(start)
    return chain


def _commit(record: dict[str, Any]) -> str:
    commit = record.get("commit")
    return (str(commit)[:10] if commit else "unknown") + (" (dirty)" if record.get("dirty") else "")


def _machine(machine: dict[str, Any]) -> str:
    gpus = machine.get("gpus") or []
    beside = f" with {len(gpus)} x {gpus[0]}" if gpus else ""
    return f"{machine.get('cores', '?')} cores of {machine.get('processor') or '?'}{beside}"


def _name_and_seed(path: Path) -> dict[str, Any]:
    match = re.fullmatch(r"seed(\d+)", path.name)
    if match is None:
        raise DataError(f"{path}: expected a path that ends in NAME/seedN")
    return {"name": path.parent.name, "seed": int(match.group(1))}


def _clone_cost(clone: Path) -> dict[str, float]:
    path = clone / "warm_start.jsonl"
    try:
        steps = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    except (OSError, ValueError) as error:
        raise DataError(f"{path} is not a readable record of steps: {error}") from None
    seconds = sum(step["seconds_expert"] + step["seconds_train"] for step in steps)
    return {"steps": len(steps), "tokens": sum(s["tokens"] for s in steps), "seconds": seconds}


def _run_cost(history: pd.DataFrame, trajectories: Path) -> dict[str, float]:
    tokens = 0
    for path in sorted(trajectories.glob("*.parquet")):
        lengths = pc.list_value_length(pq.read_table(path, columns=["token_ids"])["token_ids"])
        tokens += pc.sum(lengths).as_py() or 0
    steps, seconds = int(history["step"].nunique()), float(history["seconds"].sum())
    return {"steps": steps, "tokens": tokens, "seconds": seconds}


def _read_json(path: Path) -> dict[str, Any]:
    try:
        facts: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{path} is not a readable provenance file: {error}") from None
    return facts


def _write(frame: pd.DataFrame, path: Path) -> None:
    frame.to_parquet(path, index=False)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Collect results into one folder.")
    parser.add_argument("folder", type=Path)
    for name in ("evaluations", "runs", "clones"):
        parser.add_argument(f"--{name}", type=Path, nargs="*", default=[])
    parser.add_argument("--starts", type=json.loads, default={}, help="JSON: policy -> its start")
    given = parser.parse_args(arguments)
    try:
        collect(given.folder, given.evaluations, given.runs, given.clones, given.starts)
    except AgentRLError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
