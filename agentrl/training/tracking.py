"""Trackers beside TensorBoard, through Accelerate: W&B, trackio, or a `GeneralTracker` of your own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from accelerate import Accelerator
from accelerate.tracking import GeneralTracker

from agentrl.config.learning import TRACKERS
from agentrl.errors import ConfigError

PROJECT = "agentrl"


def start_trackers(
    accelerator: Accelerator, names: Sequence[str], run: str, settings: Mapping[str, Any]
) -> None:
    """Open `names` (config key `trackers`) for `accelerator.log`.

    A tracker of your own is `module:Class`, made with the run's name. Raises `ConfigError` for one that is
    not there.
    """
    accelerator.log_with = [_tracker(name, run) for name in names]
    accelerator.init_trackers(
        PROJECT,
        config=flat(settings),
        init_kwargs={"wandb": {"name": run, "resume": "allow"}, "trackio": {"name": run}},
    )


def stop_trackers(accelerator: Accelerator) -> None:
    for tracker in accelerator.trackers:
        tracker.finish()


def flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """`{"a": {"b": 1}}` as `{"a.b": 1}`; lists as text, which is what every tracker takes."""
    out: dict[str, Any] = {}
    for key, value in settings.items():
        if isinstance(value, Mapping):
            out |= flat(value, f"{prefix}{key}.")
        else:
            out[prefix + key] = value if isinstance(value, int | float | str) else str(value)
    return out


def _tracker(name: str, run: str) -> str | GeneralTracker:
    if name in TRACKERS:
        if find_spec(name) is None:
            raise ConfigError(
                f"config key 'trackers': {name} is not installed; run: pip install {name}, or take "
                "it out of the list"
            )
        return name
    module, _, attribute = name.partition(":")
    try:
        kind = getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"config key 'trackers': {name!r} cannot be found: {error}") from None
    if not (isinstance(kind, type) and issubclass(kind, GeneralTracker)):
        raise ConfigError(
            f"config key 'trackers': {name!r} is no subclass of accelerate.tracking.GeneralTracker"
        )
    tracker: GeneralTracker = kind(run)
    return tracker
