"""Every random choice derives from (run seed, stream name, counters): invariant 8.

`derive` hashes them with BLAKE2b, so a stream is independent of every other, of the order in
which streams are used, of the clock and of `PYTHONHASHSEED`.
"""

from __future__ import annotations

import hashlib
import random

import numpy as np


def derive(seed: int, stream: str, *counters: int | str) -> int:
    """A 63-bit seed for one use: `derive(run_seed, "episode", task, index, member)`."""
    text = "\x1f".join([str(int(seed)), stream, *(f"{type(c).__name__}:{c}" for c in counters)])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1


def stream(seed: int, name: str, *counters: int | str) -> random.Random:
    """A `random.Random` of its own for one stream."""
    return random.Random(derive(seed, name, *counters))


def generator(seed: int, name: str, *counters: int | str) -> np.random.Generator:
    """A NumPy generator of its own for one stream."""
    return np.random.default_rng(derive(seed, name, *counters))
