"""How long a run takes, from made-up published costs that are easy to scale by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agentrl.config import Config, resolve
from agentrl.reporting.plan import Job, Plan, make_plan, read_summary, settings_of, to_rich

SUMMARY = """Config file config/config.yaml is extended.
output_file\tdate\trule\tlog-file(s)\tstatus\tplan
results/mini/config/train-multi-task.yaml\t-\twrite_stage_config\t-\tmissing\tupdate pending
results/mini/train/multi-task/seed0/policy\t-\ttrain_policy\t-\tmissing\tupdate pending
results/mini/train/multi-task/seed0/history.parquet\t-\ttrain_policy\t-\tmissing\tupdate pending
results/mini/train/multi-task/seed1/policy\t-\ttrain_policy\t-\tmissing\tupdate pending
results/mini/evaluate/cloned/seed0.parquet\tMon\tevaluate_policy\t-\tok\tno update
results/mini/evaluate/multi-task/seed0.parquet\t-\tevaluate_policy\t-\tmissing\tupdate pending
results/mini/evaluate/multi-task/seed0.provenance.json\t-\tevaluate_policy\t-\tmissing\tupdate pending
paper_figures/mini/claims.md\t-\tclaims\t-\tmissing\tupdate pending
paper_figures/mini/claims.tex\t-\tclaims\t-\tmissing\tupdate pending
"""
MACHINE = {"cores": 2, "processor": "Test CPU"}
RECORDS: list[dict[str, Any]] = [
    {
        "kind": "policy",
        "name": "multi-task",
        "run": "multi-task",
        "seconds": 300,
        "steps": 60,
        "machine": MACHINE,
        "settings": {"training": {"groups_per_task": 8, "group_size": 8}},
    },
    {"kind": "policy", "name": "cloned", "seconds": 100, "steps": 50},
    {"kind": "evaluation", "name": "multi-task", "seconds": 20, "episodes": 800},
]


@pytest.fixture
def config() -> Config:
    return resolve(
        {
            "tasks": {"alfworld": {}, "dbbench": {}},
            "clones": {"cloned": {"stages": [{"steps": 75}, {"steps": 25}]}},
            "training": {
                "start": "cloned",
                "steps": 30,
                "groups_per_task": {"alfworld": 12, "dbbench": 20},
            },
            "evaluation": {"samples": 100, "repeats": 3, "pass_at_k": {"samples": 5}},
            "variants": {"synchronous": {"pipeline": {"mode": "sync"}}},
            "matrix": "full",
        }
    )


@pytest.fixture
def published(tmp_path: Path) -> Path:
    (tmp_path / "provenance.json").write_text(json.dumps({"records": RECORDS, "starts": {}}))
    return tmp_path


def test_a_job_counts_once_however_many_files_it_makes() -> None:
    assert read_summary(SUMMARY) == [
        Job("write_stage_config", "train-multi-task"),
        Job("train_policy", "multi-task", "0"),
        Job("train_policy", "multi-task", "1"),
        Job("evaluate_policy", "multi-task", "0"),
        Job("claims"),
    ]
    assert read_summary("") == []


@pytest.mark.parametrize(
    ("job", "seconds"),
    [
        (Job("train_policy", "multi-task", "0"), 300),  # half the steps, twice the groups
        (Job("train_policy", "synchronous", "0"), 300),  # as multi-task
        (Job("clone_expert", "cloned", "0"), 200),  # 100 steps for 50
        (Job("evaluate_policy", "synchronous", "0"), 20),  # 2 tasks x 100 x (3 + 1) = 800 episodes
        (Job("evaluate_pass_at_k", "pass_at_k", "0"), 48),  # 2 x 3 x 5 x 64 = 1,920 episodes
    ],
)
def test_times_scale_with_the_work_that_settings_ask_for(
    job: Job, seconds: float, config: Config, published: Path
) -> None:
    plan = make_plan([job], config, published)
    assert plan.rules == {job.rule: (1, pytest.approx(seconds), 0)}
    assert "Test CPU" in str(plan)


def test_what_was_never_published_is_unknown_and_said(config: Config, published: Path) -> None:
    jobs = [Job("train_policy", "single-dbbench", "0"), Job("train_policy", "multi-task", "0")]
    plan = make_plan(jobs, config, published)
    assert plan.rules["train_policy"] == (2, pytest.approx(300), 1)
    assert "2 jobs, about 5 minutes one after another, and 1 of unknown length" in str(plan)
    none = make_plan(jobs, config, published / "nowhere")
    assert none.unknown == 2 and "nothing published" in str(none)
    assert to_rich(plan).row_count == 1
    assert str(Plan({}, "")) == "nothing is left to do"


def test_settings_are_those_that_snakemake_would_have(tmp_path: Path) -> None:
    (tmp_path / "config/scales").mkdir(parents=True)
    (tmp_path / "config/config.yaml").write_text("scale: mini\ntasks: {alfworld: {}}\n")
    (tmp_path / "config/scales/mini.yaml").write_text("training: {start: base, steps: 7}\n")
    (tmp_path / "mine.yaml").write_text("training: {steps: 8}\n")
    found = settings_of(["all", "--configfile", "mine.yaml"], tmp_path)
    assert found.training.steps == 8
    found = settings_of(
        ["--config", "seeds=[3,4]", "results_from=published", "--", "all"], tmp_path
    )
    assert (found.seeds, found.training.steps) == ((3, 4), 7)
