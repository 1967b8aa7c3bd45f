"""What samples tokens: the contract of every engine.

Invariants: token ids in, token ids out (1); log-probabilities are those of the distribution that
was sampled from, temperature and all (2, pitfall 22); every token carries the version of the
weights that produced it, so a completion may carry two versions when weights arrive in between
(pitfall 32); nothing computed by one version's weights is reused under another's (pitfall 25).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

FinishReason = Literal["stop", "length", "cancelled"]


@dataclass(frozen=True, slots=True)
class Sampling:
    """How one completion is sampled.

    `seed` with the token's position in the episode decides each draw, so a completion does not
    depend on which other episodes share the batch. Temperature 0 means greedy; its
    log-probabilities are those of temperature 1.
    """

    temperature: float = 1.0
    max_new_tokens: int = 64
    stop_token_ids: tuple[int, ...] = ()
    seed: int = 0


@dataclass(slots=True)
class Completion:
    """Sampled ids (the stop token included) with a log-probability and a version each."""

    token_ids: list[int]
    logprobs: list[float]
    policy_version: list[int]
    finish_reason: FinishReason


class Engine(Protocol):
    """Samples tokens for many sessions at once."""

    @property
    def version(self) -> int:
        """Version of the weights that sample now."""
        ...

    @property
    def digest(self) -> str:
        """Checksum of the weights that sample now, taken from what the engine really holds."""
        ...

    async def generate(
        self,
        prompt_ids: Sequence[int],
        sampling: Sampling,
        *,
        session: int,
        partial: Completion | None = None,
    ) -> Completion:
        """Sample one completion after `prompt_ids`.

        `session` names the episode: its turns come one after the other with prompts that extend
        each other, so the engine may keep their KV cache. `partial` continues a completion that
        was cut off (a resumed run): its tokens count towards `max_new_tokens` and come back in
        front of the new ones. Raises `InfrastructureError` when the engine cannot serve.
        """
        ...

    async def load_weights(self, version: int, path: Path) -> None:
        """Take new weights at the next decode step; running completions go on under them.

        Returns when they sample. Raises `InfrastructureError` when the engine does not hold them
        afterwards, `StateError` when the file is damaged or of another model.
        """
        ...

    def drop_caches(self) -> None:
        """Forget what was computed for running completions; they go on as partial ones.

        A run that was resumed from a snapshot has no caches either, so after this call both
        compute the same (invariant 9).
        """
        ...

    def partial(self, session: int) -> Completion | None:
        """What the running completion of a session holds so far; None when none is running."""
        ...

    def release(self, session: int) -> None:
        """Forget a session; cancels its running completion. Idempotent."""
        ...

    async def close(self) -> None: ...
