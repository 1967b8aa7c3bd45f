"""One problem of the task: a table, a question, and what counts as its answer.

The shape is that of AgentBench's `data/dbbench/*.jsonl`, for official and generated samples alike, so
one code path serves both. A malformed line is a `DataError` that names file and line.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentrl.errors import ConfigError, DataError

MUTATIONS = frozenset({"INSERT", "UPDATE", "DELETE"})
QUESTIONS = frozenset({
    "other", "counting", "comparison", "ranking",
    "aggregation-SUM", "aggregation-MIN", "aggregation-MAX", "aggregation-AVG",
})  # fmt: skip
OFFICIAL_FILES = {"std": "standard.jsonl", "dev": "dev.jsonl"}
_MD5 = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class Table:
    """Every column is TEXT and every value a string, as the task stores them."""

    name: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Record:
    kind: str
    """INSERT, UPDATE, DELETE or one of `QUESTIONS`."""
    question: str
    hint: str
    """Table name and headers in words (`add_description`)."""
    tables: tuple[Table, ...]
    label: tuple[str, ...]
    """Expected answers; for a mutation the gold statement."""
    answer_md5: str = ""
    """Hash of the tables after a mutation; "" where the gold statement has to be run."""
    sql: str = ""
    """A statement that answers the question; official ones are unreliable."""
    evidence: str = ""

    @property
    def mutates(self) -> bool:
        return self.kind in MUTATIONS

    def to_json(self) -> dict[str, Any]:
        """The official shape."""
        tables = [
            {
                "table_name": table.name,
                "table_info": {
                    "columns": [{"name": name, "type": "TEXT"} for name in table.columns],
                    "rows": [list(row) for row in table.rows],
                },
            }
            for table in self.tables
        ]
        out: dict[str, Any] = {
            "description": self.question,
            "label": list(self.label),
            "type": [self.kind],
            "table": tables[0] if len(tables) == 1 else tables,
            "add_description": self.hint,
        }
        if self.evidence:
            out["evidence"] = self.evidence
        if self.mutates:
            out["answer_md5"] = f"[('{self.answer_md5}',)]" if self.answer_md5 else ""
        else:
            out["sql"] = {"query": self.sql, "length": len(self.sql)}
        return out


def parse_record(data: Any) -> Record:
    """A record from its official JSON; raises `ValueError` that says which field is wrong."""
    if not isinstance(data, Mapping):
        raise ValueError("a record must be a JSON object")
    kinds = data.get("type")
    kind = kinds[0] if isinstance(kinds, list) and len(kinds) == 1 else None
    if kind not in MUTATIONS and kind not in QUESTIONS:
        raise ValueError(f"field 'type': {kinds!r} is not one known kind in a list")
    label = data.get("label")
    if not isinstance(label, list) or not label:
        raise ValueError("field 'label': must be a list with at least one entry")
    tables = data.get("table")
    listed = tables if isinstance(tables, list) else [tables]
    query = data.get("sql")
    return Record(
        kind=kind,
        question=_text(data, "description", required=True),
        hint=_text(data, "add_description"),
        evidence=_text(data, "evidence"),
        tables=tuple(_table(table) for table in listed),
        label=tuple(str(entry) for entry in label),
        answer_md5=_answer_md5(data, kind),
        sql=str(label[0]) if kind in MUTATIONS else _query(query),
    )


def _text(data: Mapping[str, Any], name: str, required: bool = False) -> str:
    value = data.get(name)
    if value is None and not required:
        return ""
    if not isinstance(value, str) or (required and not value.strip()):
        raise ValueError(f"field {name!r}: must be text")
    return value


def _query(value: Any) -> str:
    query = value.get("query") if isinstance(value, Mapping) else None
    return query if isinstance(query, str) else ""


def _answer_md5(data: Mapping[str, Any], kind: str) -> str:
    if kind not in MUTATIONS:
        return ""
    written = data.get("answer_md5", "")
    if written in ("", None):
        return ""
    found = _MD5.search(written) if isinstance(written, str) else None
    if found is None:
        raise ValueError(f"field 'answer_md5': {written!r} holds no md5 (32 hexadecimal digits)")
    return found.group()


def _table(data: Any) -> Table:
    info = data.get("table_info") if isinstance(data, Mapping) else None
    if not isinstance(data, Mapping) or not isinstance(info, Mapping):
        raise ValueError("field 'table': needs 'table_name' and 'table_info'")
    name, columns, rows = data.get("table_name"), info.get("columns"), info.get("rows")
    if not isinstance(name, str) or not name:
        raise ValueError("field 'table.table_name': must be a name")
    if not isinstance(columns, list) or not columns:
        raise ValueError("field 'table.table_info.columns': must be a list of columns")
    names = [column.get("name") if isinstance(column, Mapping) else None for column in columns]
    if not all(isinstance(column, str) for column in names):
        raise ValueError("field 'table.table_info.columns': every column needs a 'name'")
    if len({str(column).lower() for column in names}) != len(names):
        raise ValueError(f"field 'table.table_info.columns': a name stands twice in {names}")
    if not isinstance(rows, list):
        raise ValueError("field 'table.table_info.rows': must be a list of rows")
    for i, row in enumerate(rows):
        if not isinstance(row, list) or len(row) != len(names):
            raise ValueError(
                f"field 'table.table_info.rows': row {i} must have {len(names)} values"
            )
    return Table(name, tuple(map(str, names)), tuple(tuple(map(str, row)) for row in rows))


def read_records(path: Path) -> tuple[Record, ...]:
    """Every record of a JSON-lines file, in order."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path}: is not UTF-8 text: {error.reason} at byte {error.start}"
        ) from None
    records = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            records.append(parse_record(json.loads(line)))
        except (ValueError, RecursionError) as error:
            raise DataError(f"{path} line {number}: {error}") from None
    if not records:
        raise DataError(f"{path}: holds no record")
    return tuple(records)


def official_path(data_root: Path | None, split: str) -> Path:
    """File of a split of the official records; there is none for `train`."""
    if data_root is None:
        raise ConfigError(
            "config key 'data_root': not set, but tasks.dbbench.source is 'official'; set it to the "
            "folder that holds dbbench/standard.jsonl and dbbench/dev.jsonl"
        )
    name = OFFICIAL_FILES.get(split)
    if name is None:
        raise ConfigError(
            f"config key 'tasks.dbbench.train_split': the official records have no split {split!r} "
            "(splits: std, dev); set train_split: dev, or source: generated"
        )
    return data_root / "dbbench" / name
