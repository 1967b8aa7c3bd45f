"""Pitfalls of tokens and log-probabilities (tests/PITFALLS.md), from the engine to the learner."""

import asyncio

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from training_toys import config_of
from transformers import LlamaConfig, LlamaForCausalLM

from agentrl.errors import InfrastructureError
from agentrl.messages import Status
from agentrl.rollout.agent_loop import EpisodeSettings, run_episode
from agentrl.rollout.cross_policy import PolicyPool
from agentrl.rollout.policy import PolicyCard, load_policy, save_policy
from agentrl.rollout.rendering import create_renderer, render
from agentrl.rollout.transformers_engine import TransformersEngine
from agentrl.tasks.base import Sample, call_message
from agentrl.training.learner import Learner
from tests.chat import chatml_tokenizer
from tests.fakes import SAY, EchoTask, FakeClient, FakeEngine

TOKENIZER = chatml_tokenizer()
RENDERER = create_renderer("chatml", TOKENIZER, [SAY])


def completion(text):
    rendered = render(RENDERER, [call_message("say", {"text": text})])
    pairs = zip(rendered.token_ids, rendered.sampled_mask, strict=True)
    return [token for token, sampled in pairs if sampled]


@settings(max_examples=150)
@given(
    st.lists(
        st.tuples(st.text(alphabet='ab <>{}"é\n', max_size=6), st.integers(0, 6)),
        min_size=1,
        max_size=5,
    ),
    st.integers(250, 1200),
)
async def test_ids_mask_and_logprobs_are_made_together(turns, room):
    """1, 5 and 7: whatever is said, cut off or merged by the tokenizer across a turn's edge, the
    recorded ids are the prompts that the engine saw and the tokens that it sampled."""

    def script(prompt, turn, session):
        text, cut = turns[turn % len(turns)]
        ids = completion(text)
        return ids[: len(ids) - cut] if cut < 3 else ids

    engine = FakeEngine(script)
    made = EpisodeSettings(RENDERER, max_total_tokens=room, max_new_tokens=10_000)
    got = await run_episode(
        FakeClient(EchoTask(max_turns=4)), PolicyPool({"current": engine}), made,
        Sample("echo", "train", 1), seed=0,
    )  # fmt: skip
    rebuilt, mask = [], []
    for turn, (_, prompt, _, _) in enumerate(engine.requests):
        assert prompt[: len(rebuilt)] == rebuilt
        sampled = list(script(prompt, turn, 0))
        mask += [False] * (len(prompt) - len(rebuilt)) + [True] * len(sampled)
        rebuilt = prompt + sampled
    assert got.token_ids.tolist()[: len(rebuilt)] == rebuilt
    assert got.loss_mask.tolist() == mask + [False] * (len(got.token_ids) - len(mask))
    # The fake's log-probability names its token, so a shift by one would show.
    named = np.where(got.loss_mask, -got.token_ids / 1000, 0)
    np.testing.assert_allclose(got.behaviour_logprobs, named, rtol=1e-6)


@pytest.fixture(scope="module")
def policy(tmp_path_factory):
    config = LlamaConfig(
        vocab_size=len(TOKENIZER), hidden_size=16, intermediate_size=16, num_hidden_layers=1,
        num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=1024,
        tie_word_embeddings=True, eos_token_id=TOKENIZER.eos_token_id, initializer_range=0.3,
    )  # fmt: skip
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = LlamaForCausalLM(config)
    path = tmp_path_factory.mktemp("policy") / "tiny"
    save_policy(path, model, TOKENIZER, PolicyCard("chatml", "tiny", {}))
    return path


def rollouts(engine, temperature, rewards):
    async def play():
        pool = PolicyPool({"current": engine})
        made = EpisodeSettings(
            RENDERER, temperature=temperature, max_new_tokens=8, max_total_tokens=1000
        )
        tasks = [
            asyncio.create_task(
                run_episode(
                    FakeClient(EchoTask(max_turns=2)), pool, made, Sample("alpha", "train", 1),
                    seed=n, group_id=0, member=n, session=n + 1,
                )
            )
            for n in range(len(rewards))
        ]  # fmt: skip
        while not all(task.done() for task in tasks):
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            engine.step()
        return [task.result() for task in tasks]

    found = asyncio.run(play())
    for trajectory, reward in zip(found, rewards, strict=True):
        trajectory.reward, trajectory.status = reward, Status.COMPLETED
    return found


def learner_at(policy, temperature):
    config = config_of(
        rollout={"temperature": temperature, "max_total_tokens": 1000},
        training={"minibatches": 1},
    )
    return Learner(load_policy(policy), config, 0)


def test_the_ratio_is_1_at_zero_lag_from_the_real_engine(policy):
    """22: engine and learner at T = 0.8; and a learner that thinks of another T stops the run."""
    served = TransformersEngine(policy, slots=4, max_tokens=1000)
    step = rollouts(served, 0.8, [1.0, 0.0, 0.0, 1.0])
    metrics = learner_at(policy, 0.8).train_step(step)
    assert metrics["engine_gap"] < 1e-5
    assert metrics["logprob_gap"] < 1e-5 and metrics["kl_behaviour"] < 1e-9
    with pytest.raises(InfrastructureError, match=r"rollout\.temperature"):
        learner_at(policy, 1.0).train_step(step)


def test_an_engine_without_the_first_update_stops_the_run(policy, tmp_path):
    """26: an engine of whatever kind that says version 1 and samples with version 0 is found at the
    first tokens of version 1."""
    served = TransformersEngine(policy, slots=4, max_tokens=1000)
    learner = learner_at(policy, 1.0)
    assert "engine_gap" in learner.train_step(rollouts(served, 1.0, [1.0, 0.0, 0.0, 1.0]))
    sent = learner.publish(tmp_path, 1)
    lied = rollouts(served, 1.0, [1.0, 0.0, 0.0, 1.0])
    for one in lied:
        one.policy_version[one.loss_mask] = 1
    with pytest.raises(InfrastructureError, match="disagree on version 1"):
        learner.train_step(lied)
    asyncio.run(served.load_weights(1, sent.path))
    honest = rollouts(served, 1.0, [1.0, 0.0, 0.0, 1.0])
    assert learner.train_step(honest)["engine_gap"] < 1e-5
