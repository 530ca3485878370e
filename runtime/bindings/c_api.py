"""The C API as data: types, error codes and functions of `runtime/c/flow2onnx_runtime.h`.

The header is the truth. What it says is read in the few forms in which it is written, and any
other form is an error that names its line.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["HEADER", "ROOT", "Api", "CType", "Enum", "Function", "HeaderError", "Struct", "Value",
           "Variable", "read"]  # fmt: skip

ROOT = Path(__file__).parents[2]
HEADER = ROOT / "runtime" / "c" / "flow2onnx_runtime.h"
_TOKEN = re.compile(r"/\*.*?\*/|\w+|[^\w\s]", re.S)
_SECTION = re.compile(r"/\* -{4} (.*?) -+ \*/", re.S)


class HeaderError(ValueError):
    """A line of the header that is written in a form unknown here."""


@dataclass(frozen=True)
class CType:
    """A type of C: `const char *const *` is base char, const, with the levels (True, False)."""

    base: str
    const: bool = False
    pointers: tuple[bool, ...] = ()  # from the base outwards; true where the pointer is const
    length: int | None = None  # of an array

    def __str__(self) -> str:
        """As the header writes it, without the length of an array."""
        stars = "".join("*const " if const else "*" for const in self.pointers).rstrip()
        return f"{'const ' * self.const}{self.base}{' ' * bool(stars)}{stars}"

    @property
    def target(self) -> "CType":
        """The type that a pointer points to."""
        if not self.pointers:
            raise HeaderError(f"{self} is no pointer")
        return CType(self.base, self.const, self.pointers[:-1])

    @property
    def is_target_const(self) -> bool:
        """True for a pointer through which nothing is written."""
        return self.pointers[-2] if len(self.pointers) > 1 else self.const


@dataclass(frozen=True)
class Variable:
    """A field or a parameter."""

    name: str
    type: CType
    text: str = ""


@dataclass(frozen=True)
class Value:
    """A constant of an enumeration."""

    name: str
    value: int
    text: str = ""


@dataclass(frozen=True)
class Enum:
    """An enumeration with its constants in the header's order."""

    name: str
    values: tuple[Value, ...]
    text: str = ""


@dataclass(frozen=True)
class Struct:
    """A structure; one without fields is known by its address alone."""

    name: str
    fields: tuple[Variable, ...]
    text: str = ""

    @property
    def is_opaque(self) -> bool:
        """True where only the runtime knows the fields."""
        return not self.fields


@dataclass(frozen=True)
class Function:
    """A function with what its comment says."""

    name: str
    result: CType
    parameters: tuple[Variable, ...]
    text: str = ""
    section: str = ""  # such as Trainer

    @property
    def can_fail(self) -> bool:
        """True where the result is a status."""
        return str(self.result) == "f2o_status"


@dataclass(frozen=True)
class Api:
    """All that the header declares, in its order."""

    enums: tuple[Enum, ...]
    structs: tuple[Struct, ...]
    functions: tuple[Function, ...]

    def enum(self, name: str) -> Enum:
        """The enumeration of that name."""
        return next(enum for enum in self.enums if enum.name == name)

    def struct(self, name: str) -> Struct:
        """The structure of that name."""
        return next(struct for struct in self.structs if struct.name == name)

    def as_json(self) -> dict[str, Any]:
        """The content of c_api.json."""
        return {
            "header": HEADER.relative_to(ROOT).as_posix(),
            "enums": [
                {"name": e.name, "text": e.text, "values": [vars(v) for v in e.values]}
                for e in self.enums
            ],
            "structs": [
                {"name": s.name, "text": s.text, "opaque": s.is_opaque,
                 "fields": [_variable(f) for f in s.fields]}
                for s in self.structs
            ],
            "functions": [
                {"name": f.name, "section": f.section, "text": f.text, "result": str(f.result),
                 "can_fail": f.can_fail, "parameters": [_variable(p) for p in f.parameters]}
                for f in self.functions
            ],
        }  # fmt: skip


def _variable(variable: Variable) -> dict[str, Any]:
    return {
        "name": variable.name,
        "type": str(variable.type),
        "base": variable.type.base,
        "pointers": len(variable.type.pointers),
        "length": variable.type.length,
        "text": variable.text,
    }


# ---- Reading -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Statement:
    """The tokens up to a semicolon, the comments before and behind it, and its section."""

    tokens: tuple[str, ...]
    text: str
    section: str
    line: int

    def error(self) -> HeaderError:
        return HeaderError(f"{HEADER.name}:{self.line}: cannot read {' '.join(self.tokens)}")


def read(path: Path = HEADER) -> Api:
    """The declarations of a header; HeaderError names a line in another form."""
    enums: list[Enum] = []
    structs: dict[str, Struct] = {}
    functions: list[Function] = []
    for statement in _statements(path.read_text("utf-8")):
        words = [t for t in statement.tokens if not t.startswith("/*")]
        if words[:2] == ["typedef", "enum"]:
            enums.append(_enum(statement))
        elif words[:2] == ["typedef", "struct"]:
            struct = _struct(statement)
            structs[struct.name] = struct
        elif "(" in words:
            functions.append(_function(statement, words))
        else:
            raise statement.error()
    return Api(tuple(enums), tuple(structs.values()), tuple(functions))


