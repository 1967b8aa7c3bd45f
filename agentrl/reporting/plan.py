"""What a command would run, and about how long: Snakemake's list of jobs, timed by published results.

A job is timed by its namesake in `published/SCALE/provenance.json`; a variant by `multi-task`. Times
scale with the work that settings ask for: steps times episodes a step of a training, steps of a clone,
episodes of an evaluation. They are of the machine and code that made the published numbers, and do not
know that a changed policy or task plays longer or shorter episodes.
"""

from __future__ import annotations

import csv
import json
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from rich.table import Table

from agentrl.config import Config, resolve
from agentrl.config.load import read_yaml
from agentrl.config.stages import MULTI_TASK, training_runs
from agentrl.config.variants import merge
from agentrl.errors import AgentRLError

NOTEBOOK_SECONDS = 8.0
SETUP_SECONDS = 4.0
"""Of a job that nothing is known of; both are of starting Python and loading libraries."""


@dataclass(frozen=True, slots=True)
class Job:
    """One that would run; `name` (of a policy or stage) and `seed` are "" where it has none."""

    rule: str
    name: str = ""
    seed: str = ""


def pending(arguments: Sequence[str]) -> list[Job]:
    """The jobs that `snakemake ARGUMENTS` would run here; raises `AgentRLError` with what it said."""
    command = [sys.executable, "-m", "snakemake", "--summary", *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        said = [line for line in (done.stderr + done.stdout).splitlines() if line.strip()]
        raise AgentRLError(said[-1].removeprefix("error: ") if said else "snakemake failed")
    return read_summary(done.stdout)


def read_summary(text: str) -> list[Job]:
    """Jobs with an output to make, from the table of `snakemake --summary`, each once."""
    lines = text[text.find("output_file\t") :].splitlines()
    waiting = [
        line for line in csv.DictReader(lines, delimiter="\t") if line["plan"] != "no update"
    ]
    return list(dict.fromkeys(_job(line["rule"], line["output_file"]) for line in waiting))


def _job(rule: str, output: str) -> Job:
    place = re.search(r"/([^/]+)/seed(\d+)", output)
    if place is not None:
        return Job(rule, place[1], place[2])
    return Job(rule, Path(output).stem if rule == "write_stage_config" else "")


def seconds_of(job: Job, config: Config, records: Iterable[Mapping[str, Any]]) -> float | None:
    """Expected seconds, None where nothing of the kind was published."""
    if job.rule in ("clone_expert", "train_policy"):
        kind, name = "policy", job.name
        if name in config.trained_variants:
            name = MULTI_TASK
    elif job.rule == "evaluate_policy":
        kind, name = "evaluation", job.name
    elif job.rule == "evaluate_pass_at_k":
        kind, name = "evaluation", MULTI_TASK
    else:
        return SETUP_SECONDS if job.rule in _QUICK else NOTEBOOK_SECONDS
    known = [record for record in records if record["kind"] == kind]
    same = [record for record in known if record["name"] == name]
    if kind == "evaluation":
        # Of a variant, or of another policy that is new: as long as the trained one's.
        same = same or [record for record in known if record["name"] == MULTI_TASK]
    times = [record["seconds"] * _ratio(job, config, record) for record in same]
    return sum(times) / len(times) if times else None


_QUICK = ("write_stage_config", "create_base_policy", "collect_results", "collect_pass_at_k")


def _ratio(job: Job, config: Config, record: Mapping[str, Any]) -> float:
    """Work that settings ask for now, over the work of the record."""
    if job.rule == "clone_expert":
        return float(sum(part.steps for part in config.clones[job.name].stages) / record["steps"])
    evaluation = config.evaluation
    if job.rule == "evaluate_policy":
        episodes = evaluation.samples * (evaluation.repeats + 1)
        return float(len(config.tasks) * episodes / record["episodes"])
    if job.rule == "evaluate_pass_at_k":  # of two policies, and of both mixed
        episodes = 3 * evaluation.pass_at_k.samples * evaluation.pass_at_k.attempts
        return float(len(config.tasks) * episodes / record["episodes"])
    tasks = training_runs(config)[job.name]
    then = record.get("settings", {}).get("training", {})
    groups = then.get("groups_per_task", 8)
    before = sum(groups.get(task, 8) if isinstance(groups, dict) else groups for task in tasks)
    now = sum(config.training.played_groups_of(task) for task in tasks)
    size = then.get("group_size", config.training.group_size)
    steps = config.training.steps / record["steps"]
    return float(steps * now * config.training.group_size / (before * size))


@dataclass(frozen=True, slots=True)
class Plan:
    """Jobs by rule: how many, their seconds all together, and how many of unknown length."""

    rules: Mapping[str, tuple[int, float, int]]
    machine: str

    @property
    def seconds(self) -> float:
        """One job after another."""
        return sum(seconds for _, seconds, _ in self.rules.values())

    @property
    def unknown(self) -> int:
        return sum(unknown for _, _, unknown in self.rules.values())

    def __str__(self) -> str:
        if not self.rules:
            return "nothing is left to do"
        jobs = sum(count for count, _, _ in self.rules.values())
        said = f"{jobs} jobs, about {_minutes(self.seconds)} one after another"
        if self.unknown:
            said += f", and {self.unknown} of unknown length (nothing of the kind was published)"
        return f"{said}; timed by {self.machine}"


def make_plan(jobs: Sequence[Job], config: Config, published: Path) -> Plan:
    """Args: published: folder of the scale's published results, which may not exist."""
    file = published / "provenance.json"
    records: list[Mapping[str, Any]] = []
    if file.is_file():
        records = json.loads(file.read_text(encoding="utf-8"))["records"]
    totals: dict[str, list[float]] = defaultdict(lambda: [0, 0.0, 0])
    for job in jobs:
        seconds = seconds_of(job, config, records)
        total = totals[job.rule]
        total[0] += 1
        total[1] += seconds or 0.0
        total[2] += seconds is None
    machines = {_machine(record["machine"]) for record in records if "machine" in record}
    found = f"{file}, made on {', '.join(sorted(machines))}" if machines else "nothing published"
    rules = {rule: (int(n), seconds, int(lost)) for rule, (n, seconds, lost) in totals.items()}
    return Plan(rules, found)


def to_rich(plan: Plan) -> Table:
    table = Table("rule")
    for name in ("jobs", "minutes"):
        table.add_column(name, justify="right")
    for rule, (count, seconds, unknown) in plan.rules.items():
        time = "?" if unknown == count else f"{seconds / 60:.1f}" + (" + ?" if unknown else "")
        table.add_row(rule, str(count), time)
    return table


def settings_of(arguments: Sequence[str], workdir: Path) -> Config:
    """The settings that `snakemake ARGUMENTS` would have, as the Snakefile merges them."""
    given, files = _options(arguments)
    scale = given.get("scale") or read_yaml(workdir / "config/config.yaml").get("scale", "mini")
    settings: dict[str, Any] = {}
    for path in (Path("config/config.yaml"), Path(f"config/scales/{scale}.yaml"), *files):
        settings = merge(settings, read_yaml(workdir / path))
    return resolve(merge(settings, given))


def _options(arguments: Sequence[str]) -> tuple[dict[str, Any], list[Path]]:
    given: dict[str, Any] = {}
    files: list[Path] = []
    option = ""
    for argument in arguments:
        if argument.startswith("-"):
            option = argument
        elif option in ("--config", "-C") and "=" in argument:
            key, _, value = argument.partition("=")
            given[key] = yaml.safe_load(value)
        elif option in ("--configfile", "--configfiles"):
            files.append(Path(argument))
    return given, files


def _machine(facts: Mapping[str, Any]) -> str:
    return f"{facts.get('cores', '?')} cores of {facts.get('processor') or '?'}"


def _minutes(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} seconds"
    minutes = seconds / 60
    return f"{minutes:.0f} minutes" if minutes < 90 else f"{minutes / 60:.1f} hours"
