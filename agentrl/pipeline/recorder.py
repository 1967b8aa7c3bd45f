"""What a training run leaves behind while it runs: history, trajectories, TensorBoard, progress.

The history is a line a row in the state folder, cut back to the snapshot when a run resumes; each
step's trajectories are one file that a repeated step replaces. So a killed run and the unbroken one
leave the same records.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, Self

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from torch.utils.tensorboard import SummaryWriter

from agentrl.pipeline.history import WHOLE_STEP, scalars
from agentrl.rollout.trajectory import Trajectory
from agentrl.rollout.trajectory_io import write_trajectories

log = logging.getLogger(__name__)


class History(Protocol):
    """Where history rows go: a run's state folder, or a list."""

    def append(self, row: Mapping[str, Any], /) -> object: ...


class RunRecorder:
    """Records one run; use as a context manager.

    Args:
        history: takes the history rows.
        trajectories: folder of `step-<n>.parquet`, n from 0; None: they are not kept.
        tensorboard: folder of event files.
        run: the run's name, as a person sees it.
        steps, done: optimiser steps in all, and those that an earlier process has done.
    """

    def __init__(
        self,
        history: History,
        trajectories: Path | None,
        tensorboard: Path,
        *,
        run: str,
        steps: int,
        done: int,
    ) -> None:
        self._history, self._trajectories = history, trajectories
        if trajectories is not None:
            trajectories.mkdir(parents=True, exist_ok=True)
        self._writer = SummaryWriter(str(tensorboard), purge_step=done)
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}"),
        )
        self._bar = self._progress.add_task(run, total=steps, completed=done, note="")
        self._run, self._steps = run, steps

    def __enter__(self) -> Self:
        if self._progress.console.is_terminal:
            self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()
        self._writer.close()

    def step(
        self,
        step: int,
        trajectories: Sequence[Trajectory],
        rows: Sequence[Mapping[str, Any]],
        report: Mapping[str, float],
    ) -> None:
        if self._trajectories is not None:
            write_trajectories(self._trajectories / f"step-{step:06d}.parquet", trajectories)
        for row in rows:
            self._history.append(row)
        for name, value in scalars(rows, report).items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()  # or a killed run lacks what its snapshot says is done
        note = " ".join(
            f"{row['task']} {row['success_mean']:.2f}"
            for row in rows
            if row["task"] != WHOLE_STEP and row["success_mean"] is not None
        )
        self._progress.update(self._bar, completed=step + 1, note=note)
        if not self._progress.console.is_terminal:
            seconds = rows[-1].get("seconds")
            log.info("%s step %d/%d: %s (%.1f s)", self._run, step + 1, self._steps, note, seconds)
