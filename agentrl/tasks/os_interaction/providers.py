"""Which sandboxes an episode gets: what the options say, or the first kind that works here."""

from __future__ import annotations

from pathlib import Path

from agentrl.errors import ConfigError, UnavailableError
from agentrl.sandbox.base import Provider
from agentrl.sandbox.namespaces import NamespaceProvider
from agentrl.sandbox.trees import Tree, debian_tree, host_tree
from agentrl.tasks.os_interaction.options import Options


def namespace_provider(options: Options, official: bool) -> NamespaceProvider:
    return NamespaceProvider(_tree(options, official), options.limits)


def _tree(options: Options, official: bool) -> Tree:
    if options.tree == "host":
        return host_tree(options.cache_folder)
    if options.tree == "debian":
        made = debian_tree(options.cache_folder)
        assert made is not None
        return made
    if options.tree != "auto":
        root = Path(options.tree)
        if not (root / "bin" / "bash").exists():
            raise ConfigError(
                f"config key 'tasks.os_interaction.options.tree': {options.tree!r} holds no bin/bash; give auto, debian, "
                "host, or a folder with a whole file tree"
            )
        return Tree(root.resolve())
    return debian_tree(options.cache_folder, make=official) or host_tree(options.cache_folder)


def docker_provider(options: Options) -> Provider:
    try:
        from agentrl.sandbox.docker import DockerProvider
    except ImportError:
        raise UnavailableError(
            "sandboxes of Docker need the extra: pip install 'agentrl-reproducible[docker]'"
        ) from None
    return DockerProvider(options.images, options.limits, options.docker_host, options.pool)


async def find_provider(options: Options, official: bool) -> Provider:
    """A provider that works, or `UnavailableError` with what is missing."""
    problems = []
    for kind in ("namespaces", "docker") if options.sandbox == "auto" else (options.sandbox,):
        provider: Provider | None = None
        try:
            if kind == "namespaces":
                provider = namespace_provider(options, official)
            else:
                provider = docker_provider(options)
            await provider.check()
            return provider
        except UnavailableError as error:
            problems.append(str(error))
            if provider is not None:
                await provider.close()
    raise UnavailableError(
        "os_interaction has no sandbox for its commands: " + "; and ".join(problems)
    )
