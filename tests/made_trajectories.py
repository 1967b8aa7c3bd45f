"""Made-up recorded episodes of two turns, for tests of what reads them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from agentrl.messages import Status
from agentrl.rollout.trajectory import Trajectory, Turn


def call(name: str, arguments: str) -> dict[str, object]:
    inner = {"id": "0", "type": "function", "function": {"name": name, "arguments": arguments}}
    return {"role": "assistant", "content": "", "tool_calls": [inner]}


def trajectory(
    *,
    task: str = "alfworld",
    index: int = 7,
    group_id: int = 0,
    member: int = 0,
    reward: float | None = 1.0,
    status: Status = Status.COMPLETED,
    words: Sequence[str] = ("open", "take"),
    speakers: Sequence[str] = ("current", "stale"),
    roles: Sequence[str] = ("current", "stale"),
    padding: int = 0,
) -> Trajectory:
    """Tokens 1 2 (environment), 3 (turn 0), 4 (environment), 5 (turn 1); versions 4 and 2.

    In front of them `padding` more of the environment's.
    """

    def padded(value: float, values: Sequence[float], dtype: type) -> np.ndarray:
        return np.array([*[value] * padding, *values], dtype)

    places = [list(roles).index(name) for name in speakers]
    return Trajectory(
        task=task,
        split="train",
        index=index,
        group_id=group_id,
        member=member,
        seed=0,
        status=status,
        reward=reward,
        metrics={"success": float(reward == 1.0), "sampled_tokens": 2.0},
        opening=[{"role": "user", "content": "see <box>"}],
        turns=[
            Turn(call("act", words[0]), [{"role": "tool", "content": "ok"}], "stop", speakers[0]),
            Turn(call("act", words[1]), [{"role": "tool", "content": "done"}], "stop", speakers[1]),
        ],
        timings={},
        roles=tuple(roles),
        token_ids=padded(1, [1, 2, 3, 4, 5], np.int32),
        loss_mask=padded(False, [False, False, True, False, True], np.bool_),
        behaviour_logprobs=padded(0, [0, 0, np.log(0.5), 0, np.log(0.25)], np.float32),
        policy_version=padded(-1, [-1, -1, 4, -1, 2], np.int32),
        policy_role=padded(-1, [-1, -1, places[0], -1, places[1]], np.int8),
        turn=padded(0, [0, 0, 0, 0, 1], np.int16),
    )
