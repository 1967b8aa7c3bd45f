"""The learner on several ranks: who trains which rows, and how one rank speaks for all of them.

`accelerate launch` starts the same command once a rank. Rank 0 runs the training, and its learner
hands every request on; the others only hold a learner and do what they are told.

Invariants: the ranks' gradients add up to that of one rank (7); every rank runs equally many
micro-batches, since each may be a meeting of all (FSDP gathers weights in it); all ranks decide the
same from the same trajectories, so nothing but rows, sums and requests is exchanged; a rank that
fails ends the launch, it never hangs it (11).
"""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

from accelerate import Accelerator
from accelerate.utils import InitProcessGroupKwargs, broadcast_object_list, gather_object

from agentrl.algorithms.statistics import StepStatistics
from agentrl.errors import AgentRLError
from agentrl.rollout.trajectory import Trajectory
from agentrl.training.batch import MicroBatch, Row, collate, pack

K = TypeVar("K")
V = TypeVar("V")

PATIENCE = timedelta(days=1)
"""How long the ranks wait for each other: a step's episodes may take hours. A dead rank is noticed by
the launcher, or by the end of its connections."""


def create_accelerator() -> Accelerator:
    """For this process's rank; joins the others where there are any."""
    launched = int(os.environ.get("WORLD_SIZE", "1")) > 1
    handlers = [InitProcessGroupKwargs(timeout=PATIENCE)] if launched else None
    # Autocast is the learner's own: Accelerate's precision is one per process.
    return Accelerator(mixed_precision="no", kwargs_handlers=handlers)


def share(inputs: Sequence[int], rank: int, ranks: int) -> list[int]:
    """Indices of the rows that `rank` trains: dealt from the longest to the shortest, to and fro, so
    that the ranks get equally many and about as much to read.

    Args:
        inputs: tokens to read of every row.
    """
    if ranks == 1:
        return list(range(len(inputs)))
    order = sorted(range(len(inputs)), key=lambda i: (-inputs[i], i))
    out = []
    for place, index in enumerate(order):
        turn, seat = divmod(place, ranks)
        if rank == (seat if turn % 2 == 0 else ranks - 1 - seat):
            out.append(index)
    return out


def micro_batches_of_rank(
    rows: Sequence[Row], budget: int, rank: int, ranks: int
) -> list[tuple[MicroBatch, list[int]]]:
    """This rank's micro-batches, each with the indices of its rows.

    Every rank has as many; those without rows of their own are filled up with the cheapest row, and
    have no indices: what they compute must not count.
    """
    inputs = [row.inputs for row in rows]
    shares = [share(inputs, one, ranks) for one in range(ranks)]
    bins = [pack([inputs[index] for index in own], budget) for own in shares]
    own = shares[rank]
    out = []
    for places in bins[rank]:
        indices = [own[place] for place in places]
        out.append((collate([rows[index] for index in indices], budget), indices))
    missing = max(map(len, bins)) - len(out)
    if missing:
        idle = min((row for row in rows if row.inputs), key=lambda row: row.inputs)
        out += [(collate([idle], budget), [])] * missing
    return out


def over_ranks(statistics: StepStatistics, accelerator: Accelerator) -> StepStatistics:
    """The sum of every rank's, on every rank."""
    if accelerator.num_processes == 1:
        return statistics
    first, *others = gather_object([statistics])
    for other in others:
        first = first + other
    total: StepStatistics = first
    return total


def merged(part: Mapping[K, V], accelerator: Accelerator) -> dict[K, V]:
    """The entries of every rank's table, on every rank."""
    tables = gather_object([dict(part)]) if accelerator.num_processes > 1 else [part]
    return {key: value for table in tables for key, value in table.items()}


class RankedLearner:
    """Rank 0's learner with those of the other ranks behind it; methods as in `Learner`."""

    def __init__(self, learner: Any) -> None:
        self.learner = learner

    def train_step(self, trajectories: Sequence[Trajectory]) -> dict[str, float]:
        metrics: dict[str, float] = self._everywhere("train_step", trajectories)
        return metrics

    def publish(self, folder: Path, version: int) -> Any:
        return self._everywhere("publish", folder, version)

    def export_policy(self, path: Path) -> None:
        self._everywhere("export_policy", path)

    def save(self, folder: Path) -> None:
        self._everywhere("save", folder)

    def load(self, folder: Path) -> int:
        step: int = self._everywhere("load", folder)
        return step

    def start_tracking(self, names: Sequence[str], run: str, settings: Mapping[str, Any]) -> None:
        self.learner.start_tracking(names, run, settings)  # one rank's word is enough

    def log(self, step: int, values: Mapping[str, float]) -> None:
        self.learner.log(step, values)

    def close(self) -> None:
        broadcast_object_list([("close", ())], from_process=0)
        self.learner.close()

    def _everywhere(self, method: str, *arguments: Any) -> Any:
        broadcast_object_list([(method, arguments)], from_process=0)
        return getattr(self.learner, method)(*arguments)


def follow(learner: Any) -> None:
    """Do what rank 0 is asked to do, until it closes.

    An error that a person can mend is rank 0's to tell: it has met it too, and closes. Where it has
    not, and asks for more, this rank raises it.
    """
    for number in (signal.SIGINT, signal.SIGTERM):  # for rank 0, which saves and closes
        signal.signal(number, signal.SIG_IGN)
    failure: AgentRLError | None = None
    while True:
        request: list[Any] = [None]
        broadcast_object_list(request, from_process=0)
        method, arguments = request[0]
        if method == "close":
            learner.close()
            return
        if failure is not None:
            raise failure
        try:
            getattr(learner, method)(*arguments)
        except AgentRLError as error:
            failure = error
