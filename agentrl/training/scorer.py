"""Log-probabilities of chosen tokens under a Hugging Face causal language model.

Invariants: logits exist only for the positions that are asked for (most tokens of an episode are
the environment's); they are divided by the temperature that the engine sampled with, so the ratio
is 1 when nothing has changed (pitfall 22); dropout is off, as it is in the engine.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from agentrl.errors import ConfigError


class TokenScorer(nn.Module):
    """Wraps `model`; its `forward` is the only way in, so that it can be wrapped for many ranks."""

    def __init__(self, model: Any, temperature: float = 1.0) -> None:
        super().__init__()
        self.model = model
        self.temperature = temperature
        self._no_split_modules = getattr(model, "_no_split_modules", None)  # FSDP shards by these
        if model.device.type == "cpu":
            model.set_attn_implementation("eager")  # trains faster than sdpa there (mini.md §2)
        self.eval()
        self._check_head()

    def forward(
        self, input_ids: Tensor, select: Tensor, targets: Tensor, with_entropy: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        """Log-probability of `targets` at the `select`ed positions, and the entropy there.

        Args:
            input_ids: int64[B, T], padded on the right: under causal attention no real token sees
                the padding, so no attention mask is needed.
            select: int64[K], flat positions b * T + t; the logits at t predict token t + 1.
            targets: int64[K].

        Returns:
            float32[K], and detached float32[K] or None.
        """
        hidden = self.model.get_decoder()(input_ids=input_ids, use_cache=False).last_hidden_state
        rows = hidden.flatten(0, 1).index_select(0, select)
        logits = self.model.get_output_embeddings()(rows).float()
        if self.temperature != 1.0:
            logits = logits / self.temperature
        logprobs = torch.log_softmax(logits, dim=-1)
        entropy = None
        if with_entropy:
            with torch.no_grad():
                entropy = -(logprobs.exp() * logprobs).sum(-1)
        return logprobs.gather(1, targets[:, None]).squeeze(1), entropy

    @torch.no_grad()
    def _check_head(self) -> None:
        """Refuse models that do more to their logits than one output layer (soft caps, scales)."""
        ids = torch.arange(min(4, self.model.config.vocab_size), device=self.model.device)[None]
        whole = self.model(input_ids=ids, use_cache=False).logits
        hidden = self.model.get_decoder()(input_ids=ids, use_cache=False).last_hidden_state
        split = self.model.get_output_embeddings()(hidden)
        if not torch.allclose(whole.float(), split.float(), rtol=1e-3, atol=1e-3):
            raise ConfigError(
                f"policy {type(self.model).__name__}: its logits are not its output layer applied "
                "to its last hidden state; such models cannot be trained here"
            )
