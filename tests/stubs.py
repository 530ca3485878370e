"""Stub files, which editors and type checkers read, drawn from the names below `flow`.

python -m tests.stubs writes them; the tests compare them with what it would write.
"""

import inspect
import types
import typing
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple, Union, get_args, get_origin

import flow2onnx as flow
from flow2onnx.api.aliases import ALIASES
from flow2onnx.api.surface import MIRRORS, NAMES, ON_DEMAND
from flow2onnx.api.unsupported import Unsupported
from flow2onnx.dtypes import DType
from flow2onnx.trace.registry import entries

PACKAGE = Path(flow.__file__).parent
_HEAD = '''"""{title}

Written by `python -m tests.stubs` from the names that there are: change those.
"""

'''
_RETIRED = {alias.old: alias for alias in ALIASES}
# Rooms of the compiler that have the name of a namespace: their stubs stand beside the others.
_ROOMS = {p.name for p in PACKAGE.iterdir() if (p / "__init__.py").is_file()}


_BLOB, _ARRAY = "_flow2onnx_trace_blob.Blob", "_numpy_typing.NDArray[_typing.Any]"


class Text(NamedTuple):
    """The text of a declaration, and the modules that it mentions."""

    lines: str
    modules: frozenset[str] = frozenset()


def stubs() -> dict[Path, str]:
    """The text of each stub file by its path below the package."""
    found = dict(NAMES)
    spaces = {""} | {n[:i] for n in found for i, c in enumerate(n) if c == "."}
    return {_path(space, spaces): _module(space, spaces) for space in sorted(spaces)}


def write() -> None:
    """Write every stub, and remove those of namespaces that are gone."""
    for path, text in stubs().items():
        target = PACKAGE / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")


def _path(space: str, spaces: Iterable[str]) -> Path:
    if not space:
        return Path("__init__.pyi")
    parts = _home(space).split(".")[1:]
    has_more = any(s.startswith(f"{space}.") for s in spaces)
    folder = Path(*parts)
    return folder / "__init__.pyi" if has_more else folder.with_suffix(".pyi")


def _home(space: str) -> str:
    """The module whose stub a namespace is."""
    first, _, rest = space.partition(".")
    home = f"flow2onnx._{first}" if first in _ROOMS else f"flow2onnx.{first}"
    return f"{home}.{rest}" if rest else home


def _module(space: str, spaces: Iterable[str]) -> str:
    prefix = f"{space}." if space else ""
    own = {n[len(prefix) :]: v for n, v in NAMES.items() if n.startswith(prefix)}
    own = {n: v for n, v in own.items() if n and "." not in n}
    below = {s[len(prefix) :] for s in spaces if s.startswith(prefix) and s != space}
    below = {s for s in below if "." not in s}
    made = {n: _declaration(f"{prefix}{n}", n, v) for n, v in own.items() if n not in below}
    made |= {s: _namespace(f"{prefix}{s}", s) for s in below}
    if not space:
        made |= {n: Text(f"from flow2onnx.{room} import {n} as {n}\n")
                 for room, names in ON_DEMAND.items() for n in names}  # fmt: skip
        made["__version__"] = Text("__version__: str\n")
    made |= _mirrored(prefix, made)
    modules = sorted(set().union(*(t.modules for t in made.values())))
    title = f"`flow.{space}`." if space else str(flow.__doc__).splitlines()[0]
    imports = "".join(f"import {m} as {_short(m)}\n" for m in modules)
    body = "".join(made[n].lines for n in sorted(made))
    return _HEAD.format(title=title) + imports + ("\n" if imports else "") + body


def _mirrored(prefix: str, known: Iterable[str]) -> dict[str, Text]:
    """The names that `flow.experimental` has once more, and the namespaces below it."""
    if not prefix.startswith("experimental."):
        return {}
    home = "flow2onnx" + prefix.removeprefix("experimental").removesuffix(".")
    mirrored = (n.removeprefix(prefix) for n in MIRRORS if n.startswith(prefix))
    names = {n.partition(".")[0] for n in mirrored} - set(known)
    return {n: Text(f"from {home} import {n} as {n}\n") for n in names}


