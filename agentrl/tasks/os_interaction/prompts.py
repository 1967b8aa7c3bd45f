"""The opening messages of an episode and the wording of what a script printed, in two styles.

`compact`: no system prompt, one line of words with single spaces, and output as it is. `agentbench`: a system
prompt and the messages as AgentBench orders them, in our own words. Neither shows answer, truth or solution.
"""

from __future__ import annotations

from typing import Literal

from agentrl.messages import Message
from agentrl.sandbox.shell import Reply
from agentrl.tasks.os_interaction.records import Record

Style = Literal["compact", "agentbench"]
LIMITS: dict[Style, int] = {"compact": 300, "agentbench": 780}
"""Characters of output that are shown."""
TRUNCATED = "\n[output truncated]"
NO_OUTPUT = "no output"
HEADING = "Output of the shell:\n\n"

SYSTEM = """You work at a Linux machine (Ubuntu) through its shell, as a person would who has been given a task.
Think first, then call exactly one tool; you may do so several times.
- bash_action runs a bash script in a shell that stays open: folders and variables are kept. Nothing can be typed \
into a running program, so never start one that waits for input. Long output is cut off.
- answer_action ends the task with an answer to the question. Give the bare answer, a number, a word or a path, \
without any explanation.
- finish_action ends the task where something had to be done and no answer is asked for."""


def opening(record: Record, style: Style) -> tuple[Message, ...]:
    if style == "compact":
        return (Message("user", record.question),)
    return (
        Message("system", SYSTEM),
        Message("user", f"Here is your task.\n\n{record.question}"),
    )


def observation(reply: Reply, style: Style) -> str:
    limit = LIMITS[style]
    output = reply.output
    if len(output) > limit:
        output = output[:limit] + TRUNCATED
    note = f"[{reply.note}]" if reply.note else ""
    if style == "compact":
        return "\n".join(filter(None, (output.rstrip("\n"), note))) or NO_OUTPUT
    text = HEADING + output if output else "The shell printed nothing."
    return "\n".join(filter(None, (text, note)))


def read_output(text: str) -> str:
    """What the script printed, from an observation in either style."""
    if text == NO_OUTPUT or text.startswith("The shell printed nothing."):
        return ""
    return text.removeprefix(HEADING)
