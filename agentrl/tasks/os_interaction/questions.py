"""The kinds of question: what is asked of a world, which script prints the answer, and the answer itself.

The answer comes from the meaning of the question, computed on the world here, never from running the script:
that both agree is a test.
"""

from __future__ import annotations

import random
import shlex
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from agentrl.sandbox.files import File, pack
from agentrl.tasks.os_interaction.records import Wanted
from agentrl.tasks.os_interaction.world import EXTENSIONS, World, name_of, words_in

quote = shlex.quote


@dataclass(frozen=True, slots=True)
class Problem:
    question: str
    script: str
    answer: str | None = None
    """None where the files are to be changed."""
    wanted: tuple[Wanted, ...] = ()
    extra: tuple[File, ...] = ()
    """Files besides the world's."""


Builder = Callable[[World, random.Random], Problem | None]


def _pick(rng: random.Random, *forms: str) -> str:
    return rng.choice(forms)


def count_files(world: World, rng: random.Random) -> Problem:
    form = _pick(rng, "how many files are in {} ?", "count the files in {} .")
    inside = "" if world.level.easy else " and all folders below it"
    return Problem(
        form.format(world.root + inside),
        f"find {world.root} -type f | wc -l",
        str(len(world.inside())),
    )


def count_extension(world: World, rng: random.Random) -> Problem:
    extension = rng.choice(EXTENSIONS)
    form = _pick(
        rng, "how many files in {} end with .{} ?", "count the files in {} that end with .{} ."
    )
    return Problem(
        form.format(world.root, extension),
        f"find {world.root} -name '*.{extension}' | wc -l",
        str(len(world.with_extension(extension))),
    )


def count_folders(world: World, rng: random.Random) -> Problem:
    return Problem(
        f"how many folders are below {world.root} , at any depth ?",
        f"find {world.root} -mindepth 1 -type d | wc -l",
        str(len(world.folders)),
    )


def count_hidden(world: World, rng: random.Random) -> Problem:
    hidden = [path for path in world.inside() if name_of(path).startswith(".")]
    return Problem(
        f"how many hidden files are in {world.root} and all folders below it ?",
        f"find {world.root} -type f -name '.*' | wc -l",
        str(len(hidden)),
    )


def _count(what: str, flag: str, count: Callable[[str], int]) -> Builder:
    def build(world: World, rng: random.Random) -> Problem:
        path = rng.choice(world.visible())
        form = _pick(rng, "how many {} are in {} ?", "count the {} of {} .")
        return Problem(
            form.format(what, path), f"wc {flag} < {quote(path)}", str(count(world.files[path]))
        )

    return build


def count_matches(world: World, rng: random.Random) -> Problem:
    path = rng.choice(world.with_extension("txt") + world.with_extension("log"))
    word = rng.choice(words_in([world.files[path]]))
    form = _pick(
        rng,
        "how many lines of {} contain the word {} ?",
        "count the lines with the word {1} in {0} .",
    )
    return Problem(
        form.format(path, word),
        f"grep -cw {quote(word)} {quote(path)}",
        str(sum(_has_word(line, word) for line in world.lines(path))),
    )


def _has_word(line: str, word: str) -> bool:
    """As `grep -w` sees words: letters, digits and underscores."""
    at = line.find(word)
    while at >= 0:
        before, after = line[at - 1 : at], line[at + len(word) : at + len(word) + 1]
        if not any(c.isalnum() or c == "_" for c in (before, after)):
            return True
        at = line.find(word, at + 1)
    return False


def files_with_word(world: World, rng: random.Random) -> Problem:
    word = rng.choice(words_in([world.files[rng.choice(world.with_extension("txt"))]]))
    found = [p for p in world.inside() if any(_has_word(line, word) for line in world.lines(p))]
    form = _pick(
        rng,
        "how many files in {} contain the word {} ?",
        "count the files in {} with the word {} .",
    )
    return Problem(
        form.format(world.root, word),
        f"grep -rlw {quote(word)} {world.root} | wc -l",
        str(len(found)),
    )


def total_lines(world: World, rng: random.Random) -> Problem:
    extension = rng.choice(EXTENSIONS)
    paths = world.with_extension(extension)
    return Problem(
        f"how many lines do all files below {world.root} that end with .{extension} have together ?",
        f"find {world.root} -name '*.{extension}' -exec cat {{}} + | wc -l",
        str(sum(len(world.lines(path)) for path in paths)),
    )


def find_file(world: World, rng: random.Random) -> Problem:
    path = rng.choice(world.visible())
    form = _pick(
        rng, "what is the full path of the file {} ?", "find the file {} and give its full path ."
    )
    start = "/" if world.level.easy else world.root
    script = f"find {start} -name {quote(name_of(path))} 2> /dev/null"
    where = "" if world.level.easy else f" it is somewhere below {world.root} ."
    return Problem(form.format(name_of(path)) + where, script, path)


def _extreme(
    question: str, easy: str, nested: str, largest: Callable[[World, str], int]
) -> Builder:
    def build(world: World, rng: random.Random) -> Problem | None:
        paths = world.inside()
        sizes = sorted((largest(world, path) for path in paths), reverse=True)
        if sizes[0] == sizes[1]:
            return None
        path = max(paths, key=lambda p: largest(world, p))
        if world.level.easy:
            return Problem(
                f"which file in {world.root} {question} ?",
                f"ls {easy} {world.root} | head -n 1",
                name_of(path),
            )
        return Problem(
            f"which file below {world.root} {question} ? give its full path .",
            f"find {world.root} -type f -printf '{nested} %p\\n' | sort -n | tail -n 1 | cut -d ' ' -f 2-",
            path,
        )

    return build


