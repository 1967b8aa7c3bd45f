"""Trajectories as Parquet: one row each, token columns as lists.

Invariants: a file appears whole or not at all; what is read equals what was written, bit by bit; a
damaged file is named, never half read. Readable by `datasets.load_dataset("parquet", ...)`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from agentrl.errors import StateError
from agentrl.messages import Status
from agentrl.rollout.trajectory import TOKEN_COLUMNS, Trajectory, Turn

FORMAT = b"1"
_FORMAT_KEY = b"agentrl.trajectories"
_NUMBERS = pa.list_(pa.struct([("name", pa.string()), ("value", pa.float64())]))
_SCALARS = {
    "task": pa.string(),
    "split": pa.string(),
    "index": pa.int64(),
    "group_id": pa.int64(),
    "member": pa.int32(),
    "seed": pa.int64(),
    "reward": pa.float64(),
    "error": pa.string(),
}
SCHEMA = pa.schema(
    [
        *_SCALARS.items(),
        ("status", pa.string()),
        ("metrics", _NUMBERS),
        ("timings", _NUMBERS),
        ("roles", pa.list_(pa.string())),
        ("opening", pa.string()),
        ("turns", pa.string()),
        *((name, pa.list_(pa.from_numpy_dtype(d))) for name, d in TOKEN_COLUMNS.items()),
    ],
    metadata={_FORMAT_KEY: FORMAT},
)
"""`opening` and `turns` are JSON text; `metrics` and `timings` are lists of (name, value)."""


def write_trajectories(path: Path, trajectories: Iterable[Trajectory]) -> None:
    """One Parquet file, atomically. Raises `StateError` where it cannot be written."""
    rows = list(trajectories)
    columns = [pa.array([_value(row, f.name) for row in rows], f.type) for f in SCHEMA]
    table = pa.Table.from_arrays(columns, schema=SCHEMA)
    aside = path.with_name(f".{path.name}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with aside.open("wb") as file:
            pq.write_table(table, file)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
    except OSError as error:
        aside.unlink(missing_ok=True)
        raise StateError(f"cannot write {path}: {error.strerror or error}") from error


def write_shards(
    folder: Path, trajectories: Sequence[Trajectory], rows_per_shard: int = 1000
) -> list[Path]:
    """`folder/trajectories-00000-of-00003.parquet`, ...; at least one file."""
    count = max(1, -(-len(trajectories) // rows_per_shard))
    paths = [folder / f"trajectories-{n:05d}-of-{count:05d}.parquet" for n in range(count)]
    for number, path in enumerate(paths):
        start = number * rows_per_shard
        write_trajectories(path, trajectories[start : start + rows_per_shard])
    return paths


def read_trajectories(path: Path) -> list[Trajectory]:
    """All rows of a file, or of every Parquet file of a folder in the order of names.

    Raises `StateError` that names the file which is missing, damaged or of another kind.
    """
    files = sorted(path.glob("*.parquet")) if path.is_dir() else [path]
    if not files:
        raise StateError(f"{path} holds no Parquet file")
    return [trajectory for file in files for trajectory in _read(file)]


def _read(file: Path) -> list[Trajectory]:
    try:
        table = pq.ParquetFile(file).read()
    except (OSError, pa.ArrowException) as error:
        raise StateError(f"cannot read the trajectories {file}: {error}") from None
    written = (table.schema.metadata or {}).get(_FORMAT_KEY)
    if written != FORMAT or not table.schema.equals(SCHEMA):
        raise StateError(f"{file} holds no trajectories of format {FORMAT.decode()}")
    plain = {f.name: table[f.name].to_pylist() for f in SCHEMA if f.name not in TOKEN_COLUMNS}
    tokens = {name: _arrays(table[name], dtype) for name, dtype in TOKEN_COLUMNS.items()}
    try:
        return [
            Trajectory(
                **_row({**{name: plain[name] for name in _SCALARS}, **tokens}, row),
                status=Status(plain["status"][row]),
                metrics={pair["name"]: pair["value"] for pair in plain["metrics"][row]},
                timings={pair["name"]: pair["value"] for pair in plain["timings"][row]},
                roles=tuple(plain["roles"][row]),
                opening=json.loads(plain["opening"][row]),
                turns=[Turn(**turn) for turn in json.loads(plain["turns"][row])],
            )
            for row in range(table.num_rows)
        ]
    except (ValueError, TypeError) as error:
        raise StateError(f"{file} is damaged: {error}") from None


def _value(row: Trajectory, name: str) -> Any:
    if name == "opening":
        return json.dumps(row.opening, ensure_ascii=False)
    if name == "turns":
        return json.dumps([asdict(turn) for turn in row.turns], ensure_ascii=False)
    value = getattr(row, name)
    if name in ("metrics", "timings"):
        return [{"name": key, "value": number} for key, number in value.items()]
    return list(value) if name == "roles" else value


def _row(columns: Mapping[str, Sequence[Any]], row: int) -> dict[str, Any]:
    return {name: column[row] for name, column in columns.items()}


def _arrays(column: pa.ChunkedArray, dtype: np.dtype) -> list[np.ndarray]:
    out: list[np.ndarray] = []
    for chunk in column.chunks:
        values = chunk.values.to_numpy(zero_copy_only=False).astype(dtype, copy=False)
        offsets = chunk.offsets.to_numpy()
        out += [values[start:end].copy() for start, end in pairwise(offsets)]
    return out
