"""Behaviour cloning, one optimiser step at a time.

Invariants: the loss is a weighted mean over the whole step's tokens of each task, then a mean over
the tasks, so that no task drowns another and no cut into micro-batches matters (7); saved and
loaded, it goes on bit by bit (9).

The recipe is measured (mini.md §2): Muon on the hidden matrices and AdamW on embeddings and norms.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from torch.optim import AdamW, Optimizer

from agentrl.config.cloning import WarmStartStage
from agentrl.config.models import Config
from agentrl.errors import StateError
from agentrl.training.batch import Row, micro_batches
from agentrl.training.files import write_json
from agentrl.training.muon import Muon
from agentrl.training.scorer import TokenScorer
from agentrl.training.weights import load_state, save_state

MUON_MOMENTUM = 0.95
ADAM_BETAS = (0.9, 0.95)


class Cloner:
    """The policy in behaviour cloning: one optimiser step at a time."""

    def __init__(self, model: Any, config: Config) -> None:
        self.settings = config.warm_start
        self.autocast = config.training.autocast == "bf16"
        self.device = Accelerator(mixed_precision="no").device
        self.model = model.float().to(self.device)
        self.scorer = TokenScorer(self.model)
        self.optimizers: list[Optimizer] = []
        self._base_rates: list[float] = []

    def begin_stage(self, stage: WarmStartStage) -> None:
        """Fresh optimizers: a stage has a warm-up of its own."""
        settings = self.settings
        embeddings = {
            id(layer.weight)
            for layer in (self.model.get_input_embeddings(), self.model.get_output_embeddings())
        }
        parameters = list(self.model.parameters())
        matrices = [p for p in parameters if p.ndim == 2 and id(p) not in embeddings]
        others = [p for p in parameters if p.ndim != 2 or id(p) in embeddings]
        hidden: Optimizer
        if settings.optimizer == "muon":
            hidden = Muon(
                matrices,
                lr=stage.learning_rate,
                weight_decay=settings.weight_decay,
                momentum=MUON_MOMENTUM,
            )
        else:
            hidden = AdamW(
                matrices,
                lr=stage.learning_rate,
                weight_decay=settings.weight_decay,
                betas=ADAM_BETAS,
            )
        rate = settings.embedding_learning_rate
        self.optimizers = [
            hidden,
            AdamW(others, lr=rate, weight_decay=0.0, betas=ADAM_BETAS),
        ]
        self._base_rates = [stage.learning_rate, rate]

    def learn(self, rows: Sequence[Row], tasks: int, factor: float) -> list[float]:
        """One optimiser step; returns the loss of each task (weighted mean over its tokens)."""
        totals = np.zeros(tasks)
        for row in rows:
            totals[row.task] += row.weights.sum(dtype=np.float64)
        present = int((totals > 0).sum())
        share = torch.from_numpy(1.0 / np.maximum(totals, 1e-9)).float().to(self.device)
        losses = torch.zeros(tasks, device=self.device)
        for micro in micro_batches(rows, self.settings.max_tokens_per_microbatch):
            micro = micro.to(self.device)
            with torch.autocast(self.device.type, torch.bfloat16, enabled=self.autocast):
                scores, _ = self.scorer(micro.input_ids, micro.select, micro.targets)
            per_token = -scores[: micro.count] * micro.weights * share[micro.task_ids]
            (per_token.sum() / present).backward()
            losses.index_add_(0, micro.task_ids, per_token.detach())
        for optimizer, base in zip(self.optimizers, self._base_rates, strict=True):
            for group in optimizer.param_groups:
                group["lr"] = base * factor
            optimizer.step()
            optimizer.zero_grad()
        out: list[float] = losses.tolist()
        return out

    def save(self, folder: Path, stage: int, step: int) -> None:
        save_state(folder / "cloner.safetensors", self.model, self.optimizers)
        write_json(folder / "cloner.json", {"stage": stage, "step": step})

    def load(self, folder: Path, stages: Sequence[WarmStartStage]) -> tuple[int, int]:
        """Stage and step to go on with. Raises `StateError`."""
        try:
            record = json.loads((folder / "cloner.json").read_text(encoding="utf-8"))
            stage, step = int(record["stage"]), int(record["step"])
            self.begin_stage(stages[stage])
        except (OSError, ValueError, KeyError, IndexError) as error:
            raise StateError(f"cannot read {folder / 'cloner.json'}: {error!r}") from error
        load_state(folder / "cloner.safetensors", self.model, self.optimizers)
        return stage, step
