"""The command line as a person meets it: commands, one-line errors, exit statuses."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from agentrl import __version__, cli
from agentrl.config import load

ROOT = Path(__file__).parents[2]
BASE = ROOT / "config" / "config.yaml"
SMOKE = ROOT / "config" / "scales" / "smoke.yaml"
SETTINGS = '{"tasks": {"alfworld": {}}}'


def run_main(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> object:
    """What `main` exits with."""
    monkeypatch.setattr(sys, "argv", ["agentrl", *arguments])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return ended.value.code


def test_a_wrong_file_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (
        run_main(monkeypatch, "config", "show", "nowhere.yaml")
        == "error: config file nowhere.yaml does not exist"
    )


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full, the disk that is full")
def test_a_full_disk_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    said = run_main(monkeypatch, "config", "write", "--settings", SETTINGS, "--output", "/dev/full")
    assert said == "error: No space left on device: while writing; what was saved before is intact"


def test_settings_that_are_shown_are_those_that_are_loaded(tmp_path: Path) -> None:
    shown = CliRunner().invoke(cli.app, ["config", "show", str(BASE), str(SMOKE)])
    assert shown.exit_code == 0
    again = tmp_path / "shown.yaml"
    again.write_text(shown.output)
    assert load([again]) == load([BASE, SMOKE])


def test_unknown_tasks_are_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    settings = tmp_path / "settings.yaml"
    settings.write_text(SETTINGS)
    given = ("--config", str(settings), "--policy", "expert", "--name", "x", "--seed", "0")
    said = run_main(monkeypatch, "evaluate", *given, "--output", "x", "--tasks", "chess")
    assert said == "error: --tasks 'chess': not in the config; it has ['alfworld']"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--replay", "nowhere"], "error: nowhere is no policy folder: it has no policy.json"),
        (["--replay", "a", "--rollout-only"], "error: --replay and --rollout-only: "),
        ([], "error: a training needs --policy, --seed, --state and --output"),
        (["--track", "chess"], "error: config: trackers: 'chess' is none of wandb, trackio, nor"),
    ],
)
def test_half_a_training_is_asked_for_in_full(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, options: list[str], message: str
) -> None:
    settings = tmp_path / "settings.yaml"
    settings.write_text(SETTINGS)
    given = ["--config", str(settings), "--policy", "nowhere", "--seed", "0", "--output", "x"]
    said = run_main(monkeypatch, "train", *given, *options)
    assert isinstance(said, str) and said.startswith(message)


@pytest.mark.parametrize("what", [(), ("--policy", "expert", "--model", "gpt")])
def test_an_evaluation_is_of_a_policy_or_of_models(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, what: tuple[str, ...]
) -> None:
    settings = tmp_path / "settings.yaml"
    settings.write_text(SETTINGS)
    given = ("--config", str(settings), "--name", "x", "--seed", "0", "--output", "x")
    said = run_main(monkeypatch, "evaluate", *given, *what)
    assert said == (
        "error: give one of --policy (a folder, or 'expert') and --model (of the config)"
    )


def test_the_command_line_starts_without_heavy_packages() -> None:
    code = (
        "import sys, agentrl.cli; "
        "print(sorted({'torch', 'transformers', 'pandas', 'docker', 'httpx'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_version() -> None:
    assert CliRunner().invoke(cli.app, ["version"]).output == f"{__version__}\n"
