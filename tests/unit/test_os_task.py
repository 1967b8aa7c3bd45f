"""The task: tools, rewards, counted trouble, options, and nothing left behind. On a stand-in for a sandbox."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentrl.config.models import TaskConfig
from agentrl.errors import ConfigError, InfrastructureError, UnavailableError
from agentrl.messages import Message, Status
from agentrl.sandbox.files import File
from agentrl.sandbox.shell import Reply
from agentrl.tasks.base import Sample, Step, call_message
from agentrl.tasks.os_interaction import providers
from agentrl.tasks.os_interaction.prompts import NO_OUTPUT, observation, opening, read_output
from agentrl.tasks.os_interaction.records import Record, Script, Wanted
from agentrl.tasks.os_interaction.task import OSTask
from agentrl.tasks.registry import create_task
from tests.local_sandbox import LocalProvider, LocalSandbox

pytestmark = pytest.mark.skipif(
    not all(map(shutil.which, ("bash", "setsid", "ps"))), reason="needs bash, setsid and ps"
)
SAMPLE = Sample("os_interaction", "train", 0)


class OneRecord(OSTask):
    def __init__(self, one: Record, provider: LocalProvider, **settings: Any) -> None:
        super().__init__(TaskConfig(**{"max_turns": 5, **settings}))
        self.one = one
        self._provider = provider

    def record(self, sample: Sample) -> Record:
        return self.one


@pytest.fixture
def provider(tmp_path: Path) -> LocalProvider:
    return LocalProvider(tmp_path)


def question(**changes: Any) -> Record:
    values = {"kind": "test", "question": "how many ?", "matcher": "integer", "answer": "2"}
    return Record(**{**values, **changes})


def bash(script: str) -> Message:
    return call_message("bash_action", {"script": script})


def answer(text: str) -> Message:
    return call_message("answer_action", {"answer": text})


def finish(thought: str = "done") -> Message:
    return call_message("finish_action", {"thought": thought})


async def play(
    one: Record, provider: LocalProvider, *messages: Message, **settings: Any
) -> list[Step]:
    task = OneRecord(one, provider, **settings)
    episode = await task.start(SAMPLE, 0)
    steps = [await episode.step(message) for message in messages]
    await episode.close()
    await task.close()
    assert provider.closed and all(sandbox.closed for sandbox in provider.made)
    return steps


def test_the_registry_builds_it_with_three_strict_tools() -> None:
    built = create_task("os_interaction", TaskConfig())
    assert (built.name, built.level) == ("os_interaction", "easy")
    assert [tool.name for tool in built.tools] == ["bash_action", "answer_action", "finish_action"]
    for tool in built.tools:
        assert tool.parameters["additionalProperties"] is False
    assert len(built.samples("std")) == 200
    with pytest.raises(ConfigError, match="no split 'test'"):
        built.samples("test")


async def test_look_and_answer(provider: LocalProvider) -> None:
    record = question(files=(File("/a"), File("/b")))
    steps = await play(record, provider, bash("ls -1 | wc -l"), answer("2"))
    assert [step.messages[0].content for step in steps] == ["2", "Done."]
    last = steps[-1]
    assert (last.reward, last.done, last.status) == (1.0, True, Status.COMPLETED)
    assert last.metrics == {
        "turns": 2, "invalid_calls": 0, "success": 1, "commands": 1, "stopped_commands": 0,
    }  # fmt: skip


@pytest.mark.parametrize("text", ["3", "2 files", ""])
async def test_a_wrong_answer_ends_with_nothing(provider: LocalProvider, text: str) -> None:
    (step,) = await play(question(), provider, answer(text))
    assert (step.reward, step.status) == (0.0, Status.COMPLETED)


async def test_the_thought_is_the_answer_of_finish(provider: LocalProvider) -> None:
    assert (await play(question(), provider, finish("2")))[-1].reward == 1.0
    assert (await play(question(), provider, finish("all done")))[-1].reward == 0.0


async def test_files_are_graded_after_all_programs_are_killed(provider: LocalProvider) -> None:
    record = Record("test", "make it", wanted=(Wanted("/made", content="x"),))
    steps = await play(record, provider, bash("echo x > made"), finish())
    assert steps[-1].reward == 1.0 and provider.made[-1].stopped
    assert (await play(record, provider, finish()))[-1].reward == 0.0
    assert (await play(record, provider, bash("echo y > made"), answer("x")))[-1].reward == 0.0


async def test_scripts_check_a_copy_and_get_the_answer_and_what_came_before(
    provider: LocalProvider,
) -> None:
    checks = (
        Script('[ -f made ] && echo "got $1"'),
        None,
        Script('[ "$2" = "got 7" ] && [ "$3" = truth ]'),
    )
    record = Record("test", "?", checks=checks, example=Script("printf truth"))
    # The stand-in's output ends with a line end, which `$(...)` and the reference keep apart.
    record = question(matcher=None, answer=None, checks=checks[:1])
    steps = await play(record, provider, bash("touch made"), answer("7"))
    assert steps[-1].reward == 1.0
    assert (await play(record, provider, answer("7")))[-1].reward == 0.0


async def test_the_truth_is_found_before_the_agent_acts(provider: LocalProvider) -> None:
    record = question(answer=None, init=(Script("touch a b"),), example=Script("ls | wc -l; rm a"))
    steps = await play(record, provider, bash("touch c d; ls"), answer("2"))
    assert steps[0].messages[0].content.split() == ["a", "b", "c", "d"], "the example ran in a copy"
    assert steps[-1].reward == 1.0


async def test_start_runs_in_the_shell_of_the_agent(provider: LocalProvider) -> None:
    steps = await play(
        question(start="x=3.14; mkdir in; cd in"), provider, bash('echo $x; basename "$PWD"')
    )
    assert steps[0].messages[0].content == "3.14\nin"


async def test_the_turn_limit_and_broken_calls(provider: LocalProvider) -> None:
    broken = call_message("bash_action", {"code": "ls"})
    steps = await play(question(), provider, broken, Message("assistant", "hm"), max_turns=2)
    assert steps[0].metrics["invalid_calls"] == 1 and "bash_action" in steps[0].messages[0].content
    assert (steps[1].status, steps[1].reward) == (Status.LIMIT_REACHED, 0.0)


async def test_what_the_agent_breaks_is_its_own_end(provider: LocalProvider) -> None:
    task = OneRecord(question(), provider)
    episode = await task.start(SAMPLE, 0)
    provider.made[0].broken = True
    step = await episode.step(bash("echo"))
    assert (step.done, step.status, step.reward) == (True, Status.INVALID_ACTION, 0.0)
    assert not step.status.is_infrastructure
    await episode.close()


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"init": (Script("echo no >&2; exit 3"),)}, "init script 0 of the record failed: no"),
        ({"answer": None, "example": Script("exit 1")}, "the example of the record failed"),
    ],
)
async def test_a_record_that_cannot_be_set_up_is_infrastructure_and_leaves_nothing(
    provider: LocalProvider, fields: dict[str, Any], problem: str
) -> None:
    with pytest.raises(InfrastructureError, match=problem):
        await OneRecord(question(**fields), provider).start(SAMPLE, 0)
    assert all(sandbox.closed for sandbox in provider.made)


async def test_every_cancelled_start_gives_its_sandbox_back(provider: LocalProvider) -> None:
    task = OneRecord(question(init=(Script("true"),)), provider)

    async def cancelled(*_: Any, **__: Any) -> Any:
        raise asyncio.CancelledError

    import asyncio

    first = await provider.open()
    first.run = cancelled  # type: ignore[method-assign]
    provider.open = lambda image="default": _ready(first)  # type: ignore[method-assign, assignment]
    with pytest.raises(asyncio.CancelledError):
        await task.start(SAMPLE, 0)
    assert first.closed


async def _ready(sandbox: LocalSandbox) -> LocalSandbox:
    return sandbox


# -- wording


def test_two_styles() -> None:
    record = question()
    assert opening(record, "compact") == (Message("user", "how many ?"),)
    system, user = opening(record, "agentbench")
    assert "bash_action" in system.content and user.content.endswith("\n\nhow many ?")


@pytest.mark.parametrize(
    ("reply", "compact", "read"),
    [
        (Reply("5\n", 0), "5", "5"),
        (Reply("", 0), NO_OUTPUT, ""),
        (Reply("", None, "the shell ended"), "[the shell ended]", "[the shell ended]"),
        (Reply("a\nb\n", 0), "a\nb", "a\nb"),
    ],
)
def test_output_is_shown_and_read_back(reply: Reply, compact: str, read: str) -> None:
    assert observation(reply, "compact") == compact
    assert read_output(compact) == read
    assert read_output(observation(reply, "agentbench")).strip() in (read, "")


def test_long_output_is_cut() -> None:
    shown = observation(Reply("x" * 2000, 0), "agentbench")
    assert shown.count("x") == 780 and shown.endswith("[output truncated]")


# -- options and what is missing


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (
            {"sandbx": "docker"},
            r"unknown config key 'tasks.os_interaction.options.sandbx'; known keys: sandbox",
        ),
        ({"sandbox": "vm"}, r"'tasks.os_interaction.options.sandbox'"),
        ({"memory_mb": 1}, r"'tasks.os_interaction.options.memory_mb'"),
    ],
)
def test_bad_options_are_one_line(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem) as caught:
        create_task("os_interaction", TaskConfig(options=options))
    assert "\n" not in str(caught.value)


async def test_where_nothing_can_run_one_sentence_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("agentrl.sandbox.namespaces.linux.supported", lambda: False)
    missing = {"docker_host": f"unix://{tmp_path}/no.sock", "cache": str(tmp_path)}
    task = create_task("os_interaction", TaskConfig(options=missing))
    with pytest.raises(UnavailableError) as caught:
        await task.start(SAMPLE, 0)
    text = str(caught.value)
    assert "namespace sandboxes need Linux" in text and "no Docker daemon answers" in text
    assert "\n" not in text and not isinstance(caught.value, InfrastructureError)


def refuse(*_: Any) -> Any:
    raise UnavailableError("none")


async def test_auto_takes_docker_where_there_are_no_namespaces(
    monkeypatch: pytest.MonkeyPatch, provider: LocalProvider
) -> None:
    made: Callable[[Any], Any] = lambda options: provider  # noqa: E731
    monkeypatch.setattr(providers, "namespace_provider", refuse)
    monkeypatch.setattr(providers, "docker_provider", made)
    task = OSTask(TaskConfig())
    assert await task.provider() is provider
    await task.close()


def test_a_tree_without_a_shell_is_refused(tmp_path: Path) -> None:
    task = OSTask(TaskConfig(options={"tree": str(tmp_path)}))
    with pytest.raises(ConfigError, match="holds no bin/bash"):
        providers.namespace_provider(task.options, official=False)
