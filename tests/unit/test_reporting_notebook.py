"""The notebook runner: checked parameters, kept copies, no traces of when and where."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agentrl.errors import AgentRLError, ConfigError
from agentrl.reporting.notebook import run_notebook, same_source, sync

SOURCE = """# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # A notebook

# %% tags=["parameters"]
number = 1
target: str = ""

# %%
if target:
    open(target, "w").write(str(number + 1))
number + 1
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "small.py"
    path.write_text(SOURCE, encoding="utf-8")
    return path


def test_parameters_reach_the_notebook_and_the_copy_is_kept(source: Path, tmp_path: Path) -> None:
    target, copy = tmp_path / "out.txt", tmp_path / "executed" / "small.ipynb"
    run_notebook(source, copy, {"number": 41, "target": str(target)})
    assert target.read_text() == "42"
    cells = json.loads(copy.read_text())["cells"]
    assert cells[-1]["outputs"][0]["data"]["text/plain"] == ["42"]


def test_an_unknown_parameter_is_refused_before_anything_runs(source: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no parameter 'nmber'; it has number, target"):
        run_notebook(source, tmp_path / "copy.ipynb", {"nmber": 2})
    assert not (tmp_path / "copy.ipynb").exists()


def test_a_failing_cell_is_an_error_and_its_copy_stays(source: Path, tmp_path: Path) -> None:
    source.write_text(SOURCE + "\n# %%\n1 / 0\n", encoding="utf-8")
    with pytest.raises(AgentRLError, match="ZeroDivisionError"):
        run_notebook(source, tmp_path / "copy.ipynb", {})
    assert "ZeroDivisionError" in (tmp_path / "copy.ipynb").read_text()


def test_the_twin_has_the_same_cells_and_bytes_every_time(source: Path) -> None:
    first = sync(source).read_bytes()
    assert same_source(source)
    assert sync(source).read_bytes() == first
    assert not [p for p in source.parent.iterdir() if "part" in p.name]
    source.write_text(SOURCE.replace("number + 1\n", "number + 2\n"), encoding="utf-8")
    assert not same_source(source)
    source.write_text(SOURCE + "\n# %%\nimport warnings\nwarnings.warn('here')\n", encoding="utf-8")
    assert "UserWarning" not in sync(source).read_text()
    assert '"outputs": []' in sync(source, execute=False).read_text() and same_source(source)


def test_a_notebook_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.py does not exist"):
        run_notebook(tmp_path / "none.py", tmp_path / "copy.ipynb", {})
