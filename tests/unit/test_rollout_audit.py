"""The audit finds nothing in real rollouts, and whatever is changed in them."""

import asyncio
import copy
import random

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from agentrl.rollout.agent_loop import EpisodeSettings, run_episode
from agentrl.rollout.audit import audit
from agentrl.rollout.cross_policy import PolicyPool
from agentrl.rollout.parsing import json_text
from agentrl.rollout.policy import PolicyCard, save_policy
from agentrl.rollout.rendering import create_renderer, render
from agentrl.rollout.tokenizer import train_tokenizer
from agentrl.rollout.transformers_engine import TransformersEngine
from agentrl.tasks.base import Sample, call_message
from tests.chat import chatml_tokenizer, family_tokenizer
from tests.fakes import SAY, EchoTask, FakeClient, FakeEngine

TEXTS = ["Say 7 You said stop. The arguments of say are not valid JSON.\n 1 2 3 é"] * 2
FORMATS = ("qwen3", "llama-3", "glm-4")
TOKENIZERS = {"compact": train_tokenizer(TEXTS, [SAY], 400), "chatml": chatml_tokenizer()}
TOKENIZERS |= {name: family_tokenizer(name) for name in FORMATS}
RENDERERS = {name: create_renderer(name, t, [SAY]) for name, t in TOKENIZERS.items()}
LIMITS = {"compact": 200, "chatml": 1200} | dict.fromkeys(FORMATS, 2000)


@pytest.fixture(scope="module", params=list(TOKENIZERS))
def name(request):
    return request.param


@pytest.fixture(scope="module")
def policy(name, tmp_path_factory):
    """An untrained policy: what it says is noise of every kind, invalid UTF-8 included."""
    tokenizer = TOKENIZERS[name]
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=16, intermediate_size=16, num_hidden_layers=1,
        num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=2048,
        tie_word_embeddings=True, eos_token_id=tokenizer.eos_token_id,
    )  # fmt: skip
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = LlamaForCausalLM(config)
    path = tmp_path_factory.mktemp("policy") / name
    save_policy(path, model, tokenizer, PolicyCard(name, "tiny", {}))
    return path


def settings(name):
    return EpisodeSettings(RENDERERS[name], max_new_tokens=12, max_total_tokens=LIMITS[name])


@pytest.fixture(scope="module")
def noise(name, policy):
    """Forty episodes of the untrained policy and a stale copy of it."""
    engines = {
        role: TransformersEngine(policy, slots=16, max_tokens=LIMITS[name])
        for role in ("current", "stale")
    }
    pool = PolicyPool(engines, stale_ratio=0.3)

    async def play():
        client = FakeClient(EchoTask(max_turns=4))
        tasks = [
            asyncio.create_task(
                run_episode(
                    client, pool, settings(name), Sample("echo", "train", n), seed=n, member=n,
                    session=n + 1,
                )
            )
            for n in range(40)
        ]  # fmt: skip
        while not all(task.done() for task in tasks):
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            for engine in engines.values():
                engine.step()
        return [task.result() for task in tasks]

    return asyncio.run(play())


@pytest.fixture(scope="module")
def sense(name):
    """Forty episodes of a scripted policy that is right, cut off, or says something else."""

    def script(prompt, turn, session):
        numbers = random.Random(f"{session} {turn}")
        text = numbers.choice(["stop", "1 2", "é", 'a "quoted" {word}', "x\ny", "<end>", " "])
        message = call_message("say", {"text": text})
        rendered = render(RENDERERS[name], [message])
        marked = zip(rendered.token_ids, rendered.sampled_mask, strict=True)
        ids = [token for token, sampled in marked if sampled]
        return ids[: numbers.choice([len(ids), len(ids), len(ids) - 1, 2])]

    async def play():
        pool = PolicyPool({"current": FakeEngine(script)})
        return [
            await run_episode(
                FakeClient(), pool, settings(name), Sample("echo", "train", n), seed=n, session=n
            )
            for n in range(40)
        ]

    return asyncio.run(play())


def check(name, trajectories):
    return audit(trajectories, RENDERERS[name], TOKENIZERS[name], {"echo": [SAY]})


def test_rollouts_are_what_their_messages_say(name, noise, sense):
    for trajectories in (noise, sense):
        report = check(name, trajectories)
        assert [str(m) for m in report.mismatches] == []
        assert report.trajectories == 40 and report.turns >= 60
    assert check(name, sense).recoded < check(name, noise).recoded  # noise is not canonical
    assert any(t.reward == 1 for t in sense) and any(t.metrics["truncated_turns"] for t in noise)


def environment(trajectory):
    return int(np.flatnonzero(~trajectory.loss_mask & (trajectory.turn == 1))[3])


def forge_token(t):
    t.token_ids[environment(t)] += 1


def forge_message(t):
    t.turns[0].assistant = {"role": "assistant", "content": "I never said that."}


def forge_reply(t):
    t.turns[0].replies[0]["content"] += "!"


def forge_mask(t):
    t.loss_mask[environment(t)] = True


def forge_shift(t):
    t.loss_mask[:] = np.roll(t.loss_mask, 1)  # pitfall 7: off by one


def forge_version(t):
    t.policy_version[np.flatnonzero(t.loss_mask)[0]] = -1


def forge_opening(t):
    t.opening[0]["content"] = t.opening[0]["content"].replace("Say", "say")


@pytest.mark.parametrize(
    "forge",
    [
        forge_token,
        forge_message,
        forge_reply,
        forge_mask,
        forge_shift,
        forge_version,
        forge_opening,
    ],
)
def test_a_forged_trajectory_is_found(name, noise, forge):
    forged = copy.deepcopy(next(t for t in noise if len(t.turns) > 2))
    assert check(name, [forged]).mismatches == []
    forge(forged)
    assert check(name, [forged]).mismatches


def test_no_reply_is_ever_cut_and_a_completion_only_at_its_end(name, sense):
    """Pitfall 11: what a tool said stands whole in the tokens, from its first letter to its last."""
    shown = json_text if name == "llama-3" else str  # there a tool's words are a JSON string
    for t in sense:
        text = TOKENIZERS[name].decode(t.token_ids)
        turns = t.turns if not t.loss_mask[-1] else t.turns[:-1]
        assert all(shown(reply["content"]) in text for turn in turns for reply in turn.replies)
