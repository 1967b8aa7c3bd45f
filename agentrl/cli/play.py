"""`agentrl tasks` and `agentrl play`: what tasks there are, and an episode for a person."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agentrl.config import load
from agentrl.config.models import TaskConfig
from agentrl.errors import ConfigError

if TYPE_CHECKING:
    from rich.console import Console

    from agentrl.messages import Message, ToolSpec
    from agentrl.tasks.base import Episode, Expert, Sample, Step, Task

Settings = Annotated[
    Path | None, typer.Option("--config", help="YAML file with settings; default: the tasks' own.")
]
DataRoot = Annotated[
    Path | None,
    typer.Option("--data-root", envvar="AGENTRL_DATA_ROOT", help="Folder of official records."),
]
HELP = """Type a tool's name and its argument; JSON where there are several that are not text.
  expert   let the expert make the next move
  help     the tools, and this
  quit     end the episode here
  : TEXT   say something without a tool"""
COLOURS = {"system": "dim", "user": "cyan", "tool": "cyan", "assistant": "green"}


def tasks(config: Settings = None, data_root: DataRoot = None) -> None:
    """List tasks: samples of each split, back ends, and what is missing and how to get it."""
    from rich.table import Table

    from agentrl.tasks.overview import BACK_ENDS, SPLITS, rows

    console, notes = _console(), []
    table = Table("task", "level", *SPLITS, "back ends")
    for column in table.columns[2:5]:
        column.justify = "right"
    seen: dict[str, list[str]] = {}
    for row in rows(None if config is None else load([config]), data_root):
        if row.task not in seen:
            seen[row.task] = []
            for end in BACK_ENDS.get(row.task, ()):
                missing = end.missing()
                seen[row.task].append(f"({end.name})" if missing else end.name)
                if missing or end.note:
                    notes.append((f"{row.task}, {end.name}", missing or end.note))
        counts = [f"{row.counts[split]:,}" if split in row.counts else "-" for split in SPLITS]
        table.add_row(row.task, row.level, *counts, ", ".join(seen[row.task]) or "its own")
        if row.missing:
            notes.append((f"{row.task}, {row.level}", row.missing))
    console.print(table)
    for what, how in notes:
        console.print(f"{what}: {how}", markup=False, highlight=False, soft_wrap=True)
    console.print("(…): missing here. Official records: agentrl data get --help", markup=False)


def play(
    task: Annotated[str, typer.Argument(help="Task, as in the config.")],
    index: Annotated[int, typer.Option("--index", min=0, help="Number of the sample.")] = 0,
    split: Annotated[str, typer.Option("--split", help="train, dev or std.")] = "dev",
    config: Settings = None,
    data_root: DataRoot = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of the episode.")] = 0,
) -> None:
    """Play an episode in the terminal, or from a file of lines on stdin."""
    from agentrl.tasks.registry import create_task

    whole = None if config is None else load([config])
    if whole is not None and task not in whole.tasks:
        raise ConfigError(f"task {task!r}: not in {config}; it has {', '.join(whole.tasks)}")
    settings = TaskConfig(prompt="agentbench") if whole is None else whole.tasks[task]
    root = data_root if whole is None or whole.data_root is None else whole.data_root
    made = create_task(task, settings, root)
    # The loop rests while a person thinks, so that Ctrl-C at the prompt works as everywhere.
    with asyncio.Runner() as runner:
        try:
            samples = made.samples(split)
            if index >= len(samples):
                raise ConfigError(f"--index {index}: {task}/{split} has {len(samples)} samples")
            _play(made, samples[index], seed, runner, _console())
        finally:
            runner.run(made.close())


def _play(task: Task, sample: Sample, seed: int, runner: asyncio.Runner, console: Console) -> None:
    episode = runner.run(task.start(sample, seed))
    try:
        console.rule(f"{task.name}, {task.level}: {sample.split} {sample.index}")
        _show(console, episode.messages)
        _show_help(console, task.tools)
        last = _turns(task, episode, task.expert(sample, seed), runner, console)
        console.rule("the end")
        if last is None or not last.done:
            console.print("left before the end")
        else:
            metrics = ", ".join(f"{name} {value:g}" for name, value in last.metrics.items())
            console.print(
                f"reward {last.reward:g}, {last.status}; {metrics}", highlight=False, soft_wrap=True
            )
    finally:
        runner.run(episode.close())


def _turns(
    task: Task, episode: Episode, expert: Expert, runner: asyncio.Runner, console: Console
) -> Step | None:
    """The last step; None where there was none."""
    from agentrl.tasks.typed import UnclearLine, read_line

    unseen = list(episode.messages)  # by the expert
    last: Step | None = None
    turn = 1
    names = {tool.name for tool in task.tools}
    while last is None or not last.done:
        line = _ask(f"turn {turn}> ")
        command = line if line not in names else None
        if line is None or command == "quit":
            return last
        if command == "":
            continue
        if command == "help":
            _show_help(console, task.tools)
            continue
        if command == "expert":
            try:
                message = expert.act(unseen)
            except Exception as error:  # it planned for moves of its own
                console.print(f"the expert does not know what to do here: {error!r}", markup=False)
                continue
            unseen = []
            _show(console, [message])
        else:
            try:
                message = read_line(task.tools, line, f"call_{turn}")
            except UnclearLine as error:
                console.print(str(error), style="yellow", markup=False, highlight=False)
                continue
        last = runner.run(episode.step(message))
        unseen += last.messages
        turn += 1
        _show(console, last.messages)
    return last


def _ask(prompt: str) -> str | None:
    """A line without its end, or None where there is none left. Echoed where no person types it."""
    if sys.stdin.isatty():
        import readline  # noqa: F401  (gives `input` a history)

        try:
            return input(prompt).strip()
        except EOFError:
            return None
    line = sys.stdin.readline()
    print(f"{prompt}{line.strip()}")
    return line.strip() if line else None


def _console() -> Console:
    from rich.console import Console

    return Console(soft_wrap=False)


def _show(console: Console, messages: tuple[Message, ...] | list[Message]) -> None:
    for message in messages:
        style = COLOURS[message.role]
        lines = [message.content] if message.content else []
        lines += [f"{call.name} {call.arguments}" for call in message.tool_calls]
        who = f"{message.role} {message.name}" if message.name else message.role
        console.print(f"[{who}]", style=f"bold {style}", markup=False, highlight=False)
        console.print("\n".join(lines), style=style, markup=False, highlight=False, soft_wrap=True)


def _show_help(console: Console, tools: tuple[ToolSpec, ...]) -> None:
    from agentrl.tasks.typed import usage

    for tool in tools:
        console.print(f"  {usage(tool)}   {tool.description}", markup=False, highlight=False)
    console.print(HELP, markup=False, highlight=False)
