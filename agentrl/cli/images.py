"""`agentrl images …`: the container images that `envs/` describes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agentrl.errors import ConfigError

app = typer.Typer(no_args_is_help=True, help="Container images.")
Envs = Annotated[Path, typer.Option("--envs", help="Folder of the images' folders.")]
ENVS = Path("envs")


@app.command("build")
def build(
    names: Annotated[list[str] | None, typer.Argument(help="Images; default: all.")] = None,
    envs: Envs = ENVS,
    manifest: Annotated[
        Path | None, typer.Option("--manifest", help="Of one image: where its manifest goes.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Also what is there already.")] = False,
    network: Annotated[
        str | None, typer.Option("--network", help="Of the builds: host, where there is no bridge.")
    ] = None,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Not the builds' own lines.")
    ] = False,
) -> None:
    """Build images, and what they start from, unless the daemon has exactly these already."""
    from agentrl.images import daemon
    from agentrl.images.contexts import choose, describe

    images = describe(envs)
    if manifest is not None and len(names or ()) != 1:
        raise ConfigError("--manifest: is of one image; name it")
    wanted = choose(images, names or ())
    with daemon.connect() as client:
        for image in wanted:
            daemon.build(
                client,
                image,
                print,
                log=(lambda line: None) if quiet else print,
                force=force,
                network=network,
            )
    if manifest is not None:
        images[(names or [""])[0]].write_manifest(manifest)


@app.command("list")
def show(envs: Envs = ENVS) -> None:
    """Say which images there are, and which the daemon has."""
    from rich.console import Console
    from rich.table import Table

    from agentrl.images import daemon
    from agentrl.images.contexts import describe

    images = describe(envs)
    with daemon.connect(timeout=60) as client:
        found = daemon.built(client)
    table = Table("image", "context", "state", "size", "older")
    for image in images.values():
        ours = [one for one in found if one.name == image.name]
        exact = next((one for one in ours if one.context == image.context), None)
        state = "built" if exact else "outdated" if ours else "not built"
        size = f"{exact.size / 1e6:,.0f} MB" if exact else "-"
        older = len(ours) - (exact is not None)
        table.add_row(image.repository, image.context, state, size, str(older) if older else "")
    Console().print(table)


@app.command("prune")
def prune(
    envs: Envs = ENVS,
    everything: Annotated[
        bool, typer.Option("--all", help="Also those that are up to date.")
    ] = False,
) -> None:
    """Remove images of ours that are out of date; never one of somebody else's."""
    from agentrl.images import daemon
    from agentrl.images.contexts import describe

    keep = () if everything else tuple(describe(envs).values())
    with daemon.connect(timeout=600) as client:
        removed = daemon.prune(client, keep, print)
    print(f"{removed} images removed")
