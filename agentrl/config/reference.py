"""The tables of `config/README.md`, made from the models: one source for every key.

python -m agentrl.config.reference config/README.md
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from agentrl.config.models import Config

BEGIN, END = "<!-- keys: made by `make docs` -->\n", "<!-- end of keys -->\n"


def markdown() -> str:
    """A table of the top-level keys, then one a section, in the order of the models."""
    blocks = [_block("", Config)]
    pending = _sections("", Config)
    while pending:
        path, model = pending.pop(0)
        blocks.append(_block(path, model))
        pending = _sections(path, model) + pending
    return "\n".join(blocks)


def update(readme: Path) -> None:
    """Put the tables between the two marks of `readme`."""
    text = readme.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    readme.write_text(f"{before}{BEGIN}\n{markdown()}\n{END}{after}", encoding="utf-8")


def _block(path: str, model: type[BaseModel]) -> str:
    heading = f"### `{path}`\n\n" if path else "### Top level\n\n"
    about = " ".join((model.__doc__ or "").split()) if path else ""
    rows = [
        f"| `{name}` | {_values(field.annotation)} | {_default(field)} | {_meaning(field)} |"
        for name, field in model.model_fields.items()
        if not _models(field.annotation)
    ]
    table = "\n".join(["| key | values | default | meaning |", "| --- | --- | --- | --- |", *rows])
    return f"{heading}{about + chr(10) * 2 if about else ''}{table}\n"


def _sections(path: str, model: type[BaseModel]) -> list[tuple[str, type[BaseModel]]]:
    found = []
    for name, field in model.model_fields.items():
        for inner in _models(field.annotation):
            kind = get_origin(_bare(field.annotation))
            suffix = {dict: ".NAME", tuple: "[]"}.get(kind, "") if kind else ""
            where = f"{path}.{name}{suffix}".lstrip(".")
            if where != "warm_start.stages[]":  # filled in by the workflow; shown under clones
                found.append((where, inner))
    return found


def _models(annotation: Any) -> list[type[BaseModel]]:
    """The section that a setting holds, if any: itself, in a list, or by name."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for part in get_args(annotation) for model in _models(part)]


def _bare(annotation: Any) -> Any:
    return get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation


def _values(annotation: Any) -> str:
    annotation = _bare(annotation)
    kind, parts = get_origin(annotation), get_args(annotation)
    if kind is Literal:
        return ", ".join(f"`{part}`" for part in parts)
    if kind in (Union, UnionType):
        return ", ".join(_values(part) for part in parts)
    if kind is dict:
        return f"name: {_values(parts[1])}"
    if kind is tuple:
        return f"list of {_values(parts[0])}"
    names = {int: "whole number", float: "number", str: "text", bool: "true, false"}
    return names.get(annotation, {NoneType: "null", Path: "path", Any: "any"}.get(annotation, "?"))


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "–"
    value = field.get_default(call_default_factory=True)
    if value is None:
        return "`null`"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, tuple):
        return f"`{list(value)}`"
    return f"`{value}`"


def _meaning(field: FieldInfo) -> str:
    return (field.description or "").replace("|", "\\|")


if __name__ == "__main__":
    update(Path(sys.argv[1]))