def _statements(header: str) -> Iterator[_Statement]:
    """The declarations between the lines for the preprocessor and for C++."""
    lines = [line if not line.startswith(("#", 'extern "C"', "}\n")) else "\n"
             for line in header.splitlines(keepends=True)]  # fmt: skip
    body = "".join("\n" if line.rstrip() == "}" else line for line in lines)
    tokens: list[str] = []
    before, section, depth, line = "", "", 0, 0
    found = list(_TOKEN.finditer(body))
    for number, match in enumerate(found):
        token = match[0]
        if not tokens and token.startswith("/*"):
            section, before = _comment_before(body, match, section, before)
            continue
        line = line if tokens else body.count("\n", 0, match.start()) + 1
        depth += (token in "{(") - (token in "})")
        if token != ";" or depth:
            tokens.append(token)
            continue
        behind = found[number + 1] if number + 1 < len(found) else None
        same_line = behind and "\n" not in body[match.end() : behind.start()]
        text = _plain(behind[0]) if behind and same_line else ""
        yield _Statement(tuple(tokens), before or text, section, line)
        tokens, before = [], ""
    if tokens:
        raise _Statement(tuple(tokens), "", section, line).error()


def _comment_before(body: str, match: re.Match[str], section: str, before: str) -> tuple[str, str]:
    """Section and text once a comment between declarations has been read."""
    heading = _SECTION.fullmatch(match[0])
    if heading:
        return heading[1].split(":")[0].strip(), ""
    start = body.rfind("\n", 0, match.start()) + 1
    if body[start : match.start()].strip():  # behind the declaration before
        return section, before
    stands_alone = body[match.end() : match.end() + 2] == "\n\n"
    return section, "" if stands_alone else _plain(match[0])


def _plain(comment: str) -> str:
    """The words of a comment."""
    if not comment.startswith("/*"):
        return ""
    lines = (line.strip().removeprefix("*").strip() for line in comment[2:-2].splitlines())
    return " ".join(filter(None, lines))


def _enum(statement: _Statement) -> Enum:
    tokens = statement.tokens
    if tokens[3] != "{" or tokens[-2:] != ("}", tokens[2]):
        raise statement.error()
    values: list[Value] = []
    for words, text in _items(tokens[4:-2], ","):
        if len(words) not in (1, 3) or (len(words) == 3 and words[1] != "="):
            raise statement.error()
        value = int(words[2]) if len(words) == 3 else values[-1].value + 1 if values else 0
        values.append(Value(words[0], value, text))
    return Enum(tokens[2], tuple(values), statement.text)


def _struct(statement: _Statement) -> Struct:
    tokens = statement.tokens
    if len(tokens) == 4 and tokens[2] == tokens[3]:
        return Struct(tokens[2], (), statement.text)
    if tokens[3] != "{" or tokens[-2:] != ("}", tokens[2]):
        raise statement.error()
    fields: list[Variable] = []
    for words, text in _items(tokens[4:-2], ";"):
        names = [list(part) for part, _ in _items(tuple(words), ",")]
        first = _declared(names[0], statement, text)
        fields.append(first)
        for more in names[1:]:
            if len(more) != 1 or first.type.pointers:
                raise statement.error()
            fields.append(Variable(more[0], first.type, text))
    return Struct(tokens[2], tuple(fields), statement.text)


def _items(tokens: tuple[str, ...], end: str) -> Iterator[tuple[list[str], str]]:
    """The words between separators, each with the comment behind it."""
    items: list[tuple[list[str], str]] = []
    words: list[str] = []
    for token in tokens:
        if token.startswith("/*") and words:  # behind the last one
            items.append((words, _plain(token)))
            words = []
        elif token.startswith("/*"):
            last, _ = items.pop()
            items.append((last, _plain(token)))
        elif token == end and words:
            items.append((words, ""))
            words = []
        elif token != end:
            words.append(token)
    return iter([*items, (words, "")] if words else items)


def _function(statement: _Statement, words: list[str]) -> Function:
    opening = words.index("(")
    result = _declared(words[:opening], statement, "")
    if words[-1] != ")" or "(" in words[opening + 1 :]:
        raise statement.error()
    parameters = tuple(
        _declared(part, statement, "") for part, _ in _items(tuple(words[opening + 1 : -1]), ",")
    )
    return Function(result.name, result.type, parameters, statement.text, statement.section)


def _declared(words: list[str], statement: _Statement, text: str) -> Variable:
    """`const char *const *names` as a variable; the words are its tokens."""
    rest, length = list(words), None
    if len(rest) > 3 and rest[-3] == "[" and rest[-1] == "]":
        length, rest = int(rest[-2]), rest[:-3]
    const = rest[:1] == ["const"]
    base, *levels, name = rest[const:]
    pointers: list[bool] = []
    for word in levels:
        if word == "*":
            pointers.append(False)
        elif word == "const" and pointers and not pointers[-1]:
            pointers[-1] = True
        else:
            raise statement.error()
    if not (base.isidentifier() and name.isidentifier()):
        raise statement.error()
    return Variable(name, CType(base, const, tuple(pointers), length), text)
