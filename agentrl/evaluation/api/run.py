"""Plays the samples of a split with one model behind an API, or with several in turns.

Invariants: a finished episode is never paid for again, so an evaluation that was stopped, whatever
stopped it, goes on when it is started again (9); episodes that failed are then tried again, and
stand in the file as rows without a reward until they succeed (4); what cannot get better by trying
ends the evaluation in one line.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from agentrl.config import Config
from agentrl.errors import ConfigError
from agentrl.evaluation.api.endpoint import Endpoint
from agentrl.evaluation.api.episode import ApiEpisode, Played, transcript
from agentrl.evaluation.api.journal import Journal
from agentrl.evaluation.api.usage import Tally
from agentrl.evaluation.rows import GREEDY, SAMPLED, Job, jobs, row, write_rows
from agentrl.hosting.client import EnvironmentClient
from agentrl.hosting.environments import open_environments
from agentrl.messages import Status
from agentrl.rollout.conductor import Conductor

log = logging.getLogger(__name__)

_DECIDES = {
    "protocol",
    "base_url",
    "model",
    "parameters",
    "max_output_tokens",
    "takes_temperature",
    "takes_seed",
    "weight",
}
"""Settings of a model that decide what it answers; the others may change from start to start."""

_SIZES = {"train_samples", "dev_samples", "std_samples", "train_split"}
"""Settings of a task that do not change any one sample."""


async def evaluate_models_to_file(
    config: Config,
    *,
    models: Sequence[str],
    name: str,
    seed: int,
    split: str,
    output: Path,
    environment: Mapping[str, str] = os.environ,
) -> None:
    """Write `output` (columns of `reporting.episodes`), its provenance, and its journal.

    Args:
        models: names of `config.models`; of several, one is drawn for each turn.
        name: the row of the table that these episodes belong to.
        environment: where keys are looked up.
    """
    started = time.monotonic()
    chosen = _chosen(config, models)
    journal = Journal(journal_path(output), _identity(config, models, name, seed, split))
    async with AsyncExitStack() as stack:
        stack.enter_context(journal)
        environments = await stack.enter_async_context(
            # Nothing here waits for all episodes at once: a start may wait for a slot.
            open_environments(config, dict.fromkeys(config.tasks, split), live=0)
        )
        tasks = environments.tasks
        endpoints = {
            model: Endpoint(
                model,
                settings,
                environment,
                spent=journal.spent.get(model),
                served=journal.served.get(model),
            )
            for model, settings in chosen.items()
        }
        for endpoint in endpoints.values():
            stack.push_async_callback(endpoint.close)
        greedy = all(settings.takes_temperature for settings in chosen.values())
        modes = (SAMPLED, GREEDY) if greedy else (SAMPLED,)
        todo = [job for mode in modes for job in jobs(config, tasks, split, seed, mode)]
        waiting = [job for job in todo if not _finished(journal, job)]
        if len(waiting) < len(todo):
            log.info("%s: %d of %d episodes are there already", name, len(todo) - len(waiting), len(todo))  # fmt: skip
        progress = _Progress(name, len(waiting))
        play = partial(_play, config, environments.client, endpoints, journal, progress)
        conductor = Conductor([], lockstep=False)
        stack.push_async_callback(conductor.close)
        await conductor.run_all(
            [partial(play, job) for job in waiting], config.evaluation.concurrency
        )
    records = [journal.episodes[_key(job)] for job in todo]
    rows = [
        row(job, record["status"], record["reward"], record["metrics"], record["tokens"])
        for job, record in zip(todo, records, strict=True)
    ]
    write_rows(
        output,
        rows,
        config,
        tasks,
        name=name,
        seed=seed,
        started=started,
        policy=f"models: {', '.join(models)}",
        models={model: _account(journal, config, model) for model in models},
    )
    _report(
        name, journal, config, models, [r for r in records if r["error"] and r["reward"] is None]
    )


@dataclass(slots=True)
class _Progress:
    """Says every twentieth part of the way how far an evaluation is."""

    name: str
    total: int
    done: int = 0
    failed: int = 0

    def ended(self, played: Played, endpoints: Mapping[str, Endpoint]) -> None:
        before = self.done * 20 // self.total
        self.done += 1
        self.failed += played.status.is_infrastructure
        if self.done * 20 // self.total > before:
            costs = [e.tally.cost(e.config.prices) for e in endpoints.values()]
            known = [cost for cost in costs if cost is not None]
            log.info(
                "%s: %d of %d episodes, %d failed%s",
                self.name,
                self.done,
                self.total,
                self.failed,
                f", {sum(known):.2f} US dollars" if len(known) == len(costs) else "",
            )


def journal_path(output: Path) -> Path:
    return output.with_suffix(".episodes.jsonl")


def _chosen(config: Config, models: Sequence[str]) -> dict[str, Any]:
    for model in models:
        if model not in config.models:
            known = ", ".join(config.models) or "none; write one under models"
            raise ConfigError(f"--model {model!r}: not in the config; it has {known}")
        if models.count(model) > 1:
            raise ConfigError(f"--model {model!r}: given twice; set models.{model}.weight instead")
    return {model: config.models[model] for model in models}


def _identity(
    config: Config, models: Sequence[str], name: str, seed: int, split: str
) -> dict[str, Any]:
    """What another start must have in common. More samples, repeats or speed are no difference."""
    return {
        "row": name,
        "seed": seed,
        "split": split,
        "temperature": config.evaluation.temperature,
        **{
            f"models.{model}": config.models[model].model_dump(mode="json", include=_DECIDES)
            for model in models
        },
        **{
            f"tasks.{task}": c.model_dump(mode="json", exclude=_SIZES)
            for task, c in config.tasks.items()
        },
    }


def _key(job: Job) -> tuple[Any, ...]:
    return (job.sample.task, job.sample.split, job.sample.index, job.repeat, job.mode)


def _finished(journal: Journal, job: Job) -> bool:
    record = journal.episodes.get(_key(job))
    return record is not None and not Status(record["status"]).is_infrastructure


async def _play(
    config: Config,
    client: EnvironmentClient,
    endpoints: Mapping[str, Endpoint],
    journal: Journal,
    progress: _Progress,
    job: Job,
) -> None:
    episode = ApiEpisode(client, endpoints, job, config.evaluation.temperature)
    try:
        played = await episode.run(config.pipeline.episode_attempts)
    except BaseException:
        journal.add(_costs(episode.played, endpoints))
        raise
    journal.add(
        {
            "key": _key(job),
            "seed": job.seed,
            "status": str(played.status),
            "reward": played.reward,
            "metrics": played.metrics,
            "tokens": played.tokens,
            "error": played.error,
            "seconds": played.seconds,
            "finish_reasons": played.finish_reasons,
            "messages": transcript(played),
            **_costs(played, endpoints),
        }
    )
    progress.ended(played, endpoints)


def _costs(played: Played, endpoints: Mapping[str, Endpoint]) -> dict[str, Any]:
    return {
        "spent": {model: tally.to_dict() for model, tally in played.spent.items()},
        "served": {m: e.served for m, e in endpoints.items() if e.served and m in played.spent},
    }


def _account(journal: Journal, config: Config, model: str) -> dict[str, Any]:
    """For the provenance: over all starts, also of episodes that were played again."""
    tally = journal.spent.get(model, Tally())
    return {
        "served": journal.served.get(model),
        **tally.to_dict(),
        "cost": tally.cost(config.models[model].prices),
    }


def _report(
    name: str,
    journal: Journal,
    config: Config,
    models: Sequence[str],
    failed: Sequence[Mapping[str, Any]],
) -> None:
    for model in models:
        tally = journal.spent.get(model, Tally())
        cost = tally.cost(config.models[model].prices)
        log.info(
            "%s, %s: %d answers, %d failed tries, %d tokens read, %d written, %s",
            name,
            model,
            tally.answers,
            tally.failures,
            tally.usage.total - tally.usage.output,
            tally.usage.output,
            "cost unknown" if cost is None else f"{cost:.4f} US dollars",
        )
    if failed:
        log.warning(
            "%s: %d episodes failed and have no reward, the first one: %s; run the same command again "
            "to try them again",
            name,
            len(failed),
            failed[0]["error"],
        )
