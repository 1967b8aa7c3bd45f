"""Checks a recorded training run from the outside: tokens, log-probabilities, who spoke.

- Ids: every trajectory is rendered again by paths of their own (`rollout.audit`; invariant 1).
- Log-probabilities: tokens of version 0 are scored by the learner's code with the weights that the
  run started from, in float32, and compared with the engine's (invariant 2, pitfall 22).
- Roles: the share of turns of the stale policy, beside the configured probability.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from agentrl.config import Config
from agentrl.errors import DataError
from agentrl.rollout.audit import AuditReport, audit
from agentrl.rollout.policy import load_policy
from agentrl.rollout.trajectory import Trajectory
from agentrl.rollout.trajectory_io import read_trajectories
from agentrl.tasks.registry import create_task
from agentrl.training.batch import Row, micro_batches
from agentrl.training.scorer import TokenScorer

TOLERANCE = 1.0e-4
"""Of log-probabilities, for an engine in float32."""


@dataclass(frozen=True, slots=True)
class RunAudit:
    """What `audit_run` found."""

    tokens: AuditReport
    scored: int
    """Tokens of version 0 whose log-probabilities were compared."""
    gap: float
    """Largest |log p(engine) - log p(learner)| over them; NaN where there are none."""
    spoken: int
    """Turns of all trajectories."""
    stale: int
    """Those of the stale policy."""
    stale_ratio: float
    """The configured probability."""

    @property
    def stale_interval(self) -> tuple[float, float]:
        """Where the share should lie with 99.9%: `stale_ratio` ± 3.29 standard errors."""
        width = 3.29 * (self.stale_ratio * (1 - self.stale_ratio) / max(1, self.spoken)) ** 0.5
        return self.stale_ratio - width, self.stale_ratio + width

    @property
    def passed(self) -> bool:
        """Whether everything agrees; log-probabilities to `TOLERANCE`."""
        low, high = self.stale_interval
        agree = self.scored > 0 and self.gap <= TOLERANCE
        share = self.stale / max(1, self.spoken)
        return not self.tokens.mismatches and agree and low <= share <= high

    def __str__(self) -> str:
        low, high = self.stale_interval
        return (
            f"{self.tokens.trajectories} trajectories, {self.tokens.turns} turns: "
            f"{len(self.tokens.mismatches)} mismatches\n"
            f"log-probabilities of {self.scored} tokens at lag 0: largest difference {self.gap:.2g}\n"
            f"turns of the stale policy: {self.stale}/{self.spoken} = "
            f"{self.stale / max(1, self.spoken):.4f}, configured {self.stale_ratio} "
            f"(99.9% interval {low:.4f} to {high:.4f})"
        )


def audit_run(config: Config, start: Path, trajectories: Path, count: int) -> RunAudit:
    """Audit the first `count` recorded trajectories of a run.

    Args:
        config: the run's settings (tasks, temperature, stale ratio).
        start: the policy that the run started from: version 0.
        trajectories: folder of trajectory files, or one of them.
    """
    recorded = read_trajectories(trajectories)[:count]
    if not recorded:
        raise DataError(f"{trajectories} holds no trajectories")
    tools = {name: create_task(name, c, config.data_root).tools for name, c in config.tasks.items()}
    policy = load_policy(start, [tool for found in tools.values() for tool in found])
    report = audit(recorded, policy.renderer, policy.tokenizer, tools)
    gaps = _gaps(TokenScorer(policy.model, config.rollout.temperature), recorded, config)
    roles = [turn.role for trajectory in recorded for turn in trajectory.turns]
    return RunAudit(
        report,
        len(gaps),
        float(gaps.max()) if len(gaps) else float("nan"),
        len(roles),
        sum(role == "stale" for role in roles),
        config.rollout.cross_policy.stale_ratio,
    )


@torch.no_grad()
def _gaps(scorer: TokenScorer, trajectories: list[Trajectory], config: Config) -> np.ndarray:
    rows = [
        Row(t.token_ids, first.astype(np.float32), behaviour=t.behaviour_logprobs)
        for t in trajectories
        if (first := t.loss_mask & (t.policy_version == 0)).any()
    ]
    gaps = [np.zeros(0)]
    for micro in micro_batches(rows, config.training.max_tokens_per_microbatch):
        scores, _ = scorer(micro.input_ids, micro.select, micro.targets)
        gaps.append((scores[: micro.count] - micro.behaviour).abs().numpy())
    return np.concatenate(gaps)
