"""The experiment matrix: multi-task training again, each time with something changed.

A variant names what differs from the main training and nothing else; its tasks, start, budget, seeds
and evaluation are those of `multi-task`, and cannot be changed here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from agentrl.config.algorithm import FAITHFUL
from agentrl.config.section import Section


class VariantConfig(Section):
    """One more training on all tasks, by the name of its run; `matrix` says which are trained.

    Its keys are laid over the main training's. It has no `training`: the budget is the same. An
    `algorithm` with a `preset` is taken whole; over a faithful one, `ablate` is filled in.
    """

    algorithm: dict[str, Any] = Field(default_factory=dict, description="keys of `algorithm`")
    rollout: dict[str, Any] = Field(default_factory=dict, description="keys of `rollout`")
    pipeline: dict[str, Any] = Field(default_factory=dict, description="keys of `pipeline`")

    def over(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Plain settings of the main training -> of this variant, unchecked."""
        out = merge(settings, self.model_dump(exclude_defaults=True))
        if "preset" in self.algorithm:
            out["algorithm"] = dict(self.algorithm)
        elif out.get("algorithm", {}).get("preset") == "faithful":
            changed = [k for k, v in self.algorithm.items() if k in FAITHFUL and v != FAITHFUL[k]]
            named = out["algorithm"].get("ablate", ())
            kept = [key for key in named if key not in self.algorithm]
            out["algorithm"]["ablate"] = (*kept, *changed)
        return out


def merge(base: Mapping[str, Any], overlay: Mapping[str, Any]) -> dict[str, Any]:
    """Deep merge: mappings are merged key by key, everything else is replaced."""
    out = dict(base)
    for key, value in overlay.items():
        if isinstance(value, Mapping) and isinstance(out.get(key), Mapping):
            out[key] = merge(out[key], value)
        else:
            out[key] = value
    return out
