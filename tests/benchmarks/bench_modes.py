"""Asynchronous beside synchronous and one-step-off, for real: `mini`'s settings on two cores.

Whole runs of the product - engine, learner process, ALFWorld and DB - that differ in `pipeline.mode` alone, one
after the other, from one policy; environments as they are, and with a log-normal latency of 0.2 to 2 s a turn
(95% of the turns; `slow_tasks.py`). Weights arrive as soon as the learner has them (`schedule: eager`: the
deterministic schedule waits for every live episode before each token, which a slow environment would
make a barrier). Groups a step are a quarter of mini's unless `--groups` says otherwise.

A step's seconds are from the run's history, the first step, in which everything starts, left out; of an
asynchronous run it is the time between two steps.

    OMP_NUM_THREADS=1 python tests/benchmarks/bench_modes.py [--policy DIR] [--steps 5] [--groups 3 5] [--quick]

`--policy`: where the runs start, a clone of scale mini (`results/mini/…`); without one a base policy is
cloned for `--clone-steps` first.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pandas as pd
import yaml

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
MODES = ("sync", "one-step-off", "async")
SLOW = {"alfworld": "slow_tasks:SlowAlfworld", "dbbench": "slow_tasks:SlowDBBench"}


def run(*arguments: object) -> None:
    done = subprocess.run(
        [str(Path(sys.executable).with_name("agentrl")), *map(str, arguments)],
        capture_output=True,
        text=True,
        env={
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")]),
        },
    )
    if done.returncode:
        raise SystemExit(f"{arguments[0]} failed:\n{done.stderr[-3000:]}")


def write_config(path: Path, overlay: dict) -> Path:
    """The settings of scale mini, as the command line takes them, with `overlay` on top."""
    from agentrl.config.load import merge, read_yaml

    settings = merge(
        read_yaml(ROOT / "config/config.yaml"), read_yaml(ROOT / "config/scales/mini.yaml")
    )
    del settings["clones"]  # of the workflow, which gives each run its start
    overlay = merge({"training": {"start": "base"}}, overlay)
    path.write_text(yaml.safe_dump(without_nulls(merge(settings, overlay))))
    return path


def without_nulls(settings: dict) -> dict:
    """An entry that is null is taken out, as the workflow does."""
    return {
        key: without_nulls(value) if isinstance(value, dict) else value
        for key, value in settings.items()
        if value is not None
    }


def start_policy(folder: Path, steps: int) -> Path:
    """A clone of its own, less than mini's: what matters here is how long its episodes are."""
    config = write_config(
        folder / "clone.yaml",
        {"warm_start": {"stages": [{"steps": steps, "warmup_steps": min(steps, 5)}]}},
    )
    common = ["--config", config, "--seed", 0]
    run("policy", "create", *common, "--output", folder / "base")
    run(
        "warm-start", *common, "--policy", folder / "base", "--state", folder / "ws.state",
        "--output", folder / "clone",
    )  # fmt: skip
    return folder / "clone"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--policy", type=Path)
    parser.add_argument("--clone-steps", type=int, default=60)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--groups", type=int, nargs=2, default=(3, 5), metavar=("ALFWORLD", "DB"))
    parser.add_argument("--latency", choices=("none", "slow", "both"), default="both")
    parser.add_argument("--quick", action="store_true", help="two steps, no latency, hardly cloned")
    options = parser.parse_args()
    if options.quick:
        options.steps, options.groups, options.clone_steps = 2, (1, 1), 3
        options.latency = "none"
    latencies = {"none": [False], "slow": [True], "both": [False, True]}[options.latency]
    alfworld, dbbench = options.groups
    print(
        f"{options.steps} steps of {8 * (alfworld + dbbench)} episodes ({alfworld} + {dbbench} groups); "
        f"{os.cpu_count()} cores"
    )
    print(
        f"{'environment':13}{'mode':14}{'s a step':>9}{'steps/min':>11}{'tokens/s':>10}{'learner':>9}"
        f"{'stale':>7}{'speed-up':>10}"
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        policy = options.policy or start_policy(folder, options.clone_steps)
        for slow in latencies:
            sync = None
            for mode in MODES:
                place = f"{mode}-{'slow' if slow else 'none'}"
                overlay = {
                    "training": {
                        "steps": options.steps,
                        "groups_per_task": {"alfworld": alfworld, "dbbench": dbbench},
                        "snapshot_every": 1000,
                    },
                    "pipeline": {"mode": mode, "schedule": "eager"},
                }
                if slow:
                    overlay["tasks"] = {task: {"factory": name} for task, name in SLOW.items()}
                config = write_config(folder / f"{place}.yaml", overlay)
                run(
                    "train", "--config", config, "--policy", policy, "--run", place, "--seed", 0,
                    "--state", folder / f"{place}.state", "--output", folder / place,
                )  # fmt: skip
                history = pd.read_parquet(folder / place / "history.parquet")
                rows = history[history["task"] == "*"].sort_values("step").iloc[1:]
                seconds = rows["seconds"].mean()
                sync = sync or seconds
                print(
                    f"{'0.2-2 s a turn' if slow else 'as it is':13}{mode:14}{seconds:9.2f}"
                    f"{60 / seconds:11.2f}{rows['sampled_tokens'].sum() / rows['seconds'].sum():10.0f}"
                    f"{rows['seconds_train'].sum() / rows['seconds'].sum():9.0%}"
                    f"{rows['staleness_max'].max():7.0f}{sync / seconds:10.2f}",
                    flush=True,
                )
    print(
        "learner: share of the time in which it works; speed-up: of steps, over sync of the same environment"
    )


if __name__ == "__main__":
    main()
