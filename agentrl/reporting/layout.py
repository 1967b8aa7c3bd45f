"""How every table becomes text: blocks of cells under headings, as Markdown and as LaTeX `booktabs`.

Published numbers are always a block of their own, with a heading that says what they are of.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

import pandas as pd

MISSING = "–"


@dataclass(frozen=True, slots=True)
class Block:
    """A heading, a header, and lines of cells that are as long as it."""

    title: str
    header: Sequence[str]
    body: Sequence[Sequence[str]]
    note: str = ""
    """A sentence between heading and cells; Markdown only."""
    latex_title: str = ""
    """In place of `title` and `note`, where both would be too long for a line of a tabular."""


def published(table: int) -> pd.DataFrame:
    """A table of the paper; its file says where it was taken from."""
    name = f"published_table{table}.csv"
    with (files("agentrl.reporting") / name).open(encoding="utf-8") as file:
        return pd.read_csv(file, comment="#")


def markdown(block: Block) -> str:
    note = f"{block.note}\n\n" if block.note else ""
    rule = ["---:" if right else "---" for right in _right(block.header, [block])]
    lines = ("| " + " | ".join(cells) + " |" for cells in (block.header, rule, *block.body))
    return f"### {block.title}\n\n{note}{chr(10).join(lines)}\n"


def to_markdown(blocks: Sequence[Block], caption: str, apart: Block | None = None) -> str:
    """Blocks, the caption of ours, then what stands apart."""
    parts = [*map(markdown, blocks), caption + "\n"]
    if apart is not None:
        parts.append(markdown(apart))
    return "\n".join(parts)


def to_latex(
    header: Sequence[str], blocks: Sequence[Block], caption: str, apart: Block | None = None
) -> str:
    """One tabular under one header; each block below a heading of its own."""
    columns = "".join("r" if right else "l" for right in _right(header, blocks))
    lines = [
        r"% needs \usepackage{booktabs}",
        rf"\begin{{tabular}}{{{columns}}}",
        r"\toprule",
        " & ".join(map(escape, header)) + r" \\",
    ]
    for block in (*blocks, *([apart] if apart else [])):
        title = escape(block.latex_title or block.title)
        lines += [r"\midrule", rf"\multicolumn{{{len(header)}}}{{l}}{{\emph{{{title}}}}} \\"]
        lines += [" & ".join(map(escape, cells)) + r" \\" for cells in block.body]
    lines += [r"\bottomrule", r"\end{tabular}", f"% {caption}"]
    return "\n".join(lines) + "\n"


def _right(header: Sequence[str], blocks: Sequence[Block]) -> list[bool]:
    """Which columns hold numbers alone, and stand on the right."""
    return [
        all(line[i][:1] in f"+-{MISSING}0123456789" for block in blocks for line in block.body)
        for i in range(len(header))
    ]


def write(stem: Path, tidy: pd.DataFrame, markdown: str, latex: str) -> None:
    """`stem`.csv (ours, tidy), .md and .tex (for people); the same numbers give the same bytes."""
    stem.parent.mkdir(parents=True, exist_ok=True)
    write_csv(tidy, stem.with_suffix(".csv"))
    stem.with_suffix(".md").write_text(markdown, encoding="utf-8")
    stem.with_suffix(".tex").write_text(latex, encoding="utf-8")


def write_csv(tidy: pd.DataFrame, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    tidy.to_csv(path, index=False, float_format="%.6g", lineterminator="\n")


def percent(value: float, low: float, high: float, *, signed: bool = False) -> str:
    """Fractions as percent with their interval: `44.0 [37.3, 50.9]`."""
    if pd.isna(value):
        return MISSING
    sign = "+" if signed else ""
    shown = f"{100 * value:{sign}.1f}"
    return shown if pd.isna(low) else f"{shown} [{100 * low:{sign}.1f}, {100 * high:{sign}.1f}]"


def given(value: float | None, spread: float | None = None) -> str:
    """A published number, with its standard deviation where there is one."""
    if value is None or pd.isna(value):
        return MISSING
    return f"{value:.1f}" if spread is None or pd.isna(spread) else f"{value:.1f} ± {spread:.1f}"


def escape(text: str) -> str:
    special = {"_": r"\_", "%": r"\%", "&": r"\&", "#": r"\#", "±": r"$\pm$", "–": "--"}
    return "".join(special.get(character, character) for character in text)
