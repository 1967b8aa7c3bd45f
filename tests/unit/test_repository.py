"""Promises of the repository as a whole: one list of dependencies, documented keys, paired notebooks."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.specifiers import SpecifierSet

from agentrl.config import load
from agentrl.config.reference import BEGIN, END, markdown
from agentrl.reporting.notebook import parameter_names, read_notebook, same_source
from agentrl.reporting.publish import SUMS, verify

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.py"))
SCALES = sorted((ROOT / "config" / "scales").glob("*.yaml"))


def test_conda_installs_what_pyproject_lists_and_nothing_else() -> None:
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    *packages, pip = environment["dependencies"]
    assert pip == {"pip": ["-e .[lab]"]}
    assert "lab" in project["optional-dependencies"]
    python = next(name for name in packages if name.startswith("python"))
    assert python.partition("=")[2] in SpecifierSet(project["requires-python"])
    assert set(packages) == {python, "pip", "graphviz"}


def test_every_key_is_documented_as_it_is() -> None:
    text = (ROOT / "config" / "README.md").read_text(encoding="utf-8")
    documented = text.partition(BEGIN)[2].partition(END)[0].strip()
    assert documented == markdown().strip(), "run `make docs`"


def test_every_key_has_a_meaning() -> None:
    rows = [line.split(" | ") for line in markdown().splitlines() if line.startswith("| `")]
    assert [row[0] for row in rows if not row[-1].strip(" |")] == []


@pytest.mark.parametrize("scale", SCALES, ids=lambda path: path.stem)
def test_every_scale_resolves(scale: Path) -> None:
    config = load([ROOT / "config" / "config.yaml", scale], {"data_root": "records"})
    start = config.training.start
    assert start in config.clones or config.policy.path, "RL starts from a clone, or a large policy"
    assert config.training.threads + config.rollout.threads <= 2, "a training job has two threads"
    assert config.policy.max_positions >= config.rollout.max_total_tokens


@pytest.mark.parametrize("source", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_and_its_twin_have_the_same_cells(source: Path) -> None:
    assert same_source(source), "run `make notebooks`"


@pytest.mark.parametrize("source", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_has_parameters_and_no_logic(source: Path) -> None:
    assert parameter_names(read_notebook(source))
    logic = (ast.FunctionDef, ast.ClassDef, ast.For, ast.While, ast.Lambda)
    assert not [node for node in ast.walk(ast.parse(source.read_text())) if isinstance(node, logic)]


def test_every_notebook_is_in_the_gallery() -> None:
    gallery = (ROOT / "docs" / "gallery.md").read_text(encoding="utf-8")
    missing = [n.stem for n in NOTEBOOKS if f"(../notebooks/{n.stem}.ipynb)" not in gallery]
    assert missing == [], "add them to docs/gallery.md"


def test_notebooks_stay_small() -> None:
    for path in (ROOT / "notebooks").glob("*.ipynb"):
        assert path.stat().st_size < 1_000_000, path


def test_no_code_reads_docstrings() -> None:
    """`agentrl.provenance.code_digest` leaves them out."""
    found = [
        path
        for path in (ROOT / "agentrl").rglob("*.py")
        if path.name != "reference.py"
        and any(
            isinstance(node, ast.Attribute | ast.Name)
            and getattr(node, "attr", getattr(node, "id", "")) == "__doc__"
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        )
    ]
    assert found == []


@pytest.mark.parametrize("folder", [path.parent for path in ROOT.glob(f"published/*/{SUMS}")])
def test_published_numbers_are_those_that_were_published(folder: Path) -> None:
    verify(folder)
