"""The resume matrix: a training that is stopped at random moments and run again, beside the unbroken one.

Every run is the command `agentrl train` in processes of its own, on the settings of
`tests/integration/test_training_resume.py`. Three ways to stop it:

    SIGTERM     it ends its step, saves and leaves
    SIGKILL     it, not its learner, is killed; all that it wrote is still there
    power cut   killed, and what it had not synced is lost: names and contents, each by a throw of the
                dice, files torn or filled with zeros (`tests/lossy_disk.py`, which records the run and makes
                its folder what such a disk would hold; for this the learner is in the run's process)

A row says at which step it was stopped, from which it went on, and whether samples (as a multiset), lengths
of trajectories (as a distribution), the policy's bytes, and then everything but clocks, are those of the
unbroken run; `stale` is the oldest token trained, which `pipeline.max_staleness` (2) limits.

    OMP_NUM_THREADS=1 python tests/benchmarks/bench_resume.py [--stops 3] [--steps 8] [--seed 0] [--quick]
"""

import argparse
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS.parent), str(TESTS / "integration")]

WAYS = ("SIGTERM", "SIGKILL", "power cut")
BOUND = 2


def cut_run(root: Path, after: Path, changes: int, seed: int, arguments: list[str]) -> None:
    """Run `agentrl` and cut the power at the `changes`-th change of the disk after `after` appeared.

    What is left of `root` is put beside it, in `root.left`; the process ends by SIGKILL.
    """
    from agentrl.cli import main
    from agentrl.pipeline import assembly
    from agentrl.training.process import LocalLearner
    from tests.lossy_disk import Recorder, disks, write_tree

    assembly.LearnerProcess = LocalLearner
    waited = 0

    def before(recorder: Recorder) -> None:
        nonlocal waited
        waited += after.exists()
        if waited != changes:
            return
        draws = random.Random(seed)
        *_, disk = disks(recorder.events, recorder.folders)
        kept = [draws.random() < 0.5 for _ in disk.pending]
        contents = {node: draws.choice(disk.survivors_of(node)) for node in disk.dirty}
        recorder.before = lambda _: None
        write_tree(root.with_name(f"{root.name}.left"), disk.left(kept, contents))
        os.kill(os.getpid(), signal.SIGKILL)

    sys.argv = ["agentrl", *arguments]
    with Recorder(root, before):
        main()


def stopped(place, name: str, way: str, step: int, draws: random.Random) -> str:
    """Stop a run after `step` has been recorded, run it again; what the second said."""
    if way == "power cut":
        root = place.folder / name.partition("/")[0]
        after = place.folder / f"{name}.state" / "trajectories" / f"step-{step:06d}.parquet"
        # A step of this size changes the disk about sixty times, a snapshot included.
        changes, seed = draws.randint(1, 60), draws.randrange(2**32)
        command = [sys.executable, __file__, "--cut", root, after, changes, seed, "--"]
        done = subprocess.run(
            [*map(str, command), *place.command(name)[1:]],
            capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"},
        )  # fmt: skip
        if done.returncode == -signal.SIGKILL:
            shutil.rmtree(root)
            root.with_name(f"{root.name}.left").rename(root)
        elif done.returncode:
            raise SystemExit(done.stderr[-2000:])
    else:
        process = place.begin(name)
        place.wait_for_step(name, step)
        time.sleep(draws.random() * 0.5)
        process.send_signal(getattr(signal, way))
        process.wait()
    if (place.folder / name / "provenance.json").exists() and not any(
        place.folder.glob(f"{name}.state/snapshot-*")
    ):
        return "(had ended)"
    again = place.train(name)
    if again.returncode:
        raise SystemExit(f"{way} at step {step}: the second run failed:\n{again.stderr[-2000:]}")
    found = re.search(r"resume from step (\d+)", again.stderr)
    return f"step {found[1]}" if found else "the start"


def compared(whole: Path, other: Path) -> tuple[dict[str, bool], float]:
    import pandas as pd
    from test_training_resume import assert_same_run

    from agentrl.rollout.trajectory_io import read_trajectories

    samples, lengths, policies = [], [], []
    for folder in (whole, other):
        found = read_trajectories(folder / "trajectories")
        samples.append(Counter((t.task, t.index, t.key, t.seed) for t in found))
        lengths.append(Counter(len(t.token_ids) for t in found))
        policies.append((folder / "policy" / "model.safetensors").read_bytes())
    same = {
        "samples": samples[0] == samples[1],
        "lengths": lengths[0] == lengths[1],
        "policy": policies[0] == policies[1],
        "everything": True,
    }
    try:
        assert_same_run(whole, other)
    except AssertionError:
        same["everything"] = False
    history = pd.read_parquet(other / "history.parquet")
    return same, float(history["staleness_max"].max())


def main() -> None:
    if "--cut" in sys.argv[:2]:
        root, after, changes, seed = sys.argv[2:6]
        cut_run(Path(root), Path(after), int(changes), int(seed), sys.argv[7:])
        return
    parser = argparse.ArgumentParser()
    parser.add_argument("--stops", type=int, default=3, help="of each kind")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="one stop of each kind, three steps")
    options = parser.parse_args()
    stops, steps = (1, 3) if options.quick else (options.stops, options.steps)

    from test_training_resume import SETTINGS, Place, agentrl

    draws = random.Random(options.seed)
    print(f"{steps} steps of 9 episodes, a snapshot every {2 if steps > 3 else 1}")
    print(
        f"{'stopped by':12}{'after step':>11}{'went on from':>14}{'samples':>9}{'lengths':>9}"
        f"{'policy':>8}{'everything':>12}{'stale':>7}"
    )
    with tempfile.TemporaryDirectory() as folder:
        place = Place(Path(folder))
        settings = SETTINGS.replace("steps: 20,", f"steps: {steps}, start: base,")
        settings = settings.replace("snapshot_every: 3", f"snapshot_every: {2 if steps > 3 else 1}")
        place.config.write_text(settings)
        subprocess.run(
            agentrl("policy", "create", "--config", place.config, "--seed", 5,
                    "--output", place.folder / "start"),
            check=True, capture_output=True,
        )  # fmt: skip
        done = place.train("whole")
        if done.returncode:
            raise SystemExit(done.stderr[-2000:])
        good = 0
        for number in range(stops):
            for way in WAYS:
                step = draws.randrange(steps - 1)
                name = f"{way.replace(' ', '-')}-{number}/run"
                (place.folder / name).parent.mkdir()
                resumed = stopped(place, name, way, step, draws)
                same, stale = compared(place.folder / "whole", place.folder / name)
                good += all(same.values()) and stale <= BOUND
                said = {key: "equal" if value else "OTHER" for key, value in same.items()}
                print(
                    f"{way:12}{step:>11}{resumed:>14}{said['samples']:>9}{said['lengths']:>9}"
                    f"{said['policy']:>8}{said['everything']:>12}{stale:>7.0f}",
                    flush=True,
                )
        print(f"{good} of {stops * len(WAYS)} are the unbroken run (aim: all)")


if __name__ == "__main__":
    main()
