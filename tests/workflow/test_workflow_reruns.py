"""What the workflow runs, and above all what it does not run again.

The jobs are stand-ins (`fake_agentrl.py`): these tests are about triggers. One full run, then dry-runs.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from workflow_project import Snakemake, copy_repository, snakemake_in

SMALL = ("--config", "scale=smoke")
COMPARISONS = ("ablation_table", "claims", "limit_table", "single_task_table")
FIGURES = {
    "collect_results": 1,
    "explorer": 1,
    "learning_curves": 1,
    "main_table": 1,
    **dict.fromkeys(COMPARISONS, 1),
}

PASS_AT_K = {"evaluate_pass_at_k": 1, "collect_pass_at_k": 1, "pass_at_k": 1}
"""One seed of it, and its figure."""


def planned(output: str) -> dict[str, int]:
    """Rule -> jobs, from the table that Snakemake prints; `all` left out."""
    if "Nothing to be done" in output:
        return {}
    table = output.rpartition("Job stats:")[2].partition("total")[0]
    jobs = {name: int(count) for name, count in re.findall(r"^(\w+) +(\d+)$", table, re.MULTILINE)}
    assert jobs, output
    jobs.pop("all", None)
    return jobs


@pytest.fixture(scope="module", autouse=True)
def finished(fake_snakemake: Snakemake) -> None:
    """The whole workflow has run once in `project`."""
    done = fake_snakemake("--cores", "2", *SMALL)
    assert done.returncode == 0, done.stdout[-3000:]


@pytest.fixture
def edited(project: Path) -> Iterator[Path]:
    """`project` for a test that edits sources: they are put back afterwards."""
    kept = project.parent / "kept"
    shutil.copytree(project / "agentrl", kept / "agentrl")
    yield project
    shutil.rmtree(project / "agentrl")
    shutil.move(kept / "agentrl", project / "agentrl")


def dry_run(snakemake: Snakemake, *arguments: str) -> dict[str, int]:
    done = snakemake("-n", *arguments)
    assert done.returncode == 0, done.stdout
    return planned(done.stdout)


def overlay(project: Path, text: str) -> tuple[str, ...]:
    (project / "overlay.yaml").write_text(text, encoding="utf-8")
    return ("--configfile", "overlay.yaml", *SMALL)


def test_everything_expected_is_there_and_nothing_is_left_to_do(
    project: Path, fake_snakemake: Snakemake
) -> None:
    for end in ("csv", "md", "tex"):
        assert (project / f"paper_figures/smoke/main_table.{end}").stat().st_size > 100
    for figure in ("learning_curves", "staleness", "throughput"):
        for end in ("pdf", "svg", "png"):
            assert (project / f"paper_figures/smoke/{figure}.{end}").stat().st_size > 1000
    assert (project / "results/smoke/notebooks/main_table.ipynb").is_file()
    assert dry_run(fake_snakemake, *SMALL) == {}


def test_the_machine_is_not_science(fake_snakemake: Snakemake) -> None:
    assert dry_run(fake_snakemake, "--cores", "1", *SMALL) == {}
    threads = ("--set-threads", "train_policy=1", "--set-resources", "train_policy:mem_mb=1")
    assert dry_run(fake_snakemake, *threads, *SMALL) == {}


def test_comments_docstrings_layout_and_touch_run_nothing(
    edited: Path, fake_snakemake: Snakemake
) -> None:
    for path in sorted((edited / "agentrl").rglob("*.py")):
        path.write_text(path.read_text() + "\n\n# A comment.\n", encoding="utf-8")
    module = edited / "agentrl" / "randomness.py"
    text = module.read_text()
    module.write_text(text.replace("A 63-bit seed", "Another docstring. A 63-bit seed"))
    assert module.read_text() != text
    config = edited / "config" / "config.yaml"
    config.write_text(config.read_text() + "\n# A comment.\n", encoding="utf-8")
    os.utime(edited / "config" / "scales" / "smoke.yaml")
    assert dry_run(fake_snakemake, *SMALL) == {}


def test_an_edit_of_the_command_line_runs_nothing(edited: Path, fake_snakemake: Snakemake) -> None:
    with (edited / "agentrl" / "cli" / "__init__.py").open("a") as file:
        file.write("\nEDITED = 1\n")
    assert dry_run(fake_snakemake, *SMALL) == {}


def test_an_edit_of_the_algorithm_trains_again_but_does_not_clone(
    edited: Path, fake_snakemake: Snakemake
) -> None:
    module = next((edited / "agentrl" / "algorithms").glob("[a-z]*.py"))
    module.write_text(module.read_text() + "\nEDITED = 1\n", encoding="utf-8")
    jobs = dry_run(fake_snakemake, *SMALL)
    assert jobs == {"train_policy": 4, "evaluate_policy": 4, "tour": 1, **FIGURES, **PASS_AT_K}


def test_another_evaluation_does_not_train(project: Path, fake_snakemake: Snakemake) -> None:
    jobs = dry_run(fake_snakemake, *overlay(project, "evaluation: {samples: 5}\n"))
    assert jobs == {"write_stage_config": 1, "evaluate_policy": 9, "tour": 1, **FIGURES}


def test_another_training_budget_does_not_clone(project: Path, fake_snakemake: Snakemake) -> None:
    jobs = dry_run(fake_snakemake, *overlay(project, "training: {steps: 9}\n"))
    assert jobs == {
        "write_stage_config": 4,
        "train_policy": 4,
        "evaluate_policy": 4,
        "tour": 1,
        **FIGURES,
        **PASS_AT_K,
    }


def test_a_seed_costs_only_that_seed(project: Path, fake_snakemake: Snakemake) -> None:
    jobs = dry_run(fake_snakemake, *overlay(project, "seeds: [0, 1]\n"))
    assert jobs == {
        "create_base_policy": 1,
        "clone_expert": 3,
        "train_policy": 4,
        "evaluate_policy": 9,
        **FIGURES,
        **PASS_AT_K,
    }


def test_another_variant_costs_only_its_own_training(
    project: Path, fake_snakemake: Snakemake
) -> None:
    jobs = dry_run(fake_snakemake, *overlay(project, "matrix: [without-both, synchronous]\n"))
    assert jobs == {"write_stage_config": 1, "train_policy": 1, "evaluate_policy": 1, **FIGURES}


def test_a_table_without_rows_is_left_out_and_named(
    project: Path, fake_snakemake: Snakemake
) -> None:
    done = fake_snakemake("-n", *overlay(project, "matrix: []\nsingle_task_runs: false\n"))
    assert done.returncode == 0, done.stdout
    assert "Table 6 (ablations) is not drawn: no variant is trained" in done.stdout
    jobs = planned(done.stdout)
    assert {"ablation_table", "single_task_table"} & set(jobs) == set() and jobs["claims"] == 1


def test_a_task_taken_out_leaves_no_single_task_runs(
    project: Path, fake_snakemake: Snakemake
) -> None:
    jobs = dry_run(fake_snakemake, *overlay(project, "tasks: {dbbench: null}\n"))
    assert jobs["train_policy"] == 2 and jobs["evaluate_policy"] == 7


def test_a_deleted_result_is_noticed(project: Path, fake_snakemake: Snakemake) -> None:
    path = project / "results/smoke/evaluate/cloned/seed0.parquet"
    content, times = path.read_bytes(), path.stat()
    path.unlink()
    assert dry_run(fake_snakemake, *SMALL) == {"evaluate_policy": 1, **FIGURES}
    path.write_bytes(content)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def test_published_numbers_are_redrawn_without_training(
    project: Path, fake_python: Path, tmp_path: Path
) -> None:
    clone = copy_repository(tmp_path)
    shutil.rmtree(clone / "published", ignore_errors=True)
    from agentrl.reporting.publish import publish

    publish(project / "results" / "smoke", clone / "published" / "smoke")
    snakemake = snakemake_in(clone, fake_python)
    shown = ("--config", "scale=smoke", "results_from=published")
    assert dry_run(snakemake, *shown) == {
        "explorer": 1,
        "learning_curves": 1,
        "main_table": 1,
        "pass_at_k": 1,
        "scaling": 1,
        **dict.fromkeys(COMPARISONS, 1),
    }
    done = snakemake("--cores", "2", *shown)
    assert done.returncode == 0, done.stdout[-3000:]
    for name in ("main_table.csv", "main_table.md", "learning_curves.svg", "learning_curves.pdf"):
        drawn = (clone / "paper_figures" / "smoke" / name).read_bytes()
        assert drawn == (project / "paper_figures" / "smoke" / name).read_bytes(), name
