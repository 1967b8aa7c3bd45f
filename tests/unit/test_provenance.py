"""What a result says about its origin, and which edits of the code count."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from agentrl import provenance
from agentrl.errors import ConfigError

SOURCE = '''"""A module."""
import math


def area(radius: float) -> float:
    """Of a circle."""
    return math.pi * radius**2  # textbook
'''


@pytest.mark.parametrize(
    "edit",
    [
        lambda text: text.replace("# textbook", "# another comment"),
        lambda text: text.replace('"""Of a circle."""', '"""Of a disc, really."""'),
        lambda text: text.replace('    """Of a circle."""\n', ""),
        lambda text: text.replace("radius**2", "(radius\n    ** 2)"),
        lambda text: "\n\n" + text,
    ],
)
def test_comments_docstrings_and_layout_mean_nothing(edit) -> None:  # type: ignore[no-untyped-def]
    assert edit(SOURCE) != SOURCE
    assert provenance.meaning(edit(SOURCE)) == provenance.meaning(SOURCE)


@pytest.mark.parametrize(("old", "new"), [("**2", "**3"), ("math.pi", "3"), ("radius", "r")])
def test_code_means_something(old: str, new: str) -> None:
    assert provenance.meaning(SOURCE.replace(old, new)) != provenance.meaning(SOURCE)


def test_a_string_that_is_used_is_not_a_docstring() -> None:
    assert provenance.meaning('x = "a"') != provenance.meaning('x = "b"')


def test_a_stage_depends_on_its_packages_alone() -> None:
    train, clone = provenance.code_digest("train-multi-task"), provenance.code_digest("clone-x")
    assert train == provenance.code_digest("train-single-alfworld")
    names = [part.partition(":")[0] for part in train.split()]
    assert names == ["algorithms", "hosting", "pipeline", "rollout", "tasks", "training", "common"]
    assert "pipeline" not in clone and "reporting" not in train
    assert set(clone.split()) < set(train.split())


def test_settings_have_one_digest_in_any_order() -> None:
    one = provenance.settings_digest({"a": 1, "b": {"c": 2, "d": 3}})
    assert one == provenance.settings_digest({"b": {"d": 3, "c": 2}, "a": 1})
    assert one != provenance.settings_digest({"a": 1, "b": {"c": 2, "d": 4}})


def test_a_record_says_what_who_and_where(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "provenance.json"
    provenance.write_provenance(path, {"steps": 3}, seconds=1.5)
    record = json.loads(path.read_text())
    assert record["settings"] == {"steps": 3} and record["seconds"] == 1.5
    assert record["versions"]["python"].startswith("3.")
    assert record["machine"]["cores"] >= 1
    assert list(path.parent.iterdir()) == [path]


def test_the_commit_and_whether_files_differ_from_it(tmp_path: Path) -> None:
    assert provenance.repository_state(tmp_path) == {"commit": None, "dirty": None}

    def git(*arguments: str) -> None:
        identity = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
        subprocess.run(
            ["git", *identity, *arguments], cwd=tmp_path, check=True, capture_output=True
        )

    git("init")
    (tmp_path / "file").write_text("1")
    git("add", "file")
    git("commit", "-m", "first")
    state = provenance.repository_state(tmp_path)
    assert len(state["commit"]) == 40 and state["dirty"] is False
    (tmp_path / "file").write_text("2")
    assert provenance.repository_state(tmp_path)["dirty"] is True


def test_a_task_of_ones_own_counts_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    module = tmp_path / "my_own_task.py"
    module.write_text(SOURCE)
    before = provenance.code_digest("train-x", ["my_own_task"])
    module.write_text(SOURCE.replace("# textbook", "# a comment"))
    assert provenance.code_digest("train-x", ["my_own_task"]) == before
    module.write_text(SOURCE.replace("**2", "**3"))
    after = provenance.code_digest("train-x", ["my_own_task"])
    assert [a for a, b in zip(after.split(), before.split(), strict=True) if a != b] == [
        next(part for part in after.split() if part.startswith("my_own_task:"))
    ]
    with pytest.raises(ConfigError, match="'not_there' of a task's factory is not on the Python"):
        provenance.code_digest("train-x", ["not_there"])
