"""The messages of the gRPC stream, described to protobuf without generated code.

    service agentbench.Controller { rpc WorkerStream(stream Envelope) returns (stream Envelope); }

A descriptor pool of its own: other packages of a process may have a `common.proto` too. proto3 with
`optional` on each scalar reads and writes what edition 2023 does (checked against the real package's
descriptors in `tests/interop`).
"""

from __future__ import annotations

import time
import uuid
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2

METHOD = "WorkerStream"
SERVICE = "agentbench.Controller"
HEARTBEAT, REQUEST, RESPONSE = 0, 1, 2

_Field = descriptor_pb2.FieldDescriptorProto
_TYPES = {
    "string": _Field.TYPE_STRING,
    "bytes": _Field.TYPE_BYTES,
    "int32": _Field.TYPE_INT32,
    "int64": _Field.TYPE_INT64,
    "uint32": _Field.TYPE_UINT32,
}


def _message(
    name: str, fields: dict[str, tuple[int, str]], oneof: str = ""
) -> descriptor_pb2.DescriptorProto:
    """`fields`: name to (number, type). A type with a dot is a message, `*` before it repeats it;
    fields numbered above 100, or all where the message has no others, belong to `oneof`."""
    message = descriptor_pb2.DescriptorProto(name=name)
    if oneof:
        message.oneof_decl.add(name=oneof)
    scalars_in_oneof = oneof == "value"
    for field_name, (number, kind) in fields.items():
        field = message.field.add(name=field_name, number=number, label=_Field.LABEL_OPTIONAL)
        if kind.startswith("*"):
            field.label, kind = _Field.LABEL_REPEATED, kind[1:]
        if kind in _TYPES:
            field.type = _TYPES[kind]
        elif kind.startswith("enum "):
            field.type, field.type_name = _Field.TYPE_ENUM, kind[5:]
        else:
            field.type, field.type_name = _Field.TYPE_MESSAGE, kind
        if oneof and (number > 100 or scalars_in_oneof):
            field.oneof_index = 0
    for field in message.field:
        scalar = field.type != _Field.TYPE_MESSAGE and field.label == _Field.LABEL_OPTIONAL
        if scalar and not field.HasField("oneof_index"):
            field.proto3_optional = True
            field.oneof_index = len(message.oneof_decl)
            message.oneof_decl.add(name=f"_{field.name}")
    return message


def _files() -> list[descriptor_pb2.FileDescriptorProto]:
    common = descriptor_pb2.FileDescriptorProto(
        name="common.proto", package="agentrl", syntax="proto3"
    )
    common.message_type.append(
        _message("TaskIndex", {"int_value": (1, "int64"), "string_value": (2, "string")}, "value")
    )
    stream = descriptor_pb2.FileDescriptorProto(
        name="controller_v1/controller.proto",
        package="agentbench",
        syntax="proto3",
        dependency=["google/protobuf/timestamp.proto", "common.proto"],
    )
    heartbeat = _message(
        "ReceiveHeartbeatRequest",
        {
            "id": (1, "string"),
            "name": (2, "string"),
            "concurrency": (3, "uint32"),
            "indices": (4, "*.agentrl.TaskIndex"),
        },
    )
    notice = _message("SessionCancelNotice", {"session_id": (1, "int64")})
    own = ".agentbench.WorkerStreamEnvelope"
    envelope = _message(
        "WorkerStreamEnvelope",
        {
            "id": (1, "string"),
            "type": (2, f"enum {own}.MessageType"),
            "timestamp": (3, ".google.protobuf.Timestamp"),
            "receive_heartbeat_request": (101, ".agentbench.ReceiveHeartbeatRequest"),
            "session_cancel_notice": (111, ".agentbench.SessionCancelNotice"),
            "worker_response": (121, f"{own}.WorkerResponse"),
            "worker_request": (211, f"{own}.WorkerRequest"),
        },
        "body",
    )
    kinds = envelope.enum_type.add(name="MessageType")
    for number, name in enumerate(("HEARTBEAT", "REQUEST", "RESPONSE")):
        kinds.value.add(name=name, number=number)
    envelope.nested_type.append(
        _message(
            "WorkerRequest",
            {"method": (1, "string"), "endpoint": (2, "string"), "json": (3, "bytes")},
        )
    )
    envelope.nested_type.append(
        _message(
            "WorkerResponse", {"code": (1, "int32"), "message": (2, "string"), "json": (3, "bytes")}
        )
    )
    stream.message_type.extend([heartbeat, notice, envelope])
    return [common, stream]


def _classes() -> tuple[Any, Any]:
    pool = descriptor_pool.DescriptorPool()
    timestamp = descriptor_pb2.FileDescriptorProto()
    timestamp_pb2.DESCRIPTOR.CopyToProto(timestamp)
    for file in (timestamp, *_files()):
        pool.Add(file)
    return tuple(
        message_factory.GetMessageClass(pool.FindMessageTypeByName(name))
        for name in ("agentbench.WorkerStreamEnvelope", "agentrl.TaskIndex")
    )  # type: ignore[return-value]


Envelope, TaskIndex = _classes()


def _envelope(kind: int, id_: str | None = None) -> Any:
    envelope = Envelope(id=id_ or uuid.uuid4().hex, type=kind)
    nanoseconds = time.time_ns()
    envelope.timestamp.seconds, envelope.timestamp.nanos = divmod(nanoseconds, 10**9)
    return envelope


def request(endpoint: str, body: bytes) -> Any:
    envelope = _envelope(REQUEST)
    envelope.worker_request.method = "POST"
    envelope.worker_request.endpoint = endpoint
    envelope.worker_request.json = body
    return envelope


def response(id_: str, code: int, body: bytes = b"", message: str = "") -> Any:
    envelope = _envelope(RESPONSE, id_)
    envelope.worker_response.code = code
    if message:
        envelope.worker_response.message = message
    if body:
        envelope.worker_response.json = body
    return envelope


def heartbeat(id_: str, name: str, concurrency: int, indices: list[Any]) -> Any:
    envelope = _envelope(HEARTBEAT)
    body = envelope.receive_heartbeat_request
    body.id, body.name, body.concurrency = id_, name, concurrency
    body.indices.extend(
        TaskIndex(int_value=index) if isinstance(index, int) else TaskIndex(string_value=index)
        for index in indices
    )
    return envelope


def notice(session: int) -> Any:
    envelope = _envelope(REQUEST)
    envelope.session_cancel_notice.session_id = session
    return envelope


def acknowledgement(id_: str) -> Any:
    return _envelope(RESPONSE, id_)


def indices_of(body: Any) -> list[Any]:
    return [getattr(index, index.WhichOneof("value") or "int_value") for index in body.indices]
