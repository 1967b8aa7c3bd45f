"""Percent notebooks: run one with checked parameters, and keep its .ipynb twin.

The `.py` is what people review and rules execute; the `.ipynb` beside it is what people open and what
the repository's pages show. `python -m agentrl.reporting.notebook notebooks/*.py` runs each without
parameters and writes its twin. No times, ids or machine paths go into either kind of copy.
"""

from __future__ import annotations

import argparse
import ast
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jupytext
import nbformat
import papermill
from papermill.exceptions import PapermillExecutionError

from agentrl.errors import AgentRLError, ConfigError

PARAMETERS = "parameters"
INJECTED = "injected-parameters"


def enter_repository() -> Path:
    """Make the repository's root the working directory, wherever the notebook was opened."""
    here = Path.cwd()
    root = next(
        (p for p in (here, *here.parents) if (p / "workflow" / "Snakefile").is_file()), here
    )
    os.chdir(root)
    return root


def run_notebook(source: Path, executed: Path, parameters: Mapping[str, Any]) -> None:
    """Execute `source` from the working directory and keep the copy in `executed`.

    Raises `ConfigError` for a parameter that the notebook does not have, and `AgentRLError` with the
    traceback of the cell that failed; the copy is kept then too.
    """
    notebook = read_notebook(source)
    known = parameter_names(notebook)
    unknown = sorted(set(parameters) - set(known))
    if unknown:
        raise ConfigError(f"{source} has no parameter {unknown[0]!r}; it has {', '.join(known)}")
    executed.parent.mkdir(parents=True, exist_ok=True)
    try:
        papermill.execute_notebook(
            notebook, str(executed), dict(parameters), progress_bar=False, kernel_name="python3"
        )
    except PapermillExecutionError as error:
        raise AgentRLError(f"{source} failed; its copy is {executed}\n{error}") from None
    finally:
        if executed.exists():
            _write(_clean(read_notebook(executed)), executed)


def parameter_names(notebook: nbformat.NotebookNode) -> list[str]:
    """Names assigned in the cell tagged `parameters`, in order."""
    names: list[str] = []
    for cell in notebook.cells:
        if PARAMETERS not in cell.metadata.get("tags", ()):
            continue
        for statement in ast.parse(cell.source).body:
            if isinstance(statement, ast.Assign):
                names += [t.id for t in statement.targets if isinstance(t, ast.Name)]
            elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                names.append(statement.target.id)
    return names


def sync(source: Path, *, execute: bool = True) -> Path:
    """Write the `.ipynb` twin of `source`, run without parameters, or with its cells alone."""
    twin = source.with_suffix(".ipynb")
    part = source.with_name(f".{source.stem}.part.ipynb")
    try:
        if execute:
            run_notebook(source, part, {})
            _write(_without_stderr(read_notebook(part)), part)
        else:
            _write(_clean(read_notebook(source)), part)
        part.replace(twin)
    finally:
        part.unlink(missing_ok=True)
    return twin


def same_source(source: Path) -> bool:
    """True where a percent notebook and its twin have the same cells."""

    def cells(path: Path) -> list[tuple[str, str, list[str]]]:
        notebook = read_notebook(path)
        return [(c.cell_type, c.source, c.metadata.get("tags", [])) for c in notebook.cells]

    return cells(source) == cells(source.with_suffix(".ipynb"))


def read_notebook(path: Path) -> nbformat.NotebookNode:
    try:
        notebook: nbformat.NotebookNode = jupytext.read(path)
        return notebook
    except FileNotFoundError:
        raise ConfigError(f"notebook {path} does not exist") from None


def _clean(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """Drop what differs from run to run and what only papermill reads."""
    notebook.metadata.pop("papermill", None)
    notebook.metadata["jupytext"] = {"formats": "ipynb,py:percent"}
    notebook.metadata["kernelspec"] = {
        "display_name": "Python 3",
        "language": "python",
        "name": "python3",
    }
    notebook.metadata.get("language_info", {}).pop("version", None)
    for number, cell in enumerate(notebook.cells):
        tags = cell.metadata.get("tags")
        cell["metadata"] = nbformat.NotebookNode({"tags": tags} if tags else {})
        cell["id"] = f"cell-{number}"
    return notebook


def _without_stderr(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """Libraries' warnings name files of this machine: nothing to show to others."""
    for cell in notebook.cells:
        if "outputs" in cell:
            cell["outputs"] = [part for part in cell.outputs if part.get("name") != "stderr"]
    return notebook


def _write(notebook: nbformat.NotebookNode, path: Path) -> None:
    path.write_text(nbformat.writes(notebook) + "\n", encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Write the .ipynb twins of percent notebooks.")
    parser.add_argument("sources", type=Path, nargs="+")
    parser.add_argument("--cells-only", action="store_true", help="do not run them: no outputs")
    given = parser.parse_args(arguments)
    try:
        for source in given.sources:
            print(sync(source, execute=not given.cells_only))
    except AgentRLError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
