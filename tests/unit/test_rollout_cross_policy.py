"""Which policy speaks, and whether the weights that were sent have arrived."""

from math import comb

import pytest
import torch
from safetensors.torch import save_file

from agentrl.errors import InfrastructureError
from agentrl.rollout.cross_policy import PolicyPool
from tests.fakes import FakeEngine


def pool(ratio=0.25, refresh=3, **options):
    engines = {r: FakeEngine(lambda p, t, s: [1], **options) for r in ("current", "stale")}
    return PolicyPool(engines, stale_ratio=ratio, refresh_every=refresh)


@pytest.fixture
def weights(tmp_path):
    def write(version, value=None):
        path = tmp_path / f"weights-{version}.safetensors"
        tensors = {"w": torch.tensor([float(version if value is None else value)])}
        save_file(tensors, path, metadata={"version": str(version)})
        return path

    return write


def binomial_bounds(n, p, tail=1e-6):
    """Smallest [low, high] outside of which less than `tail` lies on each side, exactly."""
    mass = [comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(n + 1)]
    low = next(k for k in range(n + 1) if sum(mass[: k + 1]) > tail)
    high = next(k for k in range(n, -1, -1) if sum(mass[k:]) > tail)
    return low, high


@pytest.mark.parametrize("ratio", [0.0, 0.1, 0.25, 0.9, 1.0])
def test_the_share_of_stale_turns(ratio):
    drawn = [pool(ratio).draw(seed, turn) for seed in range(100) for turn in range(8)]
    low, high = binomial_bounds(800, ratio)
    assert low <= drawn.count("stale") <= high
    assert (ratio in (0.0, 1.0)) == (low == high)


def test_a_draw_depends_on_episode_and_turn_only():
    first, second = pool(0.5), pool(0.5)
    second.draw(99, 3)
    drawn = [first.draw(5, turn) for turn in range(64)]
    assert drawn == [second.draw(5, turn) for turn in reversed(range(64))][::-1]
    assert drawn != [first.draw(6, turn) for turn in range(64)]
    assert {first.draw(5, turn, validation=True) for turn in range(64)} == {"current"}


async def test_the_stale_copy_is_refreshed_every_few_versions(weights):
    made, seen = pool(refresh=3), []
    for version in range(1, 8):
        await made.load_weights(version, weights(version))
        seen.append((made.version, made.engines["stale"].version))
    assert seen == [(1, 0), (2, 0), (3, 3), (4, 3), (5, 3), (6, 6), (7, 6)]
    assert made.versions == {7, 6}
    # every engine forgets its caches with every version, so that a resumed run is the unbroken one
    assert [engine.drops for engine in made.engines.values()] == [7, 7]


async def test_an_engine_that_ignores_updates_stops_the_run(weights):
    """Pitfall 26, both kinds: the version does not move, or it moves and the weights do not."""
    with pytest.raises(InfrastructureError, match="'current' still samples with version 0 after"):
        await pool(ignores_updates="all").load_weights(1, weights(1))
    made = pool(ignores_updates="weights", refresh=100)
    with pytest.raises(InfrastructureError, match="its weights do not agree"):
        for version in (1, 2):
            await made.load_weights(version, weights(version))


async def test_a_step_that_changed_no_weight_is_no_failure(weights):
    """All groups dead: a new version with the same tensors (pitfall 37)."""
    made = pool(refresh=100)
    for version in (1, 2, 3):
        await made.load_weights(version, weights(version, value=7.0))
    assert made.version == 3


def test_release_reaches_every_engine():
    made = pool()
    made.release(12)
    assert [engine.released for engine in made.engines.values()] == [[12], [12]]
