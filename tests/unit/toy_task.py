"""The smallest task with two turns: look at a word, then say it. For tests of training."""

from agentrl.messages import Message, Status, ToolSpec
from agentrl.randomness import stream
from agentrl.tasks.base import (
    Expert,
    SampleRange,
    Task,
    ToolEpisode,
    ToolResult,
    call_message,
)

WORDS = ("apple", "bridge", "cloud", "drum", "engine", "forest")
TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
TOOLS = (ToolSpec("look", "Look around.", TEXT), ToolSpec("say", "Say a word.", TEXT))


class ToyEpisode(ToolEpisode):
    def __init__(self, word):
        super().__init__(TOOLS, [Message("user", "Task: say the word.")], max_turns=4)
        self.word = word

    async def call(self, name, arguments):
        if name == "look":
            return ToolResult(f"The word is {self.word}.")
        won = arguments["text"] == self.word
        return ToolResult("Right." if won else "Wrong.", float(won), True, Status.COMPLETED)


class ToyExpert(Expert):
    def __init__(self, word):
        self.word, self.turn = word, 0

    def act(self, messages):
        self.turn += 1
        return call_message(
            *(("look", {"text": "wall"}), ("say", {"text": self.word}))[self.turn - 1]
        )


class ToyTask(Task):
    name = "toy"
    tools = TOOLS
    level = "easy"

    def __init__(self, config, data_root):
        self.seed = config.options.get("seed", 0)

    def samples(self, split):
        return SampleRange("toy", split, 1000)

    def word(self, sample):
        return stream(self.seed, "word", sample.split, sample.index).choice(WORDS)

    async def start(self, sample, seed):
        return ToyEpisode(self.word(sample))

    def expert(self, sample, seed, noise=0.0):
        draw = stream(seed, "expert")
        wrong = draw.random() < noise
        return ToyExpert(draw.choice(WORDS) if wrong else self.word(sample))
