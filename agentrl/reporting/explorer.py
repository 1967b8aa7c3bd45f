"""What the explorer notebook shows: recorded episodes by filter, one to read, two to compare.

Works on results of one's own (`results/SCALE`) and on published ones (`published/SCALE`), which carry a
few examples; nothing is played and no model is loaded, only a tokenizer where there is one.
"""

from __future__ import annotations

import html
import json
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd

from agentrl.config.models import TaskConfig
from agentrl.config.stages import MULTI_TASK
from agentrl.errors import AgentRLError, DataError
from agentrl.reporting import catalogue, inspect
from agentrl.rollout.policy import load_tokenizer
from agentrl.rollout.trajectory import Trajectory
from agentrl.rollout.trajectory_io import read_trajectories
from agentrl.tasks.registry import create_task

SHOWN = ["policy", "seed", "step", "task", "split", "index", "status", "reward", "turns", "sampled"]
STEPS = 6
"""Of each run so many steps are looked at."""


class Explorer:
    """The trajectories below one folder; `len` of it is their number.

    Args:
        root: `results/SCALE` or `published/SCALE`.
        steps: of each run at most so many, the first and the last among them.
    """

    def __init__(self, root: Path, steps: int | None = STEPS) -> None:
        self.root = root
        self.episodes = catalogue.catalogue(root, steps)

    def __len__(self) -> int:
        return len(self.episodes)

    def __str__(self) -> str:
        if not len(self):
            return (
                f"{self.root} holds no trajectories: run the workflow, or give another folder of results "
                "(those published before there was an explorer have none)."
            )
        policies = self.episodes["policy"].nunique()
        samples = len(self.episodes[catalogue.SAMPLE].drop_duplicates())
        return f"{len(self)} trajectories of {policies} policies on {samples} samples, from {self.root}"

    def overview(self) -> pd.DataFrame:
        """How many episodes of each policy and task ended how."""
        by = self.episodes.groupby(["policy", "task"], sort=False)
        return by["status"].value_counts().unstack(fill_value=0)

    def filter(
        self,
        *,
        policy: str = "",
        task: str = "",
        status: str = "",
        reward: str = "",
    ) -> pd.DataFrame:
        """Episodes with these properties, numbered; an empty text means any.

        Args:
            status: as the overview has it.
            reward: a number, a range `0..0.5` with both ends, or `none` (infrastructure failures).

        Raises `DataError` that names the values there are.
        """
        found = self.episodes
        for column, value in (("policy", policy), ("task", task), ("status", status)):
            if value:
                self._known(column, value)
                found = found[found[column] == value]
        if reward == "none":
            found = found[found["reward"].isna()]
        elif reward:
            low, high = _range(reward)
            found = found[found["reward"].between(low, high)]
        return found[SHOWN]

    def trajectory(self, number: int) -> Trajectory:
        """The episode of a row of `filter`."""
        if number not in self.episodes.index:
            raise DataError(f"episode {number}: there are 0 to {len(self) - 1}")
        place = self.episodes.loc[number]
        return read_trajectories(Path(str(place["file"])))[int(str(place["row"]))]

    def summary(self, number: int) -> pd.DataFrame:
        return inspect.summary(self.trajectory(number))

    def turns(self, number: int) -> pd.DataFrame:
        return inspect.turn_table(self.trajectory(number))

    def tools(self, number: int) -> pd.DataFrame:
        """The tools of the episode's task, and how often each was called; what is not known is empty."""
        trajectory = self.trajectory(number)
        called = pd.Series(_calls(trajectory), dtype=object).value_counts()
        rows = [
            {
                "tool": tool.name,
                "arguments": ", ".join(tool.parameters.get("properties", {})),
                "description": tool.description,
            }
            for tool in self._tools_of(trajectory.task)
        ]
        known = {row["tool"] for row in rows}
        rows += [
            {"tool": str(name), "arguments": "", "description": ""}
            for name in called.index
            if name not in known
        ]
        table = pd.DataFrame(rows, columns=["tool", "arguments", "description"])
        return table.assign(calls=[int(called.get(name, 0)) for name in table["tool"]])

    def text(self, number: int) -> str:
        """HTML of the episode's tokens, as `inspect.to_html`; without a tokenizer, its messages."""
        trajectory = self.trajectory(number)
        if (decode := self._decode(number)) is not None:
            return inspect.to_html(trajectory, decode)
        blocks = [*trajectory.opening]
        for turn in trajectory.turns:
            blocks += [turn.assistant, *turn.replies]
        return "".join(f"<p><b>{html.escape(m['role'])}</b> {_said(m)}</p>" for m in blocks)

    def tokens(self, number: int) -> pd.DataFrame:
        """One row a token: text (where there is a tokenizer), id, log-probability, version, role."""
        decode = self._decode(number)
        table = inspect.token_table(self.trajectory(number), decode or (lambda ids: ""))
        return table if decode else table.drop(columns="text")

    def pairs(self, first: str = "", second: str = "") -> pd.DataFrame:
        """Samples that two policies played, the most different rewards first; by default the first two
        policies that met on a sample. Columns as `catalogue.pairs`."""
        for name in filter(None, (first, second)):
            self._known("policy", name)
        # The multi-task policy first: it is what the others are compared with.
        names = sorted(dict.fromkeys(self.episodes["policy"]), key=lambda name: name != MULTI_TASK)
        for one, other in product([first] if first else names, [second] if second else names):
            if one != other and len(found := catalogue.pairs(self.episodes, one, other)):
                return found
        return catalogue.pairs(self.episodes, "", "")

    def compare(self, first: int, second: int) -> pd.DataFrame:
        """Two episodes turn by turn, side by side, and whether both did the same so far."""
        sides = []
        for number in (first, second):
            table = inspect.turn_table(self.trajectory(number)).set_index("turn")
            columns = ["action", "answer", "logprob", "versions"]
            table = table[columns] if len(table) else pd.DataFrame(columns=columns)
            name = f"{number}: {self.episodes['policy'][number]}"
            sides.append(table.set_axis(pd.MultiIndex.from_product([[name], columns]), axis=1))
        both = pd.concat(sides, axis=1)
        actions = [side.iloc[:, 0].reindex(both.index) for side in sides]
        both.insert(0, ("", "alike so far"), (actions[0] == actions[1]).cummin())
        return both

    def _known(self, column: str, value: str) -> None:
        values = list(dict.fromkeys(self.episodes[column]))
        if value not in values:
            raise DataError(f"{column} {value!r}: there is only {', '.join(values)}")

    def _decode(self, number: int) -> inspect.Decode | None:
        place = self.episodes.loc[number]
        run = Path(str(place["file"])).parent.parent
        seeds = f"train/{MULTI_TASK}/seed{place['seed']}"
        for policy in (run / "policy", self.root / seeds / "policy", self.root / "policy"):
            if (policy / "tokenizer.json").is_file():
                decode: inspect.Decode = load_tokenizer(policy).decode
                return decode
        return None

    def _tools_of(self, task: str) -> Sequence[Any]:
        try:
            records = json.loads((self.root / "provenance.json").read_text())["records"]
            settings = next(
                record["settings"]["tasks"][task]
                for record in records
                if task in record.get("settings", {}).get("tasks", {})
            )
            return create_task(task, TaskConfig(**settings)).tools
        except (OSError, ValueError, KeyError, StopIteration, AgentRLError):
            return ()


def _range(text: str) -> tuple[float, float]:
    low, dots, high = text.partition("..")
    try:
        return float(low), float(high if dots else low)
    except ValueError:
        raise DataError(
            f"reward {text!r}: give a number, a range such as 0..0.5, or none"
        ) from None


def _calls(trajectory: Trajectory) -> list[str]:
    return [
        call["function"]["name"]
        for turn in trajectory.turns
        for call in turn.assistant.get("tool_calls", ())
    ]


def _said(message: dict[str, Any]) -> str:
    calls = [call["function"] for call in message.get("tool_calls", ())]
    parts = [message.get("content") or "", *(f"{c['name']}({c['arguments']})" for c in calls)]
    return html.escape(" ".join(filter(None, parts))).replace("\n", "<br>")
