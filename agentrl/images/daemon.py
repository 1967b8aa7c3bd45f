"""Builds images through the `docker` SDK, says which there are, and removes ours and no others.

An image of ours carries the label `LABEL` with the hash of its context and the tag `agentrl/NAME:HASH`; the newest
is `agentrl/NAME:latest` too. Labels are inherited by what others build FROM an image, so the label alone makes no
image ours: only a tag of ours that agrees with the label is ever removed, and nothing by force.
"""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentrl import __version__
from agentrl.errors import InfrastructureError, UnavailableError
from agentrl.images.contexts import REPOSITORY, Image, build_wheel, pack
from agentrl.provenance import repository_state

LABEL = "agentrl.context"
SECONDS = 3600.0
"""Without a word from the daemon. A build step says nothing while it compiles."""
SHOWN_LINES = 15
EMBEDDED = "the embedded back ends need no images"


@contextlib.contextmanager
def connect(timeout: float = SECONDS) -> Iterator[Any]:
    """A client of the daemon that DOCKER_HOST names, or of the usual one.

    Raises:
        UnavailableError: one line that says what is missing.
    """
    try:
        import docker
        import requests
    except ImportError:
        raise UnavailableError(
            "images need the docker SDK: pip install 'agentrl-reproducible[docker]'; " + EMBEDDED
        ) from None
    where = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")
    try:
        client = docker.from_env(timeout=timeout)
        client.ping()
    except (docker.errors.DockerException, requests.RequestException, OSError):
        raise UnavailableError(
            f"no Docker daemon answers at {where}: start one (Debian: apt-get install docker.io) or set "
            f"DOCKER_HOST; {EMBEDDED}"
        ) from None
    try:
        yield client
    finally:
        client.close()


def build(
    client: Any,
    image: Image,
    say: Callable[[str], None],
    log: Callable[[str], None] = lambda line: None,
    force: bool = False,
    network: str | None = None,
) -> bool:
    """Build one image whose bases are built; False where the daemon has it already.

    `network` is that of the build's own steps (`host` where the daemon has no bridge).

    Raises:
        InfrastructureError: which step failed, and its last lines.
    """
    if not force and _exact(client, image.tag) is not None:
        _point_latest(client, image)
        say(f"{image.tag}: there already")
        return False
    say(f"{image.tag}: building")
    root = image.folder.parents[1]
    extra: dict[str, bytes] = {}
    if image.has_package:
        name, wheel = build_wheel(root)
        extra[f"dist/{name}"] = wheel
    context = pack(image, extra)
    if Image(image.name, image.folder, image.bases).context != image.context:
        raise InfrastructureError(
            f"image {image.name}: its files changed meanwhile; run this again"
        )
    _run(client, image, context, _labels(image, root), log, network)
    _point_latest(client, image)
    return True


def _run(
    client: Any,
    image: Image,
    context: bytes,
    labels: Mapping[str, str],
    log: Callable[[str], None],
    network: str | None,
) -> None:
    import docker

    lines: list[str] = []
    try:
        events = client.api.build(
            fileobj=io.BytesIO(context), custom_context=True, tag=image.tag, labels=dict(labels),
            buildargs={argument: base.tag for argument, base in image.bases.items()},
            network_mode=network, rm=True, forcerm=True, decode=True, use_config_proxy=True,
        )  # fmt: skip
        for event in events:
            for line in str(event.get("stream", "")).splitlines():
                if line.strip():
                    lines.append(line.rstrip())
                    log(line.rstrip())
            if "error" in event:
                raise InfrastructureError(
                    f"image {image.name} cannot be built: {str(event['error']).strip()}; "
                    f"its last lines: {' | '.join(lines[-SHOWN_LINES:])}"
                )
    except docker.errors.APIError as error:
        raise InfrastructureError(
            f"image {image.name} cannot be built: {error.explanation}"
        ) from None


def _labels(image: Image, root: Path) -> dict[str, str]:
    state = repository_state(root)
    revision = f"{state['commit']}{'-dirty' if state['dirty'] else ''}" if state["commit"] else ""
    return {
        LABEL: image.context,
        "org.opencontainers.image.title": image.repository,
        "org.opencontainers.image.version": __version__,
        "org.opencontainers.image.revision": revision,
    }


def _exact(client: Any, tag: str) -> Any | None:
    import docker

    try:
        found = client.images.get(tag)
    except docker.errors.ImageNotFound:
        return None
    return found if found.labels.get(LABEL) == tag.rpartition(":")[2] else None


def _point_latest(client: Any, image: Image) -> None:
    client.images.get(image.tag).tag(image.repository, "latest")


@dataclass(frozen=True, slots=True)
class Built:
    """One tag of ours that the daemon has."""

    tag: str
    name: str
    context: str
    size: int
    created: str


def built(client: Any) -> list[Built]:
    """Ours, newest first: what was built FROM another one comes before it."""
    found = []
    for image in client.images.list(filters={"label": LABEL}):
        context = image.labels.get(LABEL, "")
        for tag in image.tags:
            repository, _, version = tag.rpartition(":")
            owner, _, name = repository.partition("/")
            if owner == REPOSITORY and version == context:
                found.append(Built(tag, name, context, image.attrs["Size"], image.attrs["Created"]))
    return sorted(found, key=lambda one: one.created, reverse=True)


def prune(
    client: Any, keep: Iterable[Image], say: Callable[[str], None] = lambda line: None
) -> int:
    """Remove every image of ours but those of `keep`; the number of removed ones.

    What a container uses is kept and said; what others built FROM ours keeps its layers.
    """
    import docker

    kept = {image.tag for image in keep}
    removed = 0
    for one in built(client):
        if one.tag in kept:
            continue
        latest = f"{REPOSITORY}/{one.name}:latest"
        tags = client.images.get(one.tag).tags
        try:
            for tag in [latest] * (latest in tags) + [one.tag]:
                client.images.remove(tag)
        except docker.errors.APIError as error:
            if error.status_code != 409:
                raise InfrastructureError(
                    f"{one.tag} cannot be removed: {error.explanation}"
                ) from None
            say(f"{one.tag}: kept, {error.explanation}")
            continue
        say(f"{one.tag}: removed")
        removed += 1
    return removed