def _namespace(full: str, name: str) -> Text:
    home = _home(full)
    package, _, module = home.rpartition(".")
    if module != name:  # only a name that stays the same is imported for others
        return Text(f"{name} = {_short(home)}\n", frozenset({home}))
    return Text(f"from {package} import {module} as {name}\n")


def _declaration(full: str, name: str, value: Any) -> Text:
    if isinstance(value, Unsupported):
        return _function(name, value, "NoReturn")
    if inspect.ismodule(value):
        package, _, module = value.__name__.rpartition(".")
        return Text(f"from {package} import {module} as {name}\n")
    if isinstance(value, DType):
        return _constant(name, DType)
    if inspect.isclass(value):
        return _class(full, name, value)
    if callable(value) and not hasattr(type(value), "__getattr__"):
        return _function(name, value, mark=_mark(full))
    return _constant(name, type(value))


def _constant(name: str, kind: type) -> Text:
    shown = _annotation(kind)
    return Text(f"{name}: {shown.lines}\n", shown.modules)


def _mark(full: str) -> str:
    alias = _RETIRED.get(full)
    return f'@_typing_extensions.deprecated("use flow.{alias.new}")\n' if alias else ""


def _class(full: str, name: str, value: type) -> Text:
    home = value.__module__
    if full not in entries() or "__signature__" not in vars(value):
        if value.__name__ == name:
            return Text(f"from {home} import {name} as {name}\n")
        return Text(f"{name} = {_short(home)}.{value.__name__}\n", frozenset({home}))
    signature = _signature(value, "None")
    base, arguments = f"{_short(home)}.{value.__name__}", signature.lines.removeprefix("(")
    first = "self" if arguments.startswith(")") else "self, "
    text = f"class {name}({base}):\n{_doc(value, 4)}    def __init__({first}{arguments}: ...\n"
    return Text(text, signature.modules | {home})


def _function(name: str, value: Any, returned: str | None = None, mark: str = "") -> Text:
    signature = _signature(value, returned)
    text = f"{mark}def {name}{signature.lines}:\n{_doc(value, 4) or '    ...'}"
    modules = signature.modules | ({"typing_extensions"} if mark else set())
    return Text(text, modules)


def _doc(value: Any, indent: int) -> str:
    lines = inspect.cleandoc(value.__doc__ or "").splitlines()
    if not lines:
        return ""
    pad = " " * indent
    shown = "\n".join(f"{pad}{line}".rstrip() for line in lines).lstrip()
    quotes = '"""'
    end = f"\n{pad}{quotes}" if len(lines) > 1 or shown.endswith('"') else quotes
    prefix = "r" if "\\" in shown else ""
    return f"{pad}{prefix}{quotes}{shown}{end}\n"


def _signature(value: Any, returned: str | None) -> Text:
    signature = inspect.signature(value)
    hints = _hints(value)
    modules: set[str] = set()
    shown, kinds = [], []
    for p in signature.parameters.values():
        annotation = _or_array(_annotation(hints.get(p.name, p.annotation)))
        modules |= annotation.modules
        if p.kind is p.KEYWORD_ONLY and not {p.VAR_POSITIONAL, p.KEYWORD_ONLY} & set(kinds):
            shown.append("*")
        if kinds and kinds[-1] is p.POSITIONAL_ONLY and p.kind is not p.POSITIONAL_ONLY:
            shown.append("/")
        kinds.append(p.kind)
        star = {p.VAR_POSITIONAL: "*", p.VAR_KEYWORD: "**"}.get(p.kind, "")
        default = "" if p.default is p.empty else f" = {_default(p.default)}"
        shown.append(f"{star}{p.name}: {annotation.lines}{default}")
    if kinds and kinds[-1] is inspect.Parameter.POSITIONAL_ONLY:
        shown.append("/")
    if returned is None:
        result = _result(value, hints.get("return", signature.return_annotation))
        modules |= result.modules
        returned = result.lines
    elif returned == "NoReturn":
        modules |= {"typing"}
        returned = f"{_short('typing')}.NoReturn"
    return Text(f"({', '.join(shown)}) -> {returned}", frozenset(modules))


