"""Which class serves which task name. A new task is one line here, or a `factory` in the config."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from agentrl.config.models import TaskConfig
from agentrl.errors import ConfigError
from agentrl.tasks.base import Task

TASKS = {
    "alfworld": "agentrl.tasks.alfworld.task:AlfworldTask",
    "dbbench": "agentrl.tasks.dbbench.task:DBBenchTask",
    "os_interaction": "agentrl.tasks.os_interaction.task:OSTask",
    "webshop": "agentrl.tasks.webshop.task:WebShopTask",
    "knowledgegraph": "agentrl.tasks.knowledgegraph.task:KnowledgeGraphTask",
}


def create_task(name: str, config: TaskConfig, data_root: Path | None = None) -> Task:
    """Build one task; its class takes `(config, data_root)` and checks `config.options` itself."""
    target = config.factory or TASKS.get(name)
    if target is None:
        raise ConfigError(
            f"config key 'tasks.{name}': no such task; known: {', '.join(TASKS)}; "
            "for a task of your own set 'factory: module:Class'"
        )
    module, _, attribute = target.partition(":")
    try:
        factory = getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"config key 'tasks.{name}.factory': {target!r}: {error}") from error
    task: Task = factory(config, data_root)
    return task
