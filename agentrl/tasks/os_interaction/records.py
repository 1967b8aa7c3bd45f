"""One problem of the task: what is on the machine, what is asked, and when it is solved.

Official records have the shape of AgentBench's `data/os_interaction`: their graders are scripts, of which the
common ones (integer-match and so on) are written here, and the truth is what the example script prints.
Generated ones carry their answer, or the state that the files must have. A malformed record is a `DataError`
that names file and number; one that names a script file which is not there is left out, visibly.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from agentrl.errors import ConfigError, DataError
from agentrl.sandbox.files import File

log = logging.getLogger(__name__)

Matcher = Literal["exact", "pattern", "integer", "string", "size", "contains"]
MATCHERS: dict[str, Matcher] = {
    "integer-match": "integer", "string-match": "string", "size-match": "size",
    "containing": "contains", "in": "contains",
}  # fmt: skip
LANGUAGES = ("bash", "python")
_SWITCH_USER = re.compile(r"(?:^|&&|;|\n)\s*su\s+-\s+([a-z_][a-z0-9_-]*)\s*$")
"""A start script that ends as another user: the agent's shell is theirs."""


class MissingScript(Exception):
    """A record names a script file that is not there."""


@dataclass(frozen=True, slots=True)
class Script:
    code: str
    language: str = "bash"


@dataclass(frozen=True, slots=True)
class Wanted:
    """What must be at `path` in the end. Fields that are None are not looked at."""

    path: str
    kind: Literal["file", "folder", "link", "absent"] = "file"
    content: str | None = None
    mode: int | None = None
    target: str | None = None
    names: tuple[str, ...] | None = None
    """Everything in a folder, sorted."""


@dataclass(frozen=True, slots=True)
class Record:
    kind: str
    question: str
    files: tuple[File, ...] = ()
    init: tuple[Script, ...] = ()
    """Run as root before the agent comes."""
    start: str = ""
    """Run in the agent's own shell."""
    user: str | None = None
    """Who the agent's shell belongs to, if not root."""
    image: str = "default"
    matcher: Matcher | None = None
    """How an answer is compared; None where the state of the machine counts."""
    answer: str | None = None
    """None with a matcher: what `example` prints before the agent acts."""
    strip: bool = True
    checks: tuple[Script | None, ...] = ()
    """Scripts that must all succeed afterwards; each gets the answer and what came before it. None: the truth."""
    wanted: tuple[Wanted, ...] = ()
    example: Script | None = None
    """Solves it."""

    @property
    def needs_truth(self) -> bool:
        return (self.matcher is not None and self.answer is None) or None in self.checks

    @property
    def asks(self) -> bool:
        """Whether an answer is wanted, and not a change only."""
        return self.matcher is not None or bool(self.checks)


# -- official records


class Folder:
    """Where the scripts of some records lie: the first of `places` that has one."""

    def __init__(self, *places: Path) -> None:
        self.places = places

    def read(self, name: str) -> str:
        if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
            raise ValueError(f"script file {name!r}: must be a path below the folder of scripts")
        for place in self.places:
            try:
                return (place / name).read_text(encoding="utf-8")
            except (FileNotFoundError, NotADirectoryError):
                continue
        raise MissingScript(name)


def parse_record(data: Any, scripts: Folder) -> Record:
    """A record from its official JSON; raises `ValueError` that says which field is wrong."""
    if not isinstance(data, Mapping):
        raise ValueError("a record must be a JSON object")
    question = data.get("description")
    if not isinstance(question, str) or not question.strip():
        raise ValueError("field 'description': must be text")
    # Two records have a list of graders under `create`: nothing is made there, as in the reference.
    create = data["create"] if isinstance(data.get("create"), Mapping) else {}
    evaluation = data.get("evaluation")
    if not isinstance(evaluation, Mapping):
        raise ValueError("field 'evaluation': must be an object")
    init = _scripts(create.get("init"), scripts, "create.init")
    start, user = _start(data.get("start"), scripts)
    example = evaluation.get("example", data.get("example"))
    fields: dict[str, Any] = {}
    if "match" in evaluation:
        fields = _match(evaluation["match"])
    elif "check" in evaluation:
        fields = _check(evaluation["check"], scripts)
    else:
        raise ValueError("field 'evaluation': needs 'match' or 'check'")
    record = Record(
        kind="official",
        question=question,
        init=tuple(script for script in init if script is not None),
        start=start,
        user=user,
        image=str(create.get("local", "default")),
        example=None if example is None else _script(example, scripts, "evaluation.example"),
        **fields,
    )
    if record.needs_truth and record.example is None:
        raise ValueError("field 'evaluation.example': missing, but the check needs what it prints")
    return record


