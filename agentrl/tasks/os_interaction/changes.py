"""The kinds of change: what is to be done to a world, a script that does it, and how every file must be then.

What was not to be touched is looked at too.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping

from agentrl.sandbox.files import File, pack
from agentrl.tasks.os_interaction import vocabulary as words
from agentrl.tasks.os_interaction.questions import Builder, Problem, quote
from agentrl.tasks.os_interaction.records import Wanted
from agentrl.tasks.os_interaction.world import EXTENSIONS, World, folder_of, name_of, words_in


def state(
    world: World,
    changes: Mapping[str, str | None],
    folders: tuple[str, ...] = (),
    links: Mapping[str, str] | None = None,
    modes: Mapping[str, int] | None = None,
) -> tuple[Wanted, ...]:
    """Every file as it must be: `changes` gives texts (None: gone); all else is as it was."""
    files = {**world.files, **changes}
    links = links or {}
    kept = [path for path, text in files.items() if text is not None]
    places = (world.root, world.other, *world.folders, *folders)
    everything = [*kept, *links, *places]
    return (
        *(
            Wanted(path, "file", files[path], (modes or {}).get(path)) if files[path] is not None
            else Wanted(path, "absent")
            for path in files
        ),
        *(Wanted(path, "link", target=target) for path, target in links.items()),
        *(
            Wanted(place, "folder", names=_names(everything, place))
            for place in places
        ),
    )  # fmt: skip


def _names(paths: list[str], folder: str) -> tuple[str, ...]:
    return tuple(sorted({name_of(path) for path in paths if folder_of(path) == folder}))


def _new_name(world: World, rng: random.Random, extension: str) -> str:
    taken = {name_of(path) for path in world.files}
    pool = words.EASY_NAMES if world.level.easy else words.NAMES
    return next(
        name for word in rng.sample(pool, len(pool)) if (name := f"{word}.{extension}") not in taken
    )


def _word(world: World, rng: random.Random) -> str:
    return rng.choice(words.EASY_WORDS if world.level.easy else words.WORDS)


def create_file(world: World, rng: random.Random) -> Problem:
    path, word = f"{world.root}/{_new_name(world, rng, 'txt')}", _word(world, rng)
    form = rng.choice(
        ("create the file {} with the text {} .", "write the text {1} into a new file {0} .")
    )
    return Problem(
        form.format(path, word),
        f"echo {word} > {quote(path)}",
        wanted=state(world, {path: f"{word}\n"}),
    )


def append_line(world: World, rng: random.Random) -> Problem:
    path, word = rng.choice(world.with_extension("txt")), _word(world, rng)
    form = rng.choice(("append the line {} to {} .", "add the line {} at the end of {} ."))
    return Problem(
        form.format(word, path),
        f"echo {word} >> {quote(path)}",
        wanted=state(world, {path: world.files[path] + f"{word}\n"}),
    )


def replace_word(world: World, rng: random.Random) -> Problem | None:
    path, new = rng.choice(world.with_extension("txt")), _word(world, rng)
    old = rng.choice(words_in([world.files[path]]))
    if old == new:
        return None
    form = rng.choice(("replace every {} by {} in {} .", "in {2} , change every {0} to {1} ."))
    text = re.sub(rf"\b{old}\b", new, world.files[path])
    return Problem(
        form.format(old, new, path),
        f"sed -i s/{old}/{new}/g {quote(path)}",
        wanted=state(world, {path: text}),
    )


def delete_file(world: World, rng: random.Random) -> Problem:
    path = rng.choice(world.visible())
    form = rng.choice(("delete the file {} .", "remove the file {} ."))
    return Problem(form.format(path), f"rm {quote(path)}", wanted=state(world, {path: None}))


def delete_extension(world: World, rng: random.Random) -> Problem:
    extension = rng.choice(EXTENSIONS)
    below = "in" if world.level.easy else "anywhere below"
    form = rng.choice(
        (
            "delete all files {} {} that end with .{} .",
            "remove every file {} {} that ends with .{} .",
        )
    )
    gone = dict.fromkeys(world.with_extension(extension))
    return Problem(
        form.format(below, world.root, extension),
        f"find {world.root} -name '*.{extension}' -delete",
        wanted=state(world, gone),
    )


def move_file(world: World, rng: random.Random) -> Problem:
    path = rng.choice(world.visible())
    new = f"{world.other}/{name_of(path)}"
    return Problem(
        rng.choice(("move {} to the folder {} .", "move the file {} into {} .")).format(
            path, world.other
        ),
        f"mv {quote(path)} {world.other}",
        wanted=state(world, {path: None, new: world.files[path]}),
    )


def copy_file(world: World, rng: random.Random) -> Problem:
    path = rng.choice(world.visible())
    new = f"{world.other}/{name_of(path)}"
    return Problem(
        rng.choice(("copy {} to the folder {} .", "copy the file {} into {} .")).format(
            path, world.other
        ),
        f"cp {quote(path)} {world.other}",
        wanted=state(world, {new: world.files[path]}),
    )


def rename_file(world: World, rng: random.Random) -> Problem:
    path = rng.choice(world.visible())
    name = _new_name(world, rng, path.rpartition(".")[2])
    new = f"{folder_of(path)}/{name}"
    return Problem(
        f"rename the file {path} to {name} , in the same folder .",
        f"mv {quote(path)} {quote(new)}",
        wanted=state(world, {path: None, new: world.files[path]}),
    )


def make_folder(world: World, rng: random.Random) -> Problem:
    first, second = rng.sample(words.EASY_FOLDERS, 2)
    outer = f"{world.other}/{first}"
    folders = (outer,) if world.level.easy else (outer, f"{outer}/{second}")
    form = rng.choice(("create the folder {} .", "make a new folder {} ."))
    return Problem(
        form.format(folders[-1]), f"mkdir -p {folders[-1]}", wanted=state(world, {}, folders)
    )


def set_mode(world: World, rng: random.Random) -> Problem:
    path = rng.choice(world.visible())
    mode = rng.choice([mode for mode in words.MODES if mode != world.modes[path]])
    form = rng.choice(("set the permissions of {} to {:o} .", "change the mode of {} to {:o} ."))
    return Problem(
        form.format(path, mode),
        f"chmod {mode:o} {quote(path)}",
        wanted=state(world, {}, modes={path: mode}),
    )


def change_setting(world: World, rng: random.Random) -> Problem | None:
    path, new = rng.choice(world.with_extension("conf")), _word(world, rng)
    key, _, old = rng.choice(world.lines(path)).partition("=")
    if old == new:
        return None
    form = rng.choice(("set {} to {} in {} .", "in {2} , change {0} to {1} ."))
    return Problem(
        form.format(key, new, path),
        f"sed -i s/^{key}=.*/{key}={new}/ {quote(path)}",
        wanted=state(world, {path: world.files[path].replace(f"{key}={old}\n", f"{key}={new}\n")}),
    )


def make_link(world: World, rng: random.Random) -> Problem:
    path, link = rng.choice(world.visible()), f"{world.other}/latest"
    return Problem(
        f"create a symbolic link {link} that points to {path} .",
        f"ln -s {quote(path)} {link}",
        wanted=state(world, {}, links={link: path}),
    )


def sort_lines(world: World, rng: random.Random) -> Problem:
    path, new = rng.choice(world.with_extension("txt")), f"{world.other}/sorted.txt"
    lines = sorted(set(world.lines(path)))
    return Problem(
        f"write the lines of {path} into {new} , in alphabetical order and each only once .",
        f"LC_ALL=C sort -u {quote(path)} > {new}",
        wanted=state(world, {new: "\n".join(lines) + "\n"}),
    )


def extract_archive(world: World, rng: random.Random) -> Problem:
    archive = f"{world.other}/parcel.tar"
    names = [f"part-{number}.txt" for number in range(1, rng.randint(2, 5))]
    texts = {name: _word(world, rng) + "\n" for name in names}
    data = pack(File(name, text.encode()) for name, text in texts.items())
    wanted = state(world, {f"{world.root}/{name}": text for name, text in texts.items()})
    return Problem(
        f"unpack the archive {archive} into {world.root} .",
        f"tar -xf {archive} -C {world.root}",
        wanted=tuple(entry for entry in wanted if entry.path != world.other),
        extra=(File(archive, data),),
    )


EASY: dict[str, Builder] = {
    "create-file": create_file,
    "append-line": append_line,
    "replace-word": replace_word,
    "delete-file": delete_file,
    "delete-extension": delete_extension,
    "move-file": move_file,
    "copy-file": copy_file,
    "make-folder": make_folder,
    "set-mode": set_mode,
    "change-setting": change_setting,
}
MORE: dict[str, Builder] = {
    "rename-file": rename_file,
    "make-link": make_link,
    "sort-lines": sort_lines,
    "extract-archive": extract_archive,
}
