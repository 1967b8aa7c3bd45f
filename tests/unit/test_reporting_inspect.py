"""An episode shown to people says what the learner sees."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from agentrl.messages import Status
from agentrl.reporting.inspect import summary, to_html, token_table, turn_table
from agentrl.rollout.trajectory import Trajectory, Turn

WORDS = {1: "see", 2: "<box>", 3: "open", 4: "ok", 5: "take"}


def decode(ids: list[int]) -> str:
    return " ".join(WORDS[i] for i in ids)


def _call(name: str, arguments: str) -> dict[str, object]:
    call = {"id": "0", "type": "function", "function": {"name": name, "arguments": arguments}}
    return {"role": "assistant", "content": "", "tool_calls": [call]}


@pytest.fixture
def trajectory() -> Trajectory:
    return Trajectory(
        task="alfworld",
        split="std",
        index=7,
        group_id=-1,
        member=0,
        seed=0,
        status=Status.COMPLETED,
        reward=1.0,
        metrics={"success": 1.0},
        opening=[{"role": "user", "content": "see <box>"}],
        turns=[
            Turn(_call("act", '{"a": "open"}'), [{"content": "ok"}], "stop", "current"),
            Turn(_call("act", '{"a": "take"}'), [{"content": "done"}], "stop", "stale"),
        ],
        timings={},
        roles=("current", "stale"),
        token_ids=np.array([1, 2, 3, 4, 5], np.int32),
        loss_mask=np.array([False, False, True, False, True]),
        behaviour_logprobs=np.array([0, 0, np.log(0.5), 0, np.log(0.25)], np.float32),
        policy_version=np.array([-1, -1, 4, -1, 2], np.int32),
        policy_role=np.array([-1, -1, 0, -1, 1], np.int8),
        turn=np.array([0, 0, 0, 0, 1], np.int16),
    )


def test_tokens_carry_role_version_and_mask(trajectory: Trajectory) -> None:
    table = token_table(trajectory, decode)
    assert list(table["role"]) == ["environment", "environment", "current", "environment", "stale"]
    assert list(table["version"]) == [-1, -1, 4, -1, 2]
    assert list(table["in_loss"]) == [False, False, True, False, True]
    assert list(table["text"]) == ["see", " <box>", " open", " ok", " take"]
    assert np.isnan(table["logprob"][0]) and table["logprob"][2] == pytest.approx(np.log(0.5))


def test_turns_show_action_answer_and_their_own_tokens(trajectory: Trajectory) -> None:
    table = turn_table(trajectory)
    assert list(table["action"]) == ['act({"a": "open"})', 'act({"a": "take"})']
    assert list(table["answer"]) == ["ok", "done"]
    assert list(table["versions"]) == ["4", "2"]
    assert list(table["sampled"]) == [1, 1]


def test_html_escapes_model_text_and_colours_only_sampled_tokens(trajectory: Trajectory) -> None:
    text = to_html(trajectory, decode)
    assert "&lt;box&gt;" in text and "<box>" not in text
    assert text.count("background:") == 2
    assert "current v4, p=0.50" in text and "stale v2, p=0.25" in text


def test_a_failed_episode_shows_no_reward(trajectory: Trajectory) -> None:
    assert summary(trajectory).loc["reward", "value"] == "1.0"
    failed = replace(trajectory, status=Status.TASK_ERROR, reward=None)
    assert summary(failed).loc["reward", "value"].startswith("none")
