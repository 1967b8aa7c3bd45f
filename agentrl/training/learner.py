"""Trajectories in, better weights out: advantages, minibatches, gradient steps.

Invariants: the learner sees the ids that the engine sampled (1) and a mask made with them (7 of the
pitfalls); the loss of an optimiser step is Σ over its tokens / all its sampled tokens, however it
is cut, micro-batches and ranks alike (7); what a step does depends on its trajectories and (seed, step), never on their order, the
clock or what ran before (8), so a restored learner goes on bit by bit (9); an engine that does not
sample from the distribution that is trained on is noticed at the first step, one that did
not take an update at the first tokens of that version (pitfalls 22 and 26).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate.utils import DistributedType

from agentrl.algorithms.losses import policy_loss
from agentrl.algorithms.statistics import AGES, LossStatistics, StepStatistics
from agentrl.config.models import Config
from agentrl.errors import ConfigError, InfrastructureError, StateError
from agentrl.rollout.policy import Policy, load_policy, save_policy
from agentrl.rollout.trajectory import Trajectory
from agentrl.training.adapters import (
    add_adapters,
    exported_weights,
    is_adapted,
    recompute_activations,
)
from agentrl.training.batch import MicroBatch, Row, micro_batches, split_minibatches
from agentrl.training.files import write_json
from agentrl.training.ranks import create_accelerator, merged, micro_batches_of_rank, over_ranks
from agentrl.training.schedule import schedule
from agentrl.training.scorer import TokenScorer
from agentrl.training.step_batch import StepBatch, prepare_step
from agentrl.training.tracking import start_trackers, stop_trackers
from agentrl.training.weights import (
    WeightsRef,
    load_state,
    publish_weights,
    save_state,
    whole,
)

CHECKED_TRAJECTORIES = 4
"""Per task, in the comparison of engine and learner."""
ENGINE_TOLERANCE = {"fp32": 1.0e-3, "bf16": 5.0e-2}
"""Largest mean |log p(engine) - log p(learner)| on equal weights, by `rollout.dtype`."""


class Learner:
    """The policy being trained, its optimizer and its step count; one a rank.

    Args:
        policy: its model, any Hugging Face causal language model, is trained in float32.
        seed: of the run; decides the minibatches.
        reference: the same model once more, which stays as it is; needed when `kl_coefficient` is set.
    """

    def __init__(self, policy: Policy, config: Config, seed: int, reference: Any = None) -> None:
        self.algorithm = config.algorithm
        self.training = config.training
        self.room = config.rollout.max_total_tokens
        if config.rollout.max_total_tokens > self.training.max_tokens_per_microbatch:
            raise ConfigError(
                "config key 'training.max_tokens_per_microbatch': "
                f"{self.training.max_tokens_per_microbatch} is less than rollout.max_total_tokens "
                f"({config.rollout.max_total_tokens}), so long episodes would never be trained on; "
                "raise the one or lower the other"
            )
        if self.algorithm.kl_coefficient and reference is None:
            raise ValueError("algorithm.kl_coefficient is set, so a reference model is needed")
        self.seed = seed
        self._tokenizer, self._card = policy.tokenizer, policy.card
        self.step = 0
        self.engine_tolerance = ENGINE_TOLERANCE[config.rollout.dtype]
        self._published: int | None = 0  # the version that an engine has of the present weights
        self._engine_checked: set[bool] = set()  # False: weights it came with; True: an update
        self.accelerator = create_accelerator()
        self.ranks, self.rank = self.accelerator.num_processes, self.accelerator.process_index
        model = policy.model.float()
        if self.training.lora is not None:
            model = add_adapters(model, self.training.lora, seed)
        if self.accelerator.distributed_type != DistributedType.FSDP:  # which places its own shards
            model = model.to(self.accelerator.device)
        scorer = TokenScorer(model, config.rollout.temperature)
        if self.training.gradient_checkpointing:
            recompute_activations(model)
        optimizer = torch.optim.AdamW(
            [parameter for parameter in scorer.parameters() if parameter.requires_grad],
            lr=self.training.learning_rate,
            betas=self.training.betas,
            weight_decay=self.training.weight_decay,
        )
        self.scorer, self.optimizer = self.accelerator.prepare(scorer, optimizer)
        self.reference: TokenScorer | None = None
        if self.algorithm.kl_coefficient:
            frozen = reference.float().to(self.accelerator.device).requires_grad_(False)
            self.reference = TokenScorer(frozen, config.rollout.temperature)

    @classmethod
    def create(cls, policy_path: Path, config: Config, seed: int) -> Learner:
        """A learner that starts from the policy folder `policy_path` (version 0)."""
        policy = load_policy(policy_path)
        reference = load_policy(policy_path).model if config.algorithm.kl_coefficient else None
        return cls(policy, config, seed, reference)

    @property
    def model(self) -> Any:
        return self.accelerator.unwrap_model(self.scorer).model

    def train_step(self, trajectories: Sequence[Trajectory]) -> dict[str, float]:
        """One step of training on the trajectories of one step; any order.

        Returns means over the tokens that carried a gradient, of all and by task, role and age
        (`StepStatistics.metrics`); `loss` as `algorithm.loss_mean` says; counters of
        `StepBatch.counts`; `grad_norm`, `learning_rate`, `optimizer_steps`, `skipped_minibatches`.
        A step of dead groups only changes nothing but the step count (pitfall 37).
        """
        batch = self.prepare(trajectories)
        metrics = batch.counts()
        metrics |= self._check_engine(batch)
        rate = self.training.learning_rate * schedule(
            self.step,
            steps=self.training.steps,
            warmup_steps=self.training.warmup_steps,
            decay_fraction=self.training.decay_fraction,
        )
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        rows = {i: batch.row(i) for i, live in enumerate(batch.live) if live}
        if self.algorithm.proximal == "step":
            rows = self._with_proximal(rows)
        statistics = StepStatistics.empty(len(batch.tasks), len(batch.roles))
        counted, norms, skipped = 0.0, [], 0
        for epoch in range(self.training.epochs):
            for part in split_minibatches(
                [t.group_id for t in batch.trajectories],
                batch.task_ids,
                self.training.minibatches,
                self.seed,
                self.step,
                epoch,
            ):
                trained = [rows[index] for index in part if index in rows]
                if not trained:
                    skipped += 1
                    continue
                denominator = batch.denominator(part)
                counted += denominator
                statistics += self.accumulate(
                    trained, denominator, len(batch.tasks), len(batch.roles)
                )
                norms.append(self._optimizer_step())
        statistics = over_ranks(statistics, self.accelerator)
        self.step += 1
        if norms:
            self._published = None
            metrics["loss"] = statistics.tasks.loss / counted
            metrics["grad_norm"] = sum(norms) / len(norms)
        metrics |= {
            "learning_rate": rate,
            "optimizer_steps": float(len(norms)),
            "skipped_minibatches": float(skipped),
        }
        return metrics | statistics.metrics(batch.tasks, batch.roles)

    def prepare(self, trajectories: Sequence[Trajectory]) -> StepBatch:
        """What the next step would train on."""
        return prepare_step(
            trajectories,
            self.algorithm,
            budget=self.training.max_tokens_per_microbatch,
            room=self.room,
            version=self.step,
        )

    def accumulate(
        self, rows: Sequence[Row], denominator: float, tasks: int, roles: int
    ) -> StepStatistics:
        """Add the gradient of one optimiser step's loss, Σ over `rows` / `denominator`.

        Every rank is given all rows and trains its share; the statistics are of that share.
        """
        statistics = StepStatistics.empty(tasks, roles)
        micros = micro_batches_of_rank(
            rows, self.training.max_tokens_per_microbatch, self.rank, self.ranks
        )
        for number, (micro, own) in enumerate(micros):
            micro = micro.to(self.accelerator.device)
            last = number == len(micros) - 1
            with nullcontext() if last else self.accelerator.no_sync(self.scorer):
                with self._autocast():
                    scores, entropy = self.scorer(
                        micro.input_ids, micro.select, micro.targets, with_entropy=True
                    )
                loss, columns = policy_loss(
                    scores[: micro.count],
                    micro.behaviour,
                    micro.advantages,
                    denominator,
                    self.algorithm,
                    weights=micro.weights,
                    sequence_ids=micro.row_ids,
                    proximal=micro.proximal if self.algorithm.proximal == "step" else None,
                    reference=self._reference_logprobs(micro),
                    entropy=entropy[: micro.count],
                )
                if self.ranks > 1:  # whose gradients are averaged, but are to be added up
                    loss = loss * (self.ranks if own else 0)
                self.accelerator.backward(loss)
            if own:
                statistics += StepStatistics(
                    LossStatistics.of(columns, micro.task_ids, tasks),
                    LossStatistics.of(columns, micro.role_ids, roles),
                    LossStatistics.of(columns, micro.age_ids, len(AGES)),
                )
        return statistics

    def publish(self, folder: Path, version: int) -> WeightsRef | None:
        """Write the weights for the engines as `version`, atomically; the first rank alone does and
        returns where. Raises `StateError`."""
        out = publish_weights(exported_weights(self.model), folder, version, writes=self.rank == 0)
        self._published = version
        return out

    def export_policy(self, path: Path) -> None:
        """Write the present policy as a folder like the one it came from. Raises `StateError`."""
        provenance = {
            **self._card.provenance,
            "training_steps": self.step,
            "training_seed": self.seed,
        }
        card, model = replace(self._card, provenance=provenance), self.model
        weights = None
        if is_adapted(model) or self.accelerator.distributed_type == DistributedType.FSDP:
            weights = {name: whole(value) for name, value in exported_weights(model).items()}
        if self.rank == 0:
            plain = model.get_base_model() if is_adapted(model) else model
            save_policy(path, plain, self._tokenizer, card, weights)

    def save(self, folder: Path) -> None:
        """Everything `load` needs, into an existing folder (a snapshot in the making).

        There is no random state to save: the order of minibatches derives from (seed, step).
        """
        writes = self.rank == 0
        save_state(folder / "learner.safetensors", self.model, [self.optimizer], writes=writes)
        record = {"step": self.step, "seed": self.seed, "published": self._published}
        if writes:
            write_json(folder / "learner.json", record)

    def load(self, folder: Path) -> int:
        """Go on where `save` was called; returns the step. Raises `StateError`."""
        try:
            record = json.loads((folder / "learner.json").read_text(encoding="utf-8"))
            step, seed, published = record["step"], record["seed"], record["published"]
        except (OSError, ValueError, KeyError) as error:
            raise StateError(f"cannot read {folder / 'learner.json'}: {error!r}") from error
        if seed != self.seed:
            raise StateError(f"{folder} is the state of seed {seed}, this run has {self.seed}")
        load_state(folder / "learner.safetensors", self.model, [self.optimizer])
        self.step, self._published = step, published
        return self.step

    def start_tracking(self, names: Sequence[str], run: str, settings: Mapping[str, Any]) -> None:
        """Open trackers for `log`; see `training.tracking`."""
        start_trackers(self.accelerator, names, run, settings)

    def log(self, step: int, values: Mapping[str, float]) -> None:
        self.accelerator.log(dict(values), step=step)

    def close(self) -> None:
        stop_trackers(self.accelerator)
        self.accelerator.free_memory()

    def _autocast(self) -> torch.autocast:
        # Not Accelerator's: its precision is one per process, a learner's is its own.
        enabled = self.training.autocast == "bf16"
        return torch.autocast(self.accelerator.device.type, torch.bfloat16, enabled=enabled)

    def _optimizer_step(self) -> float:
        clipped = self.accelerator.clip_grad_norm_(
            self.scorer.parameters(), self.training.grad_clip
        )
        norm = float(whole(clipped))
        if not np.isfinite(norm):
            raise FloatingPointError(f"step {self.step}: the gradient's norm is {norm}")
        self.optimizer.step()
        self.optimizer.zero_grad()
        return norm

    @torch.no_grad()
    def _with_proximal(self, rows: Mapping[int, Row]) -> dict[int, Row]:
        """The rows with the log-probabilities of the present weights, those of the step's start."""
        numbers, out = list(rows), {}
        budget = self.training.max_tokens_per_microbatch
        every = [rows[number] for number in numbers]
        for micro, own in micro_batches_of_rank(every, budget, self.rank, self.ranks):
            micro = micro.to(self.accelerator.device)
            with self._autocast():
                scores, _ = self.scorer(micro.input_ids, micro.select, micro.targets)
            values = scores[: micro.count].cpu().numpy()
            of_row = micro.row_ids.cpu().numpy()
            for place, index in enumerate(own):
                row = every[index]
                proximal = np.zeros(len(row.weights), np.float32)
                proximal[row.weights != 0] = values[of_row == place]
                out[numbers[index]] = proximal
        found = merged(out, self.accelerator)
        return {number: replace(rows[number], proximal=found[number]) for number in numbers}

    @torch.no_grad()
    def _reference_logprobs(self, micro: MicroBatch) -> torch.Tensor | None:
        if self.reference is None:
            return None
        with self._autocast():
            scores, _ = self.reference(micro.input_ids, micro.select, micro.targets)
        out: torch.Tensor = scores[: micro.count]
        return out

    @torch.no_grad()
    def _check_engine(self, batch: StepBatch) -> dict[str, float]:
        """Compare engine and learner, in float32, on tokens sampled from these very weights: once on
        those that both started with, once on an update (pitfall 26).

        Raises `InfrastructureError` when they disagree: another temperature, other weights.
        """
        if self._published is None or (self._published > 0) in self._engine_checked:
            return {}
        rows, seen = [], [0] * len(batch.tasks)
        for index, trajectory in enumerate(batch.trajectories):
            same = trajectory.loss_mask & (trajectory.policy_version == self._published)
            task = batch.task_ids[index]
            if same.any() and not batch.too_long[index] and seen[task] < CHECKED_TRAJECTORIES:
                seen[task] += 1
                weights = same.astype(np.float32)
                rows.append(
                    Row(trajectory.token_ids, weights, behaviour=trajectory.behaviour_logprobs)
                )
        if not rows:
            return {}
        total, count = 0.0, 0
        for micro in micro_batches(rows, self.training.max_tokens_per_microbatch):
            micro = micro.to(self.accelerator.device)
            scores, _ = self.scorer(micro.input_ids, micro.select, micro.targets)
            total += float((scores[: micro.count] - micro.behaviour).abs().sum())
            count += micro.count
        gap = total / count
        if not gap <= self.engine_tolerance:
            raise InfrastructureError(
                f"engine and learner disagree on version {self._published}: mean |log p| difference "
                f"{gap:.2g} over {count} tokens, tolerance {self.engine_tolerance:g}; check that the "
                "engine samples at rollout.temperature, returns processed log-probabilities and "
                "holds the published weights"
            )
        self._engine_checked.add(self._published > 0)
        return {"engine_gap": gap}
