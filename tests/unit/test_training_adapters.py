"""LoRA adapters and recomputed activations: what is trained, saved and shown to engines."""

import pytest
import torch
from safetensors.torch import load_file
from training_toys import config_of, gradients, step_of, tiny_model
from transformers import LlamaForCausalLM

from agentrl.config.learning import LoraConfig
from agentrl.errors import ConfigError
from agentrl.rollout.policy import Policy, PolicyCard
from agentrl.training.adapters import add_adapters, exported_weights, recompute_activations
from agentrl.training.learner import Learner
from agentrl.training.weights import named_weights, trained_weights

LORA = {"lora": {"rank": 4, "alpha": 8}}


class NoTokenizer:
    def save_pretrained(self, folder):
        pass


def learner_of(**training):
    card = PolicyCard("compact", "tiny", {})
    config = config_of(training=training)
    return Learner(Policy(tiny_model(), NoTokenizer(), None, card), config, 0)


@pytest.fixture
def peft():
    return pytest.importorskip("peft")


def test_engines_are_given_what_peft_itself_would_merge(peft, tmp_path):
    """After two steps; the base is as it was, and no published name is an adapter's."""
    learner = learner_of(**LORA)
    before = {name: value.clone() for name, value in named_weights(tiny_model()).items()}
    assert exported_weights(learner.model).keys() == before.keys()
    for name, value in exported_weights(learner.model).items():
        assert torch.equal(value, before[name])  # an adapter starts as nothing
    step = step_of(version=-1)
    learner.train_step(step)
    learner.train_step(step)
    reference = learner.publish(tmp_path, 2)
    published = load_file(reference.path)
    frozen = {n: p for n, p in learner.model.named_parameters() if not p.requires_grad}
    for name, value in frozen.items():
        plain = name.removeprefix("base_model.model.").replace(".base_layer", "")
        assert torch.equal(value, before[plain])
    learner.export_policy(tmp_path / "policy")
    merged = dict(learner.model.merge_and_unload().named_parameters())
    assert published.keys() == merged.keys()
    changed = [n for n in published if not torch.equal(published[n], before[n])]
    assert len(changed) == 2 * 7  # the seven linear layers of both blocks
    for name, value in published.items():
        torch.testing.assert_close(value, merged[name], rtol=0, atol=1e-6)
    exported = LlamaForCausalLM.from_pretrained(tmp_path / "policy")
    assert exported.lm_head.weight is exported.model.embed_tokens.weight  # tied, as it was
    for name, value in exported.named_parameters():
        assert torch.equal(value, published[name])


def test_only_adapters_are_trained_saved_and_restored(peft, tmp_path):
    learner, step = learner_of(**LORA), step_of(version=-1)
    assert all(".lora_" in name for name in trained_weights(learner.model))
    learner.train_step(step)
    learner.save(tmp_path)
    saved = load_file(tmp_path / "learner.safetensors")
    assert saved and all(".lora_" in name for name in saved)
    expected = learner.train_step(step)
    other = learner_of(**LORA)
    assert other.load(tmp_path) == 1
    assert other.train_step(step) == expected
    for name, value in trained_weights(other.model).items():
        assert torch.equal(value, trained_weights(learner.model)[name])


def test_adapters_start_from_the_seed(peft):
    first, same, other = (
        trained_weights(add_adapters(tiny_model(), LoraConfig(rank=4), seed)) for seed in (1, 1, 2)
    )
    assert all(torch.equal(first[name], same[name]) for name in first)
    assert any(not torch.equal(first[name], other[name]) for name in first)


def test_named_layers_only(peft):
    model = add_adapters(tiny_model(), LoraConfig(rank=2, target_modules=("q_proj",)), 0)
    assert len(trained_weights(model)) == 2 * 2
    with pytest.raises(ConfigError, match=r"training\.lora\.target_modules"):
        add_adapters(tiny_model(), LoraConfig(target_modules=("chess",)), 0)


def test_without_peft_it_is_one_line(monkeypatch):
    monkeypatch.setattr("agentrl.training.adapters.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"'training\.lora': peft is not installed") as refused:
        add_adapters(tiny_model(), LoraConfig(), 0)
    assert "\n" not in str(refused.value)


def test_recomputed_activations_give_the_same_gradient_and_do_recompute():
    plain, frugal = learner_of(), learner_of(gradient_checkpointing=True)
    calls = {}
    for name, learner in (("plain", plain), ("frugal", frugal)):
        layer = learner.model.model.layers[0].mlp

        def counted(*_, name=name):
            calls[name] = calls.get(name, 0) + 1

        layer.register_forward_pre_hook(counted)  # recomputing stops when it has enough
        step = step_of(version=-1)
        batch = learner.prepare(step)
        rows = [batch.row(index) for index, live in enumerate(batch.live) if live]
        learner.accumulate(rows, batch.denominator(range(len(step))), 2, 1)
    assert calls["frugal"] == 2 * calls["plain"]
    left, right = gradients(plain.model), gradients(frugal.model)
    for name in left:
        torch.testing.assert_close(left[name], right[name], rtol=1e-5, atol=1e-7)
    attention = frugal.model.model.layers[0].self_attn
    assert not attention.training  # dropout stays off


def test_a_model_that_cannot_recompute_is_refused():
    class Stubborn(LlamaForCausalLM):
        supports_gradient_checkpointing = False

    with pytest.raises(ConfigError, match=r"'training\.gradient_checkpointing'.*set it to false"):
        recompute_activations(Stubborn(tiny_model().config))
