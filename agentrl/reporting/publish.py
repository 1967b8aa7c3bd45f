"""Copies what figures are drawn from into `published/`, with checksums.

    python -m agentrl.reporting.publish results/mini published/mini

No rule does this: a person decides which numbers are shipped. `verify` says whether the files are
still those that were published.
"""

from __future__ import annotations

import hashlib
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from agentrl.config.stages import MULTI_TASK
from agentrl.errors import AgentRLError, DataError
from agentrl.reporting.catalogue import copy_examples

FILES = ("episodes.parquet", "history.parquet", "provenance.json")
OPTIONAL = ("pass_at_k.parquet", "pass_at_k.provenance.json", "scaling.csv")
"""Where the scale measures them."""
POLICY = "policy"
"""Of the first multi-task run: what the tour plays with on a fresh clone."""
LARGEST_POLICY = 8 * 2**20
"""Bytes; a larger one does not belong into a repository."""
EXAMPLES = ("train", "pass_at_k")
"""Some trajectories of the first seed, at the places where a run leaves all of them."""
LARGEST_EXAMPLES = 2 * 2**20
"""Bytes, of all files of `EXAMPLES`."""
SUMS = "SHA256SUMS"


def publish(results: Path, published: Path) -> None:
    """Copy the files of a finished run, its policy where it is small, and a few trajectories; write their
    checksums."""
    missing = [name for name in FILES if not (results / name).is_file()]
    if missing:
        raise DataError(f"{results / missing[0]} does not exist: finish the workflow first")
    published.mkdir(parents=True, exist_ok=True)
    for name in OPTIONAL:
        (published / name).unlink(missing_ok=True)
    files = [*FILES, *(name for name in OPTIONAL if (results / name).is_file())]
    for name in files:
        shutil.copyfile(results / name, published / name)
    shutil.rmtree(published / POLICY, ignore_errors=True)
    for policy in sorted(results.glob(f"train/{MULTI_TASK}/seed*/policy"))[:1]:
        if sum(path.stat().st_size for path in policy.iterdir()) <= LARGEST_POLICY:
            shutil.copytree(policy, published / POLICY, ignore=shutil.ignore_patterns(".*"))
    names = [*files, *(f"{POLICY}/{path.name}" for path in (published / POLICY).glob("*"))]
    names += [path.relative_to(published).as_posix() for path in _examples(results, published)]
    lines = [f"{_digest(published / name)}  {name}\n" for name in sorted(names)]
    (published / SUMS).write_text("".join(lines), encoding="utf-8")


def _examples(results: Path, published: Path) -> list[Path]:
    """What was written of `EXAMPLES`: fewer, or nothing, where the trajectories are long."""
    for samples in (2, 1, 0):
        for folder in EXAMPLES:
            shutil.rmtree(published / folder, ignore_errors=True)
        written = copy_examples(results, published, samples)
        if sum(path.stat().st_size for path in written) <= LARGEST_EXAMPLES:
            return written
    return []


def verify(published: Path) -> None:
    """Raises `DataError` naming the first file that differs from its checksum."""
    sums = published / SUMS
    if not sums.is_file():
        raise DataError(f"{sums} does not exist: {published} holds no published results")
    for line in sums.read_text(encoding="utf-8").splitlines():
        digest, name = line.split("  ", 1)
        path = published / name
        if not path.is_file() or _digest(path) != digest:
            raise DataError(f"{path} is not the file that was published: its checksum differs")


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def main(arguments: Sequence[str]) -> None:
    if len(arguments) != 2:
        sys.exit("usage: python -m agentrl.reporting.publish RESULTS PUBLISHED")
    try:
        publish(Path(arguments[0]), Path(arguments[1]))
    except AgentRLError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main(sys.argv[1:])
