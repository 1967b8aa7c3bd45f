"""`debian:bookworm-slim` made without a registry, for builds on a daemon of the tests' own.

How this machine reaches Debian and PyPI (certificates, settings of apt and pip) goes into the seed, so that
nothing of it stands in a Dockerfile.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
import threading
from pathlib import Path

import docker

NAME = ("debian", "bookworm-slim")
CERTIFICATES = "etc/ssl/certs/ca-certificates.crt"
LOCAL_CERTIFICATES = "usr/local/share/ca-certificates"
VARIABLES = ("PIP_INDEX_URL", "PIP_CERT", "http_proxy", "https_proxy", "no_proxy")
SECONDS = 1800


def missing() -> str | None:
    """Why no seed can be made here."""
    if not shutil.which("debootstrap", path=f"{os.environ['PATH']}:/usr/sbin"):
        return "no debootstrap here, to make the images' base"
    return None


def seed_folder() -> Path:
    """Made once and kept in the user's cache, or where AGENTRL_IMAGE_SEED says."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = Path(os.environ.get("AGENTRL_IMAGE_SEED") or cache / "agentrl" / "seed-bookworm")
    if not (folder / "etc/debian_version").exists():
        _make(folder)
    return folder


def _make(folder: Path) -> None:
    work = folder.with_name(folder.name + ".part")
    shutil.rmtree(work, ignore_errors=True)
    work.parent.mkdir(parents=True, exist_ok=True)
    command = ["debootstrap", "--variant=minbase", "--include=ca-certificates", "bookworm", work]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
    if done.returncode != 0:
        raise RuntimeError(f"debootstrap: {(done.stdout + done.stderr)[-500:]}")
    for package in (work / "var/cache/apt/archives").glob("*.deb"):
        package.unlink()
    work.rename(folder)


def import_seed(client: docker.DockerClient) -> None:
    """Make the image that the Dockerfiles start FROM."""
    folder, (repository, tag) = seed_folder(), NAME
    settings = {str(path).lstrip("/"): path.resolve() for path in _settings()}
    read, write = os.pipe()

    def wanted(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
        return None if member.isdev() or member.name.removeprefix("./") in settings else member

    def pack() -> None:
        with os.fdopen(write, "wb") as stream, tarfile.open(fileobj=stream, mode="w|") as archive:
            archive.add(folder, ".", filter=wanted)
            for name, path in settings.items():
                archive.add(path, f"./{name}")

    packer = threading.Thread(target=pack)
    packer.start()
    given = [f"ENV {name}={os.environ[name]}" for name in VARIABLES if os.environ.get(name)]
    with os.fdopen(read, "rb") as stream:
        client.api.import_image_from_stream(stream, repository=repository, tag=tag, changes=given)
    packer.join()
    client.images.get(f"{repository}:{tag}")


def _settings() -> list[Path]:
    """The host's own files that say how to reach what it reaches."""
    fixed = [Path("/etc/pip.conf"), Path("/", CERTIFICATES)]
    fixed += Path("/", LOCAL_CERTIFICATES).glob("*.crt")
    apt = [
        path
        for path in Path("/etc/apt/apt.conf.d").glob("*")
        if "Acquire::Check" in path.read_text()
    ]
    return [path for path in [*fixed, *apt] if path.exists()]
