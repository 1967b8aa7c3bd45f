"""An agent that knows a script which solves the problem, and can be made unreliable.

It runs the script and answers what it *observed*, so that a policy can learn from it.

With `noise` n it errs with probability n at each decision, in ways a beginner would: another file or word, a wrong
flag or program, a forgotten last step, a part of the answer. After an error message it always tries again,
after a wrong result sometimes.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence

from agentrl.messages import Message
from agentrl.randomness import stream
from agentrl.sandbox.base import ENVIRONMENT
from agentrl.tasks.base import Expert, call_message
from agentrl.tasks.os_interaction.grading import counts_programs
from agentrl.tasks.os_interaction.prompts import TRUNCATED, read_output
from agentrl.tasks.os_interaction.questions import quote
from agentrl.tasks.os_interaction.records import Record
from agentrl.tasks.os_interaction.world import words_in

SECOND_THOUGHT = 0.2
"""Chance that the expert notices a wrong script by its result."""
DONE = "done"
_COMPLAINT = re.compile(
    r"No such file|cannot|command not found|invalid|unrecognized|missing|syntax error"
)
_SWAPS = (
    ("wc -l", "wc -w"), ("wc -w", "wc -c"), ("head", "tail"), ("tail", "head"), ("ls -S", "ls -t"), ("ls -t", "ls -S"),
    (" >> ", " > "), (" > ", " >> "), (".txt", ".log"), (".csv", ".txt"), ("-type f", "-type d"), ("-type d", "-type f"),
    ("mv ", "cp "), ("cp ", "mv "), ("rm ", "ls "), ("-delete", ""), ("sort -u", "sort"), ("-cw", "-cv"), ("-rlw", "-rw"),
    ("-f 1", "-f 2"), ("-f 2", "-f 1"), ("$2", "$1"), ("/g ", "/ "), ("sort -n", "sort"), ("-n ", ""), ("mkdir -p", "touch"),
    ("-xf", "-tf"), ("-tf", "-xf"), ("ln -s", "ln"), ("%a", "%s"), ("-name", "-iname '*' -name"), ("readlink -f", "ls"),
    ("comm -12", "comm -23"), ("echo ", "cat "), ("sed -i", "sed"),
)  # fmt: skip


class OSExpert(Expert):
    """Acts on one record; `act` takes the messages that are new."""

    def __init__(self, record: Record, *, seed: int = 0, noise: float = 0.0) -> None:
        self.record = record
        self.script = _solution(record)
        self.noise = noise
        self.random = stream(seed, "os-expert")
        self.calls = 0
        self.wrong = False
        """Whether the last script was not the right one."""

    def act(self, messages: Sequence[Message]) -> Message:
        self.calls += 1
        if self.calls == 1 and self.script:
            return self._run(self._slips())
        observed = read_output(messages[-1].content)
        if self.wrong and (_COMPLAINT.search(observed) or self.random.random() < SECOND_THOUGHT):
            return self._run(self._slips() and self.calls < 3)
        if not self.record.asks:
            return call_message("finish_action", {"thought": DONE}, f"call_{self.calls}")
        answer = observed.strip()
        if self.record.kind == "official" and self.record.answer is not None:
            answer = (
                self.record.answer
            )  # a text that was known from the first; an example is informative only
        if answer.endswith(TRUNCATED.strip()):
            answer = answer.removesuffix(TRUNCATED.strip()).strip()
        if self._slips():
            answer = self._cut(answer)
        return call_message("answer_action", {"answer": answer}, f"call_{self.calls}")

    def _slips(self) -> bool:
        return self.noise > 0 and self.random.random() < self.noise

    def _run(self, wrong: bool) -> Message:
        script = spoil(self.record, self.random) if wrong else self.script
        self.wrong = script != self.script
        return call_message("bash_action", {"script": script}, f"call_{self.calls}")

    def _cut(self, answer: str) -> str:
        """Part of an answer of many parts; in place of a single word one of the question."""
        for separator in (" ", "/"):
            parts = [part for part in answer.split(separator) if part]
            if len(parts) > 1:
                return self.random.choice(parts)
        return self.random.choice(self.record.question.split())


def _solution(record: Record) -> str:
    """The example; of an official question as its truth was found, without what a login shell has read.

    Some examples read ~/.bashrc a second time and count what it adds to PATH.
    """
    if record.example is None:
        return ""
    if not record.needs_truth or counts_programs(record.example):
        return record.example.code
    settings = " ".join(f"{name}={value}" for name, value in ENVIRONMENT.items())
    return f"env -i {settings} bash -c {quote(record.example.code)}"


def spoil(record: Record, rng: random.Random) -> str:
    """The right script with one plausible mistake; itself where none applies."""
    script = _solution(record)
    ways = [found for way in _WAYS for found in way(record, script) if found != script]
    return rng.choice(ways) if ways else script


def _other_path(record: Record, script: str) -> list[str]:
    paths = [quote(file.path) for file in record.files if file.content is not None]
    used = [path for path in paths if path in script]
    return [script.replace(old, new) for old in used[:1] for new in paths if new != old]


def _other_word(record: Record, script: str) -> list[str]:
    texts = [(file.content or b"").decode("utf-8", "ignore") for file in record.files[:8]]
    known = [word for word in words_in(texts) if word.isalpha()][:20]
    used = [word for word in known if re.search(rf"\b{word}\b", script)]
    return [re.sub(rf"\b{old}\b", new, script, count=1) for old in used for new in known]


def _swapped(record: Record, script: str) -> list[str]:
    return [script.replace(old, new, 1) for old, new in _SWAPS if old in script]


def _cut_short(record: Record, script: str) -> list[str]:
    return [script.rpartition(" | ")[0]] if " | " in script else []


_WAYS: tuple[Callable[[Record, str], list[str]], ...] = (_other_path, _other_word, _swapped, _cut_short)  # fmt: skip
