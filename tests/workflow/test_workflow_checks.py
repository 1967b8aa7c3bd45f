"""The workflow as a text: lint, format, a dry-run on a fresh clone, and errors in one line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from workflow_project import ROOT, Snakemake

RULES = (
    "write_stage_config",
    "create_base_policy",
    "clone_expert",
    "train_policy",
    "evaluate_policy",
    "collect_results",
    "main_table",
    "learning_curves",
    "limit_table",
    "single_task_table",
    "claims",
    "tour",
    "explorer",
    "bench_scaling",
    "scaling",
)
PASS_AT_K = ("evaluate_pass_at_k", "collect_pass_at_k", "pass_at_k")
"""Where the scale measures it."""


def test_lint_finds_nothing(snakemake: Snakemake) -> None:
    done = snakemake("--lint")
    assert done.returncode == 0 and "good condition" in done.stdout, done.stdout


def test_format_is_kept() -> None:
    command = [sys.executable, "-m", "snakefmt", "--check", str(ROOT / "workflow")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(("scale", "rules"), [("mini", RULES), ("smoke", RULES + PASS_AT_K)])
def test_a_fresh_clone_plans_every_stage(
    snakemake: Snakemake, scale: str, rules: tuple[str, ...]
) -> None:
    done = snakemake("-n", "--config", f"scale={scale}")
    assert done.returncode == 0, done.stdout
    for rule in rules:
        assert f"\n{rule} " in done.stdout
    assert f"results/{scale}/" in done.stdout


def test_official_records_need_their_folder(snakemake: Snakemake) -> None:
    done = snakemake("-n", "--config", "scale=agentbench")
    assert done.returncode == 1
    assert done.stdout.splitlines()[-1].startswith("error: config: data_root: not set")
    done = snakemake("-n", "--config", "scale=agentbench", "data_root=records")
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("overlay", "line"),
    [
        (
            "training: {lerning_rate: 1}",
            "error: unknown config key 'training.lerning_rate'; did you mean 'learning_rate'?",
        ),
        (
            "training: {learning_rate: -1.0}",
            "error: config key 'training.learning_rate': Input should be greater than 0 (got -1.0)",
        ),
        (
            "training: {start: cloned-puls}",
            "error: config: training.start: 'cloned-puls' is none of base, cloned, cloned-plus",
        ),
    ],
)
def test_a_wrong_setting_is_refused_in_one_line(
    snakemake: Snakemake, project: Path, overlay: str, line: str
) -> None:
    (project / "wrong.yaml").write_text(overlay, encoding="utf-8")
    done = snakemake("-n", "--configfile", "wrong.yaml")
    assert done.returncode == 1
    said = [
        text
        for text in done.stdout.splitlines()
        if "onfig file" not in text and "profile" not in text
    ]
    assert said == [line]


def test_an_unknown_scale_is_named(snakemake: Snakemake) -> None:
    done = snakemake("-n", "--config", "scale=smoek")
    assert done.returncode == 1
    assert "config/scales/smoek.yaml" in done.stdout and "Traceback" not in done.stdout
