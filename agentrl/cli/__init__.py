"""`agentrl …`: thin commands, and the only place that decides where the parts of a run live.

One module a group of commands; what a command needs is imported when it runs, so that `--help` is quick.
"""

from __future__ import annotations

import errno
import logging
import sys
from typing import Annotated

import typer

from agentrl import __version__
from agentrl.cli import (
    bench,
    data,
    experiments,
    hosting,
    images,
    notebooks,
    play,
    policies,
    reports,
    serving,
    settings,
)
from agentrl.errors import AgentRLError

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False)


@app.callback()
def _setup(verbose: Annotated[bool, typer.Option("--verbose", "-v")] = False) -> None:
    """AgentRL, reproducible: from container images and tasks to policies, tables and figures.

    Every error a person can mend is one line on stderr and exit status 1; a training that is stopped by
    SIGTERM or Ctrl-C ends with 143 after it has saved its state.
    """
    logging.basicConfig(
        level=logging.DEBUG if verbose else logging.INFO,
        format="%(asctime)s %(name)s %(levelname)s %(message)s",
        stream=sys.stderr,
    )
    for noisy in ("httpx", "datasets", "urllib3", "filelock", "asyncio", "matplotlib"):
        logging.getLogger(noisy).setLevel(logging.WARNING)


@app.command()
def version() -> None:
    """Print the package's version."""
    print(__version__)


app.command()(play.tasks)
app.command()(play.play)
app.command("warm-start")(policies.warm_start)
app.command()(experiments.train)
app.command()(experiments.evaluate)
app.command("pass-at-k")(experiments.pass_at_k)
app.command()(experiments.audit)
app.command("check-published")(reports.check_published)
app.command(
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
)(reports.plan)
app.command()(hosting.controller)
app.command()(hosting.worker)
app.command()(serving.serve)
app.add_typer(bench.app, name="bench")
app.add_typer(data.app, name="data")
app.add_typer(images.app, name="images")
app.add_typer(settings.app, name="config")
app.add_typer(policies.app, name="policy")
app.add_typer(notebooks.app, name="notebook")


def main() -> None:
    """Entry point: errors of a person's making become one line."""
    try:
        app()
    except AgentRLError as error:
        sys.exit(f"error: {error}")
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EROFS):
            raise
        sys.exit(
            f"error: {error.strerror}: {error.filename or 'while writing'}; what was saved before is intact"
        )
    except KeyboardInterrupt:
        sys.exit(130)
