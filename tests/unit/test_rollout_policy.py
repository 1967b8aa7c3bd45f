"""Policies on disk and their tokenizers."""

import json

import pytest
import torch
from safetensors.torch import load_file
from transformers import Qwen2Config, Qwen2ForCausalLM

from agentrl.config.models import PolicyConfig
from agentrl.errors import ConfigError, StateError
from agentrl.messages import Message
from agentrl.rollout.policy import convert_pretrained, create_tiny_policy, load_policy
from agentrl.rollout.rendering import render
from agentrl.rollout.tokenizer import train_tokenizer
from agentrl.rollout.weights import read_weights, tensors_digest
from agentrl.tasks.base import call_message
from tests.chat import TEXTS, TOOLS, family_tokenizer

SMALL = PolicyConfig(vocab_size=512, hidden_size=32, layers=2, intermediate_size=48)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("policy") / "base"
    create_tiny_policy(SMALL, TEXTS, TOOLS, 3, path)
    return path


def test_a_tiny_policy_is_a_hugging_face_folder_with_a_card(folder):
    policy = load_policy(folder)
    assert policy.chat_format == "compact" and policy.card.kind == "tiny"
    assert policy.card.provenance["parameters"] == policy.model.num_parameters()
    assert policy.model.config.vocab_size == len(policy.tokenizer) < 512
    assert policy.model.get_output_embeddings().weight is policy.model.get_input_embeddings().weight
    ids = render(policy.renderer, [call_message("take_action", {"action": "x"})]).token_ids
    assert policy.model(torch.tensor([ids])).logits.shape == (1, len(ids), len(policy.tokenizer))
    assert policy.tokenizer.eos_token == "<end>" and policy.tokenizer.pad_token == "<pad>"


def test_the_default_policy_has_0_86_million_parameters(tmp_path):
    """spec/mini.md §2, at its 1.3k tokens."""
    words = " ".join(f"word{n}" for n in range(1050))
    create_tiny_policy(PolicyConfig(), [words] * 2, TOOLS, 0, tmp_path / "p")
    policy = load_policy(tmp_path / "p")
    assert 1250 < len(policy.tokenizer) <= 1400
    assert 0.83e6 < policy.model.num_parameters() < 0.89e6


def test_the_same_arguments_give_the_same_bytes(folder, tmp_path):
    torch.manual_seed(99)
    before = torch.random.get_rng_state()
    create_tiny_policy(SMALL, TEXTS, TOOLS, 3, tmp_path / "again")
    assert torch.equal(torch.random.get_rng_state(), before)
    for name in ("model.safetensors", "tokenizer.json", "policy.json", "config.json"):
        assert (folder / name).read_bytes() == (tmp_path / "again" / name).read_bytes(), name
    create_tiny_policy(SMALL, TEXTS, TOOLS, 4, tmp_path / "again")  # replaces the folder
    one, two = (load_file(p / "model.safetensors") for p in (folder, tmp_path / "again"))
    assert tensors_digest(one) != tensors_digest(two)


def test_the_saved_tokenizer_is_the_trained_one(folder):
    trained = train_tokenizer(TEXTS, TOOLS, 512)
    loaded = load_policy(folder).tokenizer
    assert loaded.backend_tokenizer.to_str() == trained.backend_tokenizer.to_str()
    text = "You see 'Anna' at desk 12.\n\tOk  then, é <end>"
    assert loaded.encode(text) == trained.encode(text)


def test_words_of_the_texts_are_one_token_each():
    tokenizer = train_tokenizer(TEXTS, TOOLS, 600)
    for text in ("kitchen", "desk", "fridge", "Anna", "1", "2", "tool"):
        assert len(tokenizer.encode(text)) == 1, text
    assert len(tokenizer.encode("You are in the kitchen.")) == 6


def test_a_vocabulary_that_is_too_small_is_refused():
    with pytest.raises(ConfigError, match=r"policy\.vocab_size': 100 leaves no room.*at least \d+"):
        train_tokenizer(TEXTS, TOOLS, 100)


def damage_weights(path):
    file = path / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-10])


def damage_tokenizer(path):
    (path / "tokenizer.json").write_text("{")


def damage_config(path):
    (path / "config.json").write_text("[]")


def damage_card(path):
    (path / "policy.json").write_text('{"format": 1}')


def outdate_card(path):
    card = json.loads((path / "policy.json").read_text())
    (path / "policy.json").write_text(json.dumps({**card, "format": 0}))


def remove_card(path):
    (path / "policy.json").unlink()


def remove_weights(path):
    (path / "model.safetensors").unlink()


@pytest.mark.parametrize(
    "damage",
    [damage_weights, damage_tokenizer, damage_config, damage_card, outdate_card, remove_card,
     remove_weights],
)  # fmt: skip
def test_a_damaged_policy_is_one_line_that_names_it(tmp_path, damage):
    path = tmp_path / "broken policy"
    create_tiny_policy(SMALL, TEXTS, TOOLS, 3, path)
    damage(path)
    with pytest.raises(StateError, match="broken policy") as caught:
        load_policy(path)
    assert "\n" not in str(caught.value)


def test_weights_are_read_from_folders_and_files(folder, tmp_path):
    assert read_weights(folder).keys() == read_weights(folder / "model.safetensors").keys()
    with pytest.raises(StateError, match=r"cannot read the weights .*nothing"):
        read_weights(tmp_path / "nothing")


def test_a_model_from_a_folder_becomes_a_policy(tmp_path):
    """As the hub keeps it: another architecture, another precision, a template that is replaced."""
    source, out = tmp_path / "Small-Qwen", tmp_path / "out"
    config = PolicyConfig(kind="pretrained", path=source, chat_format="qwen2.5")
    with pytest.raises(ConfigError, match=r"policy\.path': .*holds no model"):
        convert_pretrained(config, out)
    tokenizer = family_tokenizer("qwen2.5")
    tokenizer.chat_template = "{{ messages[-1].content }}"
    shape = Qwen2Config(
        vocab_size=len(tokenizer), hidden_size=16, intermediate_size=16, num_hidden_layers=1,
        num_attention_heads=2, num_key_value_heads=1,
    )  # fmt: skip
    model = Qwen2ForCausalLM(shape).to(torch.bfloat16)
    model.save_pretrained(source)
    tokenizer.save_pretrained(source)
    convert_pretrained(config, out)
    policy = load_policy(out)
    assert (policy.chat_format, policy.card.kind) == ("qwen2.5", "pretrained")
    weights = policy.model.state_dict()
    assert all(torch.equal(w.float(), weights[n]) for n, w in model.state_dict().items())
    told = [Message("user", "Hello.")]
    ids = render(policy.renderer, told, add_generation_prompt=True).token_ids
    text = policy.tokenizer.apply_chat_template(
        [m.to_openai() for m in told], tokenize=False, add_generation_prompt=True
    )
    assert policy.tokenizer.decode(ids) == text
    wrong = PolicyConfig(kind="pretrained", path=source, chat_format="glm-4")
    with pytest.raises(StateError, match=r"'glm-4' needs the token '\[gMASK\]'"):
        convert_pretrained(wrong, out)


def test_unknown_packages_are_refused(tmp_path):
    config = PolicyConfig(kind="pretrained", package="llm-other")
    with pytest.raises(ConfigError, match=r"policy\.package': 'llm-other' cannot be converted"):
        convert_pretrained(config, tmp_path / "out")
