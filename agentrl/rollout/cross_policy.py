"""The engines of a run by role, and which of them speaks at a turn (paper §3.1).

Invariants: the acting policy of a turn is drawn by (episode seed, turn) and nothing else (8), never
in validation (12); after weights were sent, an engine that does not hold them stops the run at once
(pitfall 26); when weights arrive every cache is forgotten, so a run that was resumed there computes
what the unbroken one does (9).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from agentrl.errors import ConfigError, InfrastructureError
from agentrl.randomness import stream
from agentrl.rollout.engine import Engine
from agentrl.rollout.weights import file_digest

CURRENT, STALE = "current", "stale"


class PolicyPool:
    """Engines under the names that a trajectory's `roles` lists.

    Args:
        engines: "current", and "stale" where `stale_ratio` is above 0.
        stale_ratio: probability that a turn goes to the stale copy.
        refresh_every: the stale copy takes every version that this divides.
    """

    def __init__(
        self, engines: Mapping[str, Engine], *, stale_ratio: float = 0.0, refresh_every: int = 1
    ) -> None:
        if CURRENT not in engines or (stale_ratio and STALE not in engines):
            raise ConfigError(
                f"config key 'rollout.cross_policy.stale_ratio': {stale_ratio} needs the engines "
                f"{CURRENT!r} and {STALE!r}, but there is only {', '.join(engines) or 'none'}"
            )
        self.engines = dict(engines)
        self.stale_ratio, self.refresh_every = stale_ratio, refresh_every
        self._delivered: dict[str, str] = {}

    @property
    def roles(self) -> tuple[str, ...]:
        return tuple(self.engines)

    @property
    def version(self) -> int:
        """Version of the newest weights."""
        return self.engines[CURRENT].version

    @property
    def versions(self) -> set[int]:
        """Every version that some engine samples with."""
        return {engine.version for engine in self.engines.values()}

    def draw(self, seed: int, turn: int, *, validation: bool = False) -> str:
        """Role of the policy that speaks at `turn` of the episode with `seed`."""
        if validation or not self.stale_ratio:
            return CURRENT
        draw = stream(seed, "acting policy", turn).random()
        return STALE if draw < self.stale_ratio else CURRENT

    async def load_weights(self, version: int, path: Path) -> None:
        """New weights: to the current policy, and to the stale copy when it is due.

        Raises `InfrastructureError` where an engine does not hold them afterwards.
        """
        due = [CURRENT]
        if STALE in self.engines and version % self.refresh_every == 0:
            due.append(STALE)
        for role in due:
            await self.load(role, version, path)
        self.drop_caches()

    async def load(self, role: str, version: int, path: Path) -> None:
        """Weights to one engine, as a resumed run needs it."""
        engine = self.engines[role]
        sent, held = file_digest(path), engine.digest
        await engine.load_weights(version, path)
        if engine.version != version:
            raise InfrastructureError(
                f"engine {role!r} still samples with version {engine.version} after version "
                f"{version} was sent to it ({path})"
            )
        known = self._delivered.get(role)
        if known is not None and (sent != known) != (engine.digest != held):
            raise InfrastructureError(
                f"engine {role!r} says it holds version {version}, but its weights do not agree "
                f"with {path}"
            )
        self._delivered[role] = sent

    def drop_caches(self) -> None:
        for engine in self.engines.values():
            engine.drop_caches()

    def release(self, session: int) -> None:
        """An episode has ended: every engine may forget it."""
        for engine in self.engines.values():
            engine.release(session)

    async def close(self) -> None:
        for engine in self.engines.values():
            await engine.close()
