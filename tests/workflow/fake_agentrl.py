"""Stands in for the `agentrl` command where a test is about the workflow, not about training.

Writes made-up files of the right shape at once. `notebook run` and the checks of settings are real.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

sys.path[:0] = [str(Path.cwd()), os.environ["MADE_RESULTS"]]

if sys.argv[1:3] == ["images", "build"]:  # before the imports, which are slow
    from agentrl.images.contexts import describe

    describe(Path("envs"))[sys.argv[3]].write_manifest(Path(sys.argv[5]))
    sys.exit()

from made_results import (  # noqa: E402
    made_scaling,
    provenance_record,
    random_evaluation,
    write_clone,
    write_pass_at_k,
    write_run,
)

from agentrl.config import load, resolve  # noqa: E402
from agentrl.config.stages import to_yaml  # noqa: E402
from agentrl.reporting.notebook import run_notebook  # noqa: E402


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("command", nargs="+")
    for flag in ("config", "policy", "name", "run", "split", "state", "settings", "executed"):
        parser.add_argument(f"--{flag}")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--seed", type=int)
    parser.add_argument("-p", action="append", default=[])
    for flag in ("concurrency", "seeds", "steps"):
        parser.add_argument(f"--{flag}")
    given = parser.parse_args()
    match given.command:
        case ["config", "write"]:
            settings = json.loads(given.settings)
            resolve(settings)
            write(given.output, to_yaml(settings))
        case ["policy", "create"]:
            load([Path(given.config)])
            write(given.output / "config.json", "{}")
        case ["warm-start"]:
            load([Path(given.config)])
            write_clone(given.output)
        case ["train"]:
            assert Path(given.policy).is_dir()
            write_run(given.output, load([Path(given.config)]).tasks, given.seed)
            write(given.output / "policy" / "config.json", "{}")
        case ["evaluate"]:
            assert given.policy == "expert" or Path(given.policy).is_dir()
            given.output.parent.mkdir(parents=True, exist_ok=True)
            random_evaluation(given.name, given.seed).to_parquet(given.output)
            write(given.output.with_suffix(".provenance.json"), provenance_record())
        case ["bench", "scaling"]:
            write(given.output, made_scaling())
        case ["pass-at-k"]:
            names = [value.partition("=")[0] for value in sys.argv if "=" in value]
            write_pass_at_k(given.output, names, given.seed)
        case ["notebook", "run", "notebooks/tour.py"]:  # plays: needs a real policy
            write(Path(given.executed), "{}")
        case ["notebook", "run", source]:
            pairs = (item.partition("=") for item in given.p)
            run_notebook(Path(source), Path(given.executed), {name: v for name, _, v in pairs})
        case other:
            sys.exit(f"fake agentrl: {other}")


if __name__ == "__main__":
    main()
