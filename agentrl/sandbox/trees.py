"""The file trees that namespace sandboxes start from, which are never written to.

`debian` is Debian as `debootstrap` makes it, with the tools that shell problems use; it is made once, as root,
and kept in a cache folder. `host` is the host's own /usr, read-only, under a root of a few files of our own:
it needs no preparation and shows nothing of the host but its programs (no /etc, /root, /home or /var), but
nothing below /usr can be changed and `apt`, `useradd` and `su` may not work.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from agentrl.errors import UnavailableError

BASE, COUNT = 100_000, 65_536
"""Where root makes the sandboxes: their ids 0 to COUNT-1 are BASE and up outside."""
RECIPE = 2
"""Changes when a tree is made otherwise."""
SUITE = "bookworm"
PACKAGES = (
    "procps", "psmisc", "sudo", "python3-minimal", "file", "bc", "tree", "zip", "unzip", "bzip2", "xz-utils",
    "net-tools", "iproute2", "cron", "less", "vim-tiny", "git", "curl", "wget",
)  # fmt: skip
"""What the images of the reference add to a bare system."""
HOSTS = "127.0.0.1 localhost sandbox\n::1 localhost sandbox\n"
MAKE_SECONDS = 1800.0
_COMMON = {
    "etc/passwd": "root:x:0:0:root:/root:/bin/bash\nnobody:x:65534:65534:nobody:/:/usr/sbin/nologin\n",
    "etc/group": "root:x:0:\nnogroup:x:65534:\n",
    "etc/hosts": HOSTS,
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
    "etc/profile": "export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\n",
    "etc/hostname": "sandbox\n",
}


@dataclass(frozen=True, slots=True)
class Tree:
    """`root` is the bottom of every sandbox; `binds` lie over it read-only: (outside, inside)."""

    root: Path
    binds: tuple[tuple[str, str], ...] = ()


def debian_folder(cache: Path) -> Path:
    recipe = json.dumps([RECIPE, SUITE, sorted(PACKAGES), HOSTS, BASE])
    return cache / f"debian-{hashlib.blake2b(recipe.encode(), digest_size=6).hexdigest()}"


def debian_tree(cache: Path, make: bool = True) -> Tree | None:
    """The Debian tree in `cache`; made where it is missing, if `make` (minutes, needs root and a network)."""
    folder = debian_folder(cache)
    if folder.is_dir():
        return Tree(folder)
    if not make:
        return None
    debootstrap = shutil.which("debootstrap", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if debootstrap is None or os.geteuid() != 0:
        raise UnavailableError(
            f"no Debian file tree for sandboxes in {folder}: run once as root with debootstrap installed "
            "(apt-get install debootstrap), set tasks.os_interaction.options.tree to a folder that holds one "
            f"(owned by ids from {BASE} on), or set sandbox: docker"
        )
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.is_dir():
            _make_debian(debootstrap, folder)
    return Tree(folder)


def _make_debian(debootstrap: str, folder: Path) -> None:
    work = Path(tempfile.mkdtemp(prefix="making-", dir=folder.parent))
    try:
        command = [
            debootstrap,
            "--variant=minbase",
            f"--include={','.join(PACKAGES)}",
            SUITE,
            str(work),
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=MAKE_SECONDS)
        if done.returncode != 0:
            raise UnavailableError(
                f"debootstrap could not make a Debian file tree: {_last_line(done.stdout + done.stderr)}; "
                "it needs a network with a Debian mirror"
            )
        for pattern in (
            "var/cache/apt/archives/*.deb",
            "var/lib/apt/lists/*",
            "dev/*",
        ):
            for path in work.glob(pattern):
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        (work / "etc/hosts").write_text(HOSTS)
        (work / "etc/hostname").write_text("sandbox\n")
        (work / "etc/resolv.conf").write_text("")
        shift_owners(work, BASE)
        work.chmod(0o755)
        work.rename(folder)
    except BaseException:
        shutil.rmtree(work, ignore_errors=True)
        raise


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or ["no message"])[-1]


def shift_owners(root: Path, base: int) -> None:
    """Give every file to the id that stands for its owner in a sandbox; set-user-id bits stay."""
    for folder, _, names in os.walk(root):
        for path in [Path(folder), *(Path(folder, name) for name in names)]:
            info = path.lstat()
            if info.st_uid < base:
                os.lchown(path, info.st_uid + base, info.st_gid + base)
                if not path.is_symlink():
                    path.chmod(info.st_mode & 0o7777)
        for link in filter(Path.is_symlink, Path(folder).iterdir()):
            info = link.lstat()
            if info.st_uid < base:
                os.lchown(link, info.st_uid + base, info.st_gid + base)


def host_tree(cache: Path) -> Tree:
    """The host's programs under a root of our own, made in `cache`."""
    if not Path("/usr/bin/bash").is_file() or not Path("/usr/bin/sort").is_file():
        raise UnavailableError(
            "the host's own programs do not serve as a sandbox's: no /usr/bin/bash and coreutils; "
            "set tasks.os_interaction.options.tree: debian, or sandbox: docker"
        )
    owner = BASE if os.geteuid() == 0 else os.geteuid()
    text = json.dumps([_COMMON, owner])
    folder = cache / f"host-{hashlib.blake2b(text.encode(), digest_size=6).hexdigest()}"
    if not folder.is_dir():
        cache.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix="making-", dir=cache))
        _make_skeleton(work)
        if os.geteuid() == 0:
            shift_owners(work, BASE)
        work.chmod(0o755)
        try:
            work.rename(folder)
        except OSError:  # another process was quicker
            shutil.rmtree(work)
    places = ["/usr", "/etc/alternatives"]
    places += [path for path in ("/bin", "/sbin", "/lib", "/lib64") if _is_real_folder(path)]
    return Tree(folder, tuple((path, path) for path in places if Path(path).is_dir()))


def _make_skeleton(root: Path) -> None:
    for name in (
        "etc",
        "home",
        "mnt",
        "opt",
        "root",
        "run",
        "srv",
        "tmp",
        "usr",
        "var/log",
        "var/tmp",
    ):
        (root / name).mkdir(parents=True)
    for path in ("/bin", "/sbin", "/lib", "/lib64"):
        if Path(path).is_symlink():
            (root / path.lstrip("/")).symlink_to(Path(path).readlink())
    for name, text in _COMMON.items():
        (root / name).write_text(text)
    for name, mode in (("tmp", 0o1777), ("var/tmp", 0o1777), ("root", 0o700)):
        (root / name).chmod(mode)


def _is_real_folder(path: str) -> bool:
    return Path(path).is_dir() and not Path(path).is_symlink()
