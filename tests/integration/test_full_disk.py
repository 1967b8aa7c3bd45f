"""A disk that fills up under a training: one line, and with room again the run ends as if nothing had happened."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_training_resume import DEADLINE, SETTINGS, Place, agentrl, assert_same_run

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux") or os.geteuid() != 0,
    reason="only root mounts a small disk",
)
STEPS = 8


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, of 64 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "agentrl-test", folder], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)


def fill(disk: Path) -> Path:
    """Takes every free byte of it."""
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file:
        for size in (2**20, 2**12, 1):
            try:
                while file.write(bytes(size)) == size:
                    pass
            except OSError:  # not even one more of this size
                continue
    return ballast


@pytest.mark.parametrize("at", [2, 5])
def test_a_full_disk_is_one_line_and_the_run_goes_on(tmp_path: Path, disk: Path, at: int) -> None:
    place = Place(tmp_path)
    place.config.write_text(SETTINGS.replace("steps: 20,", f"steps: {STEPS}, start: base,"))
    subprocess.run(
        agentrl("policy", "create", "--config", place.config, "--seed", 5, "--output", tmp_path / "start"),
        check=True, capture_output=True, timeout=DEADLINE,
    )  # fmt: skip
    whole = place.train("whole")
    assert whole.returncode == 0, whole.stderr[-2000:]

    process = place.begin("disk/full")
    place.wait_for_step("disk/full", at)
    ballast = fill(disk)
    assert process.wait(DEADLINE) == 1
    ballast.unlink()
    lines = (disk / "full.log").read_text().splitlines()
    assert not [line for line in lines if line.startswith("Traceback")], lines
    assert [line for line in lines if line.startswith("error: ") and "No space left" in line], lines
    assert not (disk / "full" / "policy").exists()

    again = place.train("disk/full")
    assert again.returncode == 0, again.stderr[-2000:]
    assert_same_run(tmp_path / "whole", disk / "full")