def nth_line(world: World, rng: random.Random) -> Problem | None:
    path = rng.choice(world.visible())
    lines = world.lines(path)
    number = rng.randint(1, len(lines))
    form = _pick(rng, "what is line {} of {} ?", "give line {} of {} .")
    return Problem(form.format(number, path), f"sed -n {number}p {quote(path)}", lines[number - 1])


def last_line(world: World, rng: random.Random) -> Problem:
    path = rng.choice(world.visible())
    form = _pick(rng, "what is the last line of {} ?", "give the last line of {} .")
    return Problem(form.format(path), f"tail -n 1 {quote(path)}", world.lines(path)[-1])


def permissions(world: World, rng: random.Random) -> Problem:
    path = rng.choice(world.visible())
    return Problem(
        f"what are the permissions of {path} , as three octal digits ?",
        f"stat -c %a {quote(path)}",
        f"{world.modes[path]:o}",
    )


def setting(world: World, rng: random.Random) -> Problem:
    path = rng.choice(world.with_extension("conf"))
    key, _, value = rng.choice(world.lines(path)).partition("=")
    form = _pick(rng, "what is {} set to in {} ?", "give the value of {} in {} .")
    return Problem(form.format(key, path), f"grep ^{key}= {quote(path)} | cut -d = -f 2", value)


def _rows(world: World, path: str) -> list[tuple[str, int]]:
    return [(line.split(",")[0], int(line.split(",")[1])) for line in world.lines(path)]


def sum_column(world: World, rng: random.Random) -> Problem:
    path = rng.choice(world.with_extension("csv"))
    form = _pick(rng, "what is the sum of the numbers in {} ?", "add up the numbers in {} .")
    return Problem(
        form.format(path),
        f"awk -F , '{{ s += $2 }} END {{ print s }}' {quote(path)}",
        str(sum(number for _, number in _rows(world, path))),
    )


def largest_row(world: World, rng: random.Random) -> Problem:
    path, most = rng.choice(world.with_extension("csv")), rng.random() < 0.5
    rows = sorted(_rows(world, path), key=lambda row: row[1])
    word, end = ("largest", "tail") if most else ("smallest", "head")
    form = _pick(
        rng, "which name has the {} number in {} ?", "give the name with the {} number in {} ."
    )
    return Problem(
        form.format(word, path),
        f"sort -t , -k 2 -n {quote(path)} | {end} -n 1 | cut -d , -f 1",
        rows[-1 if most else 0][0],
    )


def distinct_values(world: World, rng: random.Random) -> Problem:
    path = rng.choice(world.with_extension("csv"))
    form = _pick(rng, "how many different names are in {} ?", "count the different names in {} .")
    return Problem(
        form.format(path),
        f"cut -d , -f 1 {quote(path)} | sort -u | wc -l",
        str(len({name for name, _ in _rows(world, path)})),
    )


def most_frequent(world: World, rng: random.Random) -> Problem | None:
    path = rng.choice(world.with_extension("csv"))
    counts = Counter(name for name, _ in _rows(world, path)).most_common(2)
    if len(counts) == 2 and counts[0][1] == counts[1][1]:
        return None
    return Problem(
        f"which name comes most often in {path} ?",
        f"cut -d , -f 1 {quote(path)} | sort | uniq -c | sort -n | tail -n 1 | awk '{{ print $2 }}'",
        counts[0][0],
    )


def common_words(world: World, rng: random.Random) -> Problem | None:
    paths = world.with_extension("txt")
    if len(paths) < 2:
        return None
    first, second = rng.sample(paths, 2)
    both = set(world.files[first].split()) & set(world.files[second].split())
    sides = [f"<(tr ' ' '\\n' < {quote(path)} | sort -u)" for path in (first, second)]
    return Problem(
        f"how many different words are both in {first} and in {second} ?",
        f"comm -12 {' '.join(sides)} | wc -l",
        str(len(both)),
    )


def link_target(world: World, rng: random.Random) -> Problem:
    path, target = f"{world.root}/current", rng.choice(world.visible())
    return Problem(
        f"which file does the link {path} point to ? give its full path .",
        f"readlink -f {path}",
        target,
        extra=(File(path, target=target),),
    )


def archive_count(world: World, rng: random.Random) -> Problem:
    chosen = rng.sample(world.visible(), rng.randint(2, min(6, len(world.visible()))))
    path = f"{world.root}/backup.tar"
    members = [File(name_of(name), world.files[name].encode()) for name in chosen]
    return Problem(
        f"how many files are in the archive {path} ?",
        f"tar -tf {path} | wc -l",
        str(len({name_of(name) for name in chosen})),
        extra=(File(path, pack(members)),),
    )


EASY: dict[str, Builder] = {
    "count-files": count_files,
    "count-extension": count_extension,
    "count-lines": _count("lines", "-l", lambda text: text.count("\n")),
    "count-words": _count("words", "-w", lambda text: len(text.split())),
    "count-matches": count_matches,
    "files-with-word": files_with_word,
    "find-file": find_file,
    "largest-file": _extreme("is the largest", "-S", "%s", lambda w, p: len(w.files[p])),
    "newest-file": _extreme("was changed last", "-t", "%T@", lambda w, p: w.times[p]),
    "nth-line": nth_line,
    "last-line": last_line,
    "setting": setting,
    "sum-column": sum_column,
    "largest-row": largest_row,
    "distinct-values": distinct_values,
}
MORE: dict[str, Builder] = {
    "count-folders": count_folders,
    "count-hidden": count_hidden,
    "count-bytes": _count("bytes", "-c", lambda text: len(text.encode())),
    "total-lines": total_lines,
    "permissions": permissions,
    "most-frequent": most_frequent,
    "common-words": common_words,
    "link-target": link_target,
    "archive-count": archive_count,
}
