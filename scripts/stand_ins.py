"""Enough of pydantic, jsonschema and renderers for `gpu_check.py`, where a machine has none of them.

Settings are taken as they are given: nothing here checks anything. What stood in is in the report.
"""

import sys
import types
import typing
from dataclasses import field, make_dataclass
from enum import Enum
from importlib.util import find_spec


class _Default:
    def __init__(self, value=..., *, default_factory=None, **_):
        self.value, self.factory = value, default_factory

    def make(self):
        return self.factory() if self.factory else self.value


class BaseModel:
    """Attributes from keyword arguments, else the defaults; sections within become sections."""

    def __init__(self, **given):
        kinds = typing.get_type_hints(type(self), vars(sys.modules[type(self).__module__]))
        for name, kind in kinds.items():
            if name in given:
                value = given.pop(name)
            else:
                value = getattr(type(self), name, None)
                value = value.make() if isinstance(value, _Default) else value
            self.__dict__[name] = _shaped(kind, value)
        if given:
            raise ValueError(f"{type(self).__name__} has no {', '.join(given)}")

    def __init_subclass__(cls, **_):
        super().__init_subclass__()

    @classmethod
    def model_validate(cls, data):
        return cls(**data)


def _shaped(kind, value):
    if isinstance(kind, type) and issubclass(kind, BaseModel) and isinstance(value, dict):
        return kind(**value)
    if typing.get_origin(kind) is dict and isinstance(value, dict):
        return {key: _shaped(typing.get_args(kind)[1], entry) for key, entry in value.items()}
    return value


def _decorator(*_, **__):
    return lambda function: function


def _pydantic():
    return {
        "BaseModel": BaseModel,
        "ConfigDict": dict,
        "Field": _Default,
        "ValidationError": type("ValidationError", (ValueError,), {}),
        "field_validator": _decorator,
        "model_validator": _decorator,
    }


def _jsonschema():
    class Validator:
        def __init__(self, schema):
            self.schema = schema

        def iter_errors(self, value):
            return iter(())

    return {"Draft202012Validator": Validator}


def _renderers():
    class Status(Enum):
        OK = "ok"
        INVALID_JSON = "invalid_json"
        UNCLOSED_BLOCK = "unclosed_block"
        MISSING_NAME = "missing_name"
        MALFORMED_STRUCTURE = "malformed_structure"
        UNKNOWN_TOOL = "unknown_tool"

    def record(name, *columns, **defaults):
        plain = [(column, object, None) for column in columns]
        made = [(key, object, field(default_factory=kind)) for key, kind in defaults.items()]
        return make_dataclass(name, [*plain, *made])

    def up_to_close(prompt, completion, close, *, synthesize_close=None):
        ids = [*prompt, *completion]
        for end in range(len(ids), len(prompt), -1):
            if ids[end - 1] in close:
                return ids[:end]
        return None if synthesize_close is None else [*ids, synthesize_close]

    rendered = record(
        "RenderedTokens",
        *("token_ids", "message_indices", "sampled_mask", "is_content"),
        *("message_roles", "message_tool_names"),
    )
    call = make_dataclass(
        "ParsedToolCall",
        [
            ("raw", str),
            *((name, object, None) for name in ("name", "arguments", "token_span")),
            ("status", object, Status.OK),
        ],
    )
    return {
        "Renderer": object,
        "RenderedTokens": rendered,
        "ParsedResponse": record("ParsedResponse", "content", tool_calls=list),
        "ParsedToolCall": call,
        "ToolCallParseStatus": Status,
        "config_from_name": lambda kind: None,
        "extract_message_tool_names": lambda messages: [m.get("name") for m in messages],
        "reject_assistant_in_extension": lambda ms: any(m["role"] == "assistant" for m in ms),
        "trim_to_turn_close": up_to_close,
    }


_WHAT = {"pydantic": _pydantic, "jsonschema": _jsonschema, "renderers": _renderers}


def install(force=False):
    """Put the stand-ins for what is missing (with `force`: for all) in place; returns their names."""
    names = [name for name in _WHAT if force or find_spec(name) is None]
    for name in names:
        module = types.ModuleType(name)
        vars(module).update(_WHAT[name]())
        sys.modules[name] = module
        if name == "renderers":
            module.__path__ = []
            sys.modules.update({f"renderers.{part}": module for part in ("base", "configs")})
    return names