def _match(value: Any) -> dict[str, Any]:
    if isinstance(value, str):
        return {"matcher": "exact", "answer": value}
    if isinstance(value, Mapping) and isinstance(value.get("answer"), str):
        return {"matcher": "exact", "answer": value["answer"], "strip": value.get("strip", True)}
    if isinstance(value, Mapping) and isinstance(value.get("regex"), str):
        return {"matcher": "pattern", "answer": value["regex"], "strip": value.get("strip", True)}
    raise ValueError(f"field 'evaluation.match': {value!r} is neither text nor an answer or regex")


def _check(value: Any, scripts: Folder) -> dict[str, Any]:
    entries = value if isinstance(value, list) else [value]
    if len(entries) == 2 and entries[0] is None and isinstance(entries[1], Mapping):
        name = PurePosixPath(str(entries[1].get("file", ""))).stem
        if name in MATCHERS:
            return {"matcher": MATCHERS[name]}
    if not entries:
        raise ValueError("field 'evaluation.check': must not be empty")
    return {"checks": _scripts(entries, scripts, "evaluation.check")}


def _scripts(value: Any, scripts: Folder, field: str) -> tuple[Script | None, ...]:
    entries = value if isinstance(value, list) else [] if value is None else [value]
    return tuple(None if entry is None else _script(entry, scripts, field) for entry in entries)


def _script(value: Any, scripts: Folder, field: str) -> Script:
    if isinstance(value, str):
        return Script(value)
    if not isinstance(value, Mapping):
        raise ValueError(f"field {field!r}: a script is text or an object, not {value!r}")
    language = value.get("language", "bash")
    if language not in LANGUAGES:
        raise ValueError(
            f"field {field!r}: language {language!r} is none of {', '.join(LANGUAGES)}"
        )
    code = value.get("code")
    if code is None and isinstance(value.get("file"), str):
        code = scripts.read(value["file"])
    if not isinstance(code, str):
        raise ValueError(f"field {field!r}: needs 'code' or 'file'")
    return Script(code, language)


def _start(value: Any, scripts: Folder) -> tuple[str, str | None]:
    parts = [script.code for script in _scripts(value, scripts, "start") if script is not None]
    code = "\n".join(parts)
    switch = _SWITCH_USER.search(code)
    return (code[: switch.start()].rstrip(), switch[1]) if switch else (code, None)


def official_files(data_root: Path | None, split: str) -> tuple[tuple[Path, Folder], ...]:
    """The files of a split in order, each with its scripts. Sorted, where the reference's order was the disk's."""
    if data_root is None:
        raise ConfigError(
            "config key 'data_root': not set, but tasks.os_interaction.source is 'official'; set it to the "
            "folder that holds os_interaction/data and os_interaction/train_0317"
        )
    root = data_root / "os_interaction"
    if split == "std":
        return tuple(
            (path, Folder(root / "scripts" / path.parent.name, root / "scripts"))
            for number in range(1, 8)
            for path in sorted((root / "data" / str(number)).glob("*.json"))
        )
    if split == "dev":
        return ((root / "data" / "dev.json", Folder(root / "scripts" / "dev", root / "scripts")),)
    folder = root / "train_0317"
    return ((folder / "training.json", Folder(folder / "scripts", folder, root / "scripts")),)


def read_official(data_root: Path | None, split: str) -> dict[int, Record]:
    """The records of a split by their running number; without those whose script files are missing."""
    records: dict[int, Record] = {}
    missing: set[str] = set()
    number = 0
    for path, scripts in official_files(data_root, split):
        for number_in_file, data in enumerate(_entries(path)):
            try:
                records[number] = parse_record(data, scripts)
            except MissingScript as error:
                missing.add(str(error))
            except ValueError as error:
                raise DataError(f"{path}, record {number_in_file}: {error}") from None
            number += 1
    if not records:
        raise DataError(f"{data_root}/os_interaction holds no record of split {split}")
    if missing:
        log.warning(
            "os_interaction: %d of %d official records of %s are left out: no script files %s below %s",
            number - len(records), number, split, ", ".join(sorted(missing)), data_root,
        )  # fmt: skip
    return records


def _entries(path: Path) -> Iterator[Any]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: is not JSON: {error}") from None
    yield from data if isinstance(data, list) else [data]