def _result(value: Any, returned: Any) -> Text:
    """The result of a call; of a function that `contextmanager` decorates, what `with` takes."""
    shown = _annotation(returned)
    body = getattr(value, "__wrapped__", None)
    if not inspect.isgeneratorfunction(body) or inspect.isgeneratorfunction(value):
        return shown
    entered = _annotation(get_args(returned)[0])
    text = f"{_short('contextlib')}.AbstractContextManager[{entered.lines}]"
    return Text(text, entered.modules | {"contextlib"})


def _or_array(annotation: Text) -> Text:
    """The annotation of a parameter: an array stands for a constant where a blob may."""
    if _BLOB not in annotation.lines:
        return annotation
    text = annotation.lines.replace(_BLOB, f"{_BLOB} | {_ARRAY}")
    return Text(text, annotation.modules | {"numpy.typing", "typing"})


def _hints(value: Any) -> dict[str, Any]:
    """The annotations that stand as text in the file, as objects where they resolve."""
    function = inspect.unwrap(value) if callable(value) else value
    annotations = getattr(function, "__annotations__", {})
    if not any(isinstance(a, str) for a in annotations.values()):
        return {}
    try:
        return typing.get_type_hints(function)
    except (NameError, TypeError):  # names that are there for type checkers only
        return {n: Any for n, a in annotations.items() if isinstance(a, str)}


def _default(value: Any) -> str:
    if value is None or isinstance(value, bool | int | str):
        return repr(value)
    if isinstance(value, float):
        return repr(value) if value == value and abs(value) != float("inf") else "..."
    if isinstance(value, tuple) and all(_default(v) != "..." for v in value):
        return repr(value)
    return "..."


def _annotation(annotation: Any) -> Text:
    """An annotation as a stub writes it: names of modules in full, what is unknown as Any."""
    if annotation is None or annotation is types.NoneType:
        return Text("None")
    if annotation is ...:
        return Text("...")
    if isinstance(annotation, list):  # the arguments of a Callable
        return _join("[", annotation, "]")
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin in (Union, types.UnionType):
        return _join("", parts, "", " | ")
    if origin is typing.Literal:
        return Text(f"{_short('typing')}.Literal[{', '.join(map(repr, parts))}]",
                    frozenset({"typing"}))  # fmt: skip
    if origin is not None and parts:
        head = _annotation(origin)
        return _join(f"{head.lines}[", parts, "]", modules=head.modules)
    if isinstance(annotation, type) and annotation is not inspect.Parameter.empty:
        if annotation.__module__ == "builtins":
            return Text(f"{_short('builtins')}.{annotation.__qualname__}", frozenset({"builtins"}))
        return Text(f"{_short(annotation.__module__)}.{annotation.__qualname__}",
                    frozenset({annotation.__module__}))  # fmt: skip
    return Text(f"{_short('typing')}.Any", frozenset({"typing"}))


def _join(
    head: str, parts: Iterable[Any], end: str, between: str = ", ", modules: Iterable[str] = ()
) -> Text:
    shown = [_annotation(p) for p in parts]
    used = set(modules).union(*(s.modules for s in shown))
    texts = [s.lines for s in shown]
    if between == " | ":  # what is unknown stands there once
        texts = list(dict.fromkeys(texts))
    return Text(head + between.join(texts) + end, frozenset(used))


def _short(module: str) -> str:
    """The private name under which a stub imports a module: no name below `flow` is hidden."""
    return "_" + module.replace(".", "_").lstrip("_")


if __name__ == "__main__":
    write()
