"""`agentrl tasks` and `agentrl play`, as a person at a pipe sees them."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from agentrl import cli
from agentrl.errors import AgentRLError, UnavailableError
from agentrl.tasks import overview
from agentrl.tasks.overview import BackEnd

TOY = "{scale: smoke, tasks: {toy: {factory: 'toy_task:ToyTask'}}}"


def run(*arguments: str, lines: str = "") -> Result:
    return CliRunner(env={"COLUMNS": "120"}).invoke(cli.app, list(arguments), input=lines)


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.syspath_prepend(Path(__file__).parent)
    settings = tmp_path / "toy.yaml"
    settings.write_text(TOY)
    return str(settings)


def test_a_person_wins(toy: str) -> None:
    from toy_task import ToyTask

    from agentrl.config import load

    task = ToyTask(load([Path(toy)]).tasks["toy"], None)
    word = task.word(task.samples("std")[3])
    lines = f"help\n\nwander\nlook at the wall\nsay {word}\nlook again\n"
    played = run("play", "toy", "--config", toy, "--split", "std", "--index", "3", lines=lines)
    assert played.exit_code == 0
    assert "Task: say the word." in played.output
    assert "look TEXT   Look around." in played.output
    assert "'wander' is no tool; there are look, say" in played.output
    assert f"The word is {word}." in played.output
    assert "turn 2> say" in played.output, "a slip cost a turn"
    assert "turn 3> " not in played.output, "it went on after the end"
    assert "reward 1, completed; turns 2, invalid_calls 0, success 1" in played.output


def test_the_expert_can_be_asked(toy: str) -> None:
    played = run("play", "toy", "--config", toy, lines="expert\nexpert\n")
    assert 'look {"text": "wall"}' in played.output
    assert "reward 1, completed" in played.output


def test_an_expert_that_is_lost_says_so(toy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from toy_task import ToyExpert

    asked = []

    def act(self: object, messages: list[object]) -> object:
        asked.append(len(messages))
        raise IndexError("no move left")

    monkeypatch.setattr(ToyExpert, "act", act)
    played = run("play", "toy", "--config", toy, lines="look x\nexpert\nlook y\nexpert\n")
    assert played.exit_code == 0
    said = "the expert does not know what to do here: IndexError('no move left')"
    assert played.output.count(said) == 2
    assert asked == [2, 3], "it is shown what the environment said meanwhile"


@pytest.mark.parametrize("task", ["alfworld", "dbbench", "knowledgegraph", "webshop"])
def test_the_package_s_tasks_can_be_played_to_their_end(task: str) -> None:
    played = run("play", task, "--index", "2", lines="expert\n" * 20)
    assert played.exit_code == 0
    assert "\nreward 1, completed; turns " in played.output


@pytest.mark.parametrize("lines", ["look x\nquit\n", "look x\n"])
def test_leaving_early(toy: str, lines: str) -> None:
    played = run("play", "toy", "--config", toy, lines=lines)
    assert played.exit_code == 0
    assert "left before the end" in played.output and "reward" not in played.output


def test_the_turn_limit(toy: str) -> None:
    played = run("play", "toy", "--config", toy, lines=": hello\nlook x\n" * 2)
    assert "reward 0, task limit reached; turns 4, invalid_calls 2, success 0" in played.output


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["chess"], "task 'chess': not in .*toy.yaml; it has toy"),
        (["toy", "--index", "1000"], "--index 1000: toy/dev has 1000 samples"),
    ],
)
def test_what_cannot_be_played_is_one_line(toy: str, arguments: list[str], why: str) -> None:
    with pytest.raises(AgentRLError, match=why):
        CliRunner().invoke(cli.app, ["play", *arguments, "--config", toy], catch_exceptions=False)


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two tasks of the package: ALFWorld, and one whose package is not installed."""

    def no_daemon() -> None:
        raise UnavailableError("no daemon answers: start one")

    monkeypatch.setattr(
        overview,
        "TASKS",
        {
            "alfworld": "agentrl.tasks.alfworld.task:AlfworldTask",
            "ghost": "agentrl_ghost.task:Task",
        },
    )
    monkeypatch.setattr("agentrl.tasks.registry.TASKS", overview.TASKS)
    ends = (
        BackEnd("sheet", {"agentrl_ghost": "agentrl-reproducible[ghost]"}),
        BackEnd("box", probe=no_daemon),
        BackEnd("far", note="a server of yours"),
    )
    monkeypatch.setattr(overview, "BACK_ENDS", {**overview.BACK_ENDS, "ghost": ends})


def test_tasks_are_listed_with_what_they_lack(few: None, tmp_path: Path) -> None:
    listed = run("tasks", "--data-root", str(tmp_path))
    assert listed.exit_code == 0
    assert "100,000 │ 200 │ 200 │ own engine" in listed.output
    assert "(sheet), (box), far" in listed.output
    lines = listed.output.splitlines()
    assert (
        "ghost, sheet: needs the module agentrl_ghost: pip install 'agentrl-reproducible[ghost]'"
        in lines
    )
    assert "ghost, box: no daemon answers: start one" in lines
    assert "ghost, far: a server of yours" in lines
    assert any(line.startswith("ghost, easy: ") and "agentrl_ghost" in line for line in lines)
    assert any(
        line.startswith("alfworld, official: ") and "agentrl data get alfworld" in line
        for line in lines
    )


def test_tasks_of_a_config(toy: str) -> None:
    listed = run("tasks", "--config", toy)
    assert "│ toy  │ easy  │ 1,000 │ 1,000 │ 1,000 │ its own" in listed.output
    assert "alfworld" not in listed.output


def test_official_records_are_counted_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "knowledgegraph").mkdir()
    row = overview.describe("dbbench", overview.TaskConfig(source="official"), tmp_path)
    assert row.counts == {} and "standard.jsonl: cannot be read" in row.missing
    (tmp_path / "dbbench").mkdir()
    record = (
        '{"description": "q", "label": ["x"], "type": ["other"], "add_description": "", "sql": {"query": ""},'
        ' "table": {"table_name": "t", "table_info": {"columns": [{"name": "a", "type": "TEXT"}], "rows": [["x"]]}}}'
    )
    (tmp_path / "dbbench" / "standard.jsonl").write_text(f"{record}\n{record}\n")
    row = overview.describe("dbbench", overview.TaskConfig(source="official"), tmp_path)
    assert row.counts == {"std": 2} and row.level == "official"
    assert "dev.jsonl" in row.missing and "no split 'train'" in row.missing
