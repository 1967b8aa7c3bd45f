"""Typed settings of a run. Imports in well under half a second; no torch."""

from agentrl.config.load import load, resolve
from agentrl.config.models import Config, TaskConfig

__all__ = ["Config", "TaskConfig", "load", "resolve"]
