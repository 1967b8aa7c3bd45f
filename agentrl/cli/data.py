"""`agentrl data …`: the official data of the tasks."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from agentrl.errors import DataError

app = typer.Typer(no_args_is_help=True, help="Official data.")


@app.command("list")
def show(
    files: Annotated[bool, typer.Option("--files", help="Also each file and its address.")] = False,
) -> None:
    """Say what there is to get, where it comes from and under what licence."""
    from agentrl.official.sources import sources

    for name, source in sources().items():
        parts = f"; parts: {', '.join(source.parts)}" if source.parts else ""
        print(f"{name}: {source.title}\n  {source.page}\n  licence: {source.licence}{parts}")
        for path, file in source.files.items() if files else ():
            print(f"  {path}: {source.base}{file.at}")


@app.command("get")
def get(
    name: Annotated[str, typer.Argument(help="agentbench, alfworld or webshop.")],
    to: Annotated[Path, typer.Option("--to", help="Folder; what data_root is then set to.")] = Path(
        "data"
    ),
    part: Annotated[
        str | None, typer.Option("--part", help="webshop: small (1,000 products) or all (5 GB).")
    ] = None,
) -> None:
    """Fetch a publisher's files; run it again to go on where it was cut."""
    from agentrl.official.get import get as fetch_all
    from agentrl.official.sources import find

    source = find(name)
    print(f"{source.title}\n  by {source.publisher}, {source.page}\n  licence: {source.licence}")
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TransferSpeedColumn

    bar = Progress(
        "{task.description}", BarColumn(), DownloadColumn(), TransferSpeedColumn(),
        console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty(),
    )  # fmt: skip
    with bar:
        shown = bar.add_task("")

        def progress(path: str) -> Callable[[int, int | None], None]:
            return lambda done, total: bar.update(
                shown, description=path, completed=done, total=total
            )

        left = fetch_all(source, to, part, say=print, progress=progress)
    if left:
        print("Download by hand, and run this again:", *left, sep="\n  ")
        raise DataError(f"{to} lacks files of {name}")
    print(f"Complete. Set data_root: {to} (snakemake … --config data_root={to})")
