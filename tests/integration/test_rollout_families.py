"""Small models of the families' own architectures, from a folder to audited episodes in their formats."""

import numpy as np
import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    Glm4Config,
    LlamaConfig,
    Qwen2Config,
    Qwen3Config,
)

from agentrl.config.models import PolicyConfig
from agentrl.rollout.agent_loop import AgentEpisode, EpisodeSettings
from agentrl.rollout.audit import audit
from agentrl.rollout.conductor import Conductor
from agentrl.rollout.cross_policy import PolicyPool
from agentrl.rollout.policy import convert_pretrained, load_policy
from agentrl.rollout.transformers_engine import TransformersEngine
from agentrl.tasks.base import Sample
from tests.chat import family_tokenizer
from tests.fakes import SAY, EchoTask, FakeClient

LIMIT = 2000


def model_folder(path, name, kind):
    """As the hub keeps a model: random weights, the family's tokens."""
    tokenizer = family_tokenizer(name)
    config = kind(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=32, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=1, head_dim=16, max_position_embeddings=4096,
        eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id,
    )  # fmt: skip
    with torch.random.fork_rng():
        torch.manual_seed(0)
        AutoModelForCausalLM.from_config(config).save_pretrained(path)
    tokenizer.save_pretrained(path)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("qwen2.5", Qwen2Config),
        ("qwen3", Qwen3Config),
        ("llama-3", LlamaConfig),
        ("glm-4", Glm4Config),
    ],
)
async def test_episodes_of_a_family(name, kind, tmp_path):
    """Invariants 1 and 2: ids by three paths, log-probabilities by a plain forward pass."""
    model_folder(tmp_path / "source", name, kind)
    config = PolicyConfig(kind="pretrained", path=tmp_path / "source", chat_format=name)
    convert_pretrained(config, tmp_path / "policy")
    engine = TransformersEngine(tmp_path / "policy", slots=8, max_tokens=LIMIT, threads=1)
    pool, client = PolicyPool({"current": engine}), FakeClient(EchoTask(max_turns=3))
    settings = EpisodeSettings(engine.renderer, max_total_tokens=LIMIT, max_new_tokens=12)
    episodes = [
        AgentEpisode(
            client, pool, settings, Sample("echo", "train", n), seed=n, session=n + 1
        ).run
        for n in range(8)
    ]  # fmt: skip
    trajectories = await Conductor([engine]).run_all(episodes, 8)
    policy = load_policy(tmp_path / "policy")
    report = audit(trajectories, policy.renderer, policy.tokenizer, {"echo": [SAY]})
    assert [str(m) for m in report.mismatches] == [] and report.turns == 24
    for trajectory in trajectories:
        ids = torch.from_numpy(trajectory.token_ids.astype(np.int64))
        with torch.no_grad():
            plain = policy.model(ids[None]).logits[0, :-1].log_softmax(-1)
        plain = plain.gather(1, ids[1:, None]).squeeze(1).numpy()
        sampled = trajectory.loss_mask[1:]
        found = trajectory.behaviour_logprobs[1:][sampled]
        np.testing.assert_allclose(found, plain[sampled], atol=1e-5)
