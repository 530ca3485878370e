"""Message classes from short descriptions in protobuf's own language.

protobuf comes with onnxruntime, which needs it; it is imported only by who imports this module.

>>> class_of = messages("demo", {"Point": "repeated int64 at = 1 [packed]"})
>>> class_of["Point"](at=[1, 2]).SerializeToString().hex()
'0a020102'
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from google.protobuf import (  # type: ignore[import-untyped]  # shipped without types
    descriptor_pb2,
    descriptor_pool,
    message_factory,
    struct_pb2,
    text_format,
)
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]  # as above

__all__ = ["messages", "parse_bytes", "parse_text", "text_of"]

_FIELD = re.compile(
    r"(?P<label>optional|required|repeated|oneof:\w+)?\s*"
    r"(?:map<string,\s*(?P<mapped>[\w.]+)>|(?P<type>[\w.]+))\s+(?P<name>\w+) = (?P<number>\d+)"
    r"(?P<packed> \[packed\])?"
)
_Field = descriptor_pb2.FieldDescriptorProto
_SCALARS = {
    name: getattr(_Field, f"TYPE_{name.upper()}")
    for name in ("double", "float", "int64", "uint64", "int32", "uint32", "bool", "string", "bytes")
}
_LABELS = {
    "required": _Field.LABEL_REQUIRED,
    "repeated": _Field.LABEL_REPEATED,
}


def messages(
    package: str,
    described: Mapping[str, str],
    enums: Mapping[str, Mapping[str, int]] = {},
    *,
    syntax: str = "proto2",
) -> dict[str, Any]:  # classes that protobuf makes at run time have no static type
    """The classes, by name, of messages whose fields are described.

    A field reads ``label type name = number``; ``oneof:kind`` is a label too, and ``map<string,
    T>`` a type. A dot in a name puts a message or an enum inside another message, which comes
    before it. In the syntax "proto3" lists of numbers are packed, and texts must be UTF-8.
    """
    file = descriptor_pb2.FileDescriptorProto(
        name=f"{package}/{'_'.join(described)}.proto", package=package, syntax=syntax
    )
    file.dependency.append(struct_pb2.DESCRIPTOR.name)
    added: dict[str, Any] = {}
    for name in described:
        outer, _, last = name.rpartition(".")
        added[name] = (added[outer].nested_type if outer else file.message_type).add(name=last)
    for name, numbers in enums.items():
        outer, _, last = name.rpartition(".")
        enum = (added[outer] if outer else file).enum_type.add(name=last)
        for key, number in numbers.items():
            enum.value.add(name=key, number=number)
    types = _Types(package, frozenset(described), frozenset(enums))
    for name, text in described.items():
        for part in filter(None, map(str.strip, text.split(";"))):
            _add_field(added[name], f".{package}.{name}", part, types)
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(struct_pb2.DESCRIPTOR.serialized_pb)
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.{name}"))
        for name in described
    }


@dataclass(frozen=True)
class _Types:
    """The types that a file declares itself."""

    package: str
    messages: frozenset[str]
    enums: frozenset[str]

    def set_type(self, field: Any, kind: str) -> None:
        """Give a field the type that is called `kind`."""
        if kind in _SCALARS:
            field.type = _SCALARS[kind]
            return
        field.type = _Field.TYPE_ENUM if kind in self.enums else _Field.TYPE_MESSAGE
        is_own = kind in self.enums or kind in self.messages
        field.type_name = f".{self.package}.{kind}" if is_own else f".{kind}"


def _add_field(message: Any, full_name: str, text: str, types: _Types) -> None:
    match = _FIELD.fullmatch(text)
    assert match is not None, f"{full_name}: {text!r} describes no field"
    label, kind = match["label"] or "optional", match["mapped"] or match["type"]
    field = message.field.add(name=match["name"], number=int(match["number"]))
    field.label = _LABELS.get(label, _Field.LABEL_OPTIONAL)
    if match["packed"]:
        field.options.packed = True
    if match["mapped"]:
        entry = _add_entry(message, match["name"], kind, types)
        field.label, field.type = _Field.LABEL_REPEATED, _Field.TYPE_MESSAGE
        field.type_name = f"{full_name}.{entry}"
        return
    if label.startswith("oneof:"):
        field.oneof_index = _oneof(message, label.removeprefix("oneof:"))
    types.set_type(field, kind)


def _oneof(message: Any, name: str) -> int:
    names = [o.name for o in message.oneof_decl]
    if name not in names:
        message.oneof_decl.add(name=name)
        return len(names)
    return names.index(name)


def _add_entry(message: Any, name: str, kind: str, types: _Types) -> str:
    """Add the message that stands for one pair of a map; returns its name."""
    entry = message.nested_type.add(name="".join(p.title() for p in name.split("_")) + "Entry")
    entry.options.map_entry = True
    key = entry.field.add(name="key", number=1, label=_Field.LABEL_OPTIONAL)
    key.type = _Field.TYPE_STRING
    value = entry.field.add(name="value", number=2, label=_Field.LABEL_OPTIONAL)
    types.set_type(value, kind)
    return str(entry.name)


def text_of(message: Any) -> str:
    """A message in protobuf's text form."""
    return str(text_format.MessageToString(message))


def parse_bytes(content: bytes, kind: Any) -> Any:
    """The message of class `kind` that bytes encode; raises `ValueError` where they encode none."""
    try:
        return kind.FromString(content)
    except DecodeError as error:
        raise ValueError(str(error)) from None


def parse_text(text: str | bytes, kind: Any, *, allow_unknown: bool = False) -> Any:
    """The message of class `kind` that a text form says; raises `ValueError` where it says none."""
    try:
        return text_format.Parse(text, kind(), allow_unknown_field=allow_unknown)
    except text_format.ParseError as error:
        raise ValueError(str(error)) from None
