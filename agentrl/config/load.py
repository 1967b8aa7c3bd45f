"""From YAML files to a `Config`: base, then the scale's overlay, then later overlays."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from agentrl.config.models import Config
from agentrl.config.variants import merge
from agentrl.errors import ConfigError


def read_yaml(path: Path) -> dict[str, Any]:
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"config file {path} does not exist") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"config file {path} cannot be read: {error}") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"config file {path} is not valid YAML: {error}") from None
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise ConfigError(f"config file {path} must hold a mapping, not {type(data).__name__}")
    return data


def resolve(settings: Mapping[str, Any]) -> Config:
    """A checked `Config` from plain data; every problem is one line that names the key."""
    try:
        return Config.model_validate(dict(settings))
    except ValidationError as error:
        raise ConfigError("; ".join(_explain(problem) for problem in error.errors())) from None


def load(paths: Iterable[Path], overrides: Mapping[str, Any] | None = None) -> Config:
    """Merge the files from left to right, then `overrides`, and check the result."""
    settings: dict[str, Any] = {}
    for path in paths:
        settings = merge(settings, read_yaml(path))
    return resolve(merge(settings, overrides or {}))


def _explain(problem: Any) -> str:
    where = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "extra_forbidden":
        known = _fields_at(problem["loc"][:-1])
        close = get_close_matches(str(problem["loc"][-1]), known, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"known keys: {', '.join(sorted(known))}"
        return f"unknown config key {where!r}; {hint}"
    message = problem["msg"].removeprefix("Value error, ")
    if not where:
        return f"config: {message}"
    whole = problem["type"] == "missing" or isinstance(problem["input"], Mapping)
    shown = "" if whole else f" (got {problem['input']!r})"
    return f"config key {where!r}: {message}{shown}"


def _fields_at(location: tuple[int | str, ...]) -> list[str]:
    """Names of the settings at a place of the tree, for the message about an unknown one."""
    model: Any = Config
    for part in location:
        if isinstance(model, type) and issubclass(model, BaseModel) and part in model.model_fields:
            annotation: Any = model.model_fields[str(part)].annotation
        else:
            annotation = model
        inner = [a for a in getattr(annotation, "__args__", ()) if isinstance(a, type)]
        models = [
            a for a in (annotation, *inner) if isinstance(a, type) and issubclass(a, BaseModel)
        ]
        model = models[0] if models else annotation
    return (
        list(model.model_fields) if isinstance(model, type) and issubclass(model, BaseModel) else []
    )
