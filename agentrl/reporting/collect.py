"""One file each of all evaluated episodes, all training histories, and where they come from.

    python -m agentrl.reporting.collect results/mini --evaluations … --histories … --policies …

Run and seed are read from the paths that the workflow gives: `…/NAME/seedN…`. The files are named one
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

from agentrl.errors import AgentRLError, DataError
from agentrl.reporting.episodes import read_episodes


def collect(
    folder: Path,
    evaluations: Sequence[Path],
    histories: Sequence[Path] = (),
    policies: Sequence[Path] = (),
    starts: dict[str, str] | None = None,
) -> None:
    """Write `folder`/episodes.parquet, history.parquet and provenance.json.

    Args:
        evaluations: `…/ROW/seedN.parquet`, each with a sidecar `seedN.provenance.json`.
        histories: `…/RUN/seedN/history.parquet`.
        policies: `…/NAME/seedN/provenance.json` of clones and runs.
        starts: which policy each clone or run continued from.
    """
    folder.mkdir(parents=True, exist_ok=True)
    _write(read_episodes(evaluations), folder / "episodes.parquet")
    frames = []
    for path in histories:
        run, seed = _name_and_seed(path.parent)
        frames.append(pd.read_parquet(path).assign(run=run, seed=seed))
    if frames:
        _write(pd.concat(frames, ignore_index=True), folder / "history.parquet")
    sidecars = [path.with_suffix(".provenance.json") for path in evaluations]
    records = [
        _record(path, "evaluation", path.with_suffix("").with_suffix("")) for path in sidecars
    ]
    records += [_record(path, "policy", path.parent) for path in policies]
    text = json.dumps({"starts": starts or {}, "records": records}, indent=1, sort_keys=True)
    (folder / "provenance.json").write_text(text + "\n", encoding="utf-8")


def budgets(provenance: dict[str, Any]) -> pd.DataFrame:
    """What training each policy cost: one row a policy, means over seeds.

    Columns: policy, start, steps, episodes, tokens, minutes (its own), and tokens_in_all with those of
    the policies it continued from. A figure that a record does not hold is NaN.
    """
    records = pd.DataFrame(
        {"policy": record["name"], **{key: record.get(key) for key in _COSTS}}
        for record in provenance["records"]
        if record["kind"] == "policy"
    )
    if records.empty:
        return pd.DataFrame(columns=["policy", "start", *_COSTS[:-1], "minutes", "tokens_in_all"])
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
    records = provenance["records"]
    commits = sorted({_commit(record) for record in records})
    torch = sorted({str(record.get("versions", {}).get("torch", "?")) for record in records})
    machines = sorted({_machine(record.get("machine", {})) for record in records})
    return (
        f"Made at commit {', '.join(commits)}; torch {', '.join(torch)}; on {', '.join(machines)}."
    )


_COSTS = ("steps", "episodes", "tokens", "seconds")


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


def _name_and_seed(path: Path) -> tuple[str, int]:
    match = re.fullmatch(r"seed(\d+)", path.name)
    if match is None:
        raise DataError(f"{path}: expected a path that ends in NAME/seedN")
    return path.parent.name, int(match.group(1))


def _record(path: Path, kind: str, place: Path) -> dict[str, Any]:
    name, seed = _name_and_seed(place)
    try:
        facts: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{path} is not a readable provenance file: {error}") from None
    return {**facts, "kind": kind, "name": name, "seed": seed}


def _write(frame: pd.DataFrame, path: Path) -> None:
    frame.to_parquet(path, index=False)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Collect results into one folder.")
    parser.add_argument("folder", type=Path)
    for name in ("evaluations", "histories", "policies"):
        parser.add_argument(f"--{name}", type=Path, nargs="*", default=[])
    parser.add_argument("--starts", type=json.loads, default={}, help="JSON: policy -> its start")
    given = parser.parse_args(arguments)
    try:
        collect(given.folder, given.evaluations, given.histories, given.policies, given.starts)
    except AgentRLError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
