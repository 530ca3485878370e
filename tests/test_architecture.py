"""The shape of the code: what imports what, what is kept where."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "flow2onnx"
RUNTIME = ROOT / "runtime" / "python" / "flow2onnx_runtime"
FILES = sorted(PACKAGE.rglob("*.py"))
OURS = [*FILES, *sorted(RUNTIME.rglob("*.py")), *sorted((ROOT / "models").rglob("*.py"))]
SOURCES = {path: path.read_text() for path in OURS}
TREES = {path: ast.parse(text) for path, text in SOURCES.items()}

# What each part of the package may import besides itself. A part is a folder or a file.
LEAVES = {"errors", "dtypes", "config", "typing", "collector"}
CORE = {*LEAVES, "graph"}
MAY_IMPORT = {
    "errors": set(),
    "collector": set(),
    "dtypes": {"errors"},
    "typing": {"errors", "dtypes"},
    "config": {"errors", "dtypes", "trace.source"},
    "graph": {"errors", "dtypes"},
    "trace": CORE,
    "ops": {*CORE, "trace", "data"},
    "autodiff": {*CORE},
    "passes": {*CORE},
    "optim": {*CORE, "trace", "autodiff"},
    "compile": {*CORE, "trace", "autodiff", "optim", "passes"},
    "memory": {*CORE, "compile", "trace"},
    "native": {"errors"},
    "execute": {*CORE, "compile", "memory", "data", "native", "passes"},
    "acceleration": {*CORE, "native", "passes"},
    "calls": {"errors"},
    "proto": set(),
    "events": {"errors", "proto"},
    "preset": {"config"},
    "tuning": {*CORE, "compile"},
    "session": {
        *CORE,
        "trace",
        "calls",
        "preset",
        "data",
        "compile",
        "tuning",
        "memory",
        "execute",
    },
    "explain": {*CORE, "passes", "compile", "memory", "execute"},
    "checkpoint": {"errors", "dtypes"},
    "data": {"errors", "dtypes", "trace.source", "trace.host"},
    "server": {"errors"},
    "export": {
        *CORE,
        "trace",
        "autodiff",
        "optim",
        "passes",
        "compile",
        "memory",
        "session",
        "checkpoint",
    },
    "imported": {*CORE, "trace", "ops", "autodiff", "optim", "passes", "compile", "export"},
    "api": {
        *CORE,
        "acceleration",
        "trace",
        "ops",
        "optim",
        "session",
        "checkpoint",
        "data",
        "events",
        "explain",
        "export",
        "imported",
        "proto",
    },
}
# The command line and the package itself stand above everything.
ABOVE = {"cli", "__init__", "__main__"}
# Facts about the package as a whole.
EVERYWHERE = {"__version__"}

MAY_USE = {
    "onnx": {"graph", "passes"},
    "onnx_ir": {"graph", "passes"},
    "onnxruntime": {"execute", "cli", "server", "export"},
    "flow2onnx_runtime": {
        "acceleration",
        "execute",
        "explain",
        "session",
        "tuning",
        "export",
        "checkpoint",
        "errors",
        "events",
        "proto",
        "api",
        "cli",
        "imported",
        "server",
    },
    "sklearn": {"data"},
    "PIL": {"data", "cli"},
    "starlette": {"server"},
    "uvicorn": {"server"},
    "grpc": {"server", "cli"},
    "prometheus_client": {"server"},
    "google": {"graph", "server"},
    "rich": {"cli"},
    "click": {"cli"},
    "matplotlib": {"cli"},
}


def part_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports(path: Path) -> Iterator[tuple[str, int]]:
    """The modules that a file imports, with the line; names too, as they may be modules."""
    for node in ast.walk(TREES[path]):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            base = node.module or ""
            yield from ((f"{base}.{alias.name}", node.lineno) for alias in node.names)


def is_typing_only(path: Path, line: int) -> bool:
    """Whether the line stands below `if TYPE_CHECKING:`."""
    return any(
        isinstance(node, ast.If)
        and isinstance(node.test, ast.Name)
        and node.test.id == "TYPE_CHECKING"
        and node.lineno <= line <= (node.end_lineno or node.lineno)
        for node in TREES[path].body
    )


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_go_one_way(path):
    part = part_of(path)
    if part in ABOVE:
        return
    assert part in MAY_IMPORT, f"{part} has no place in the order of the stages"
    for module, line in imports(path):
        names = module.split(".")
        if names[0] != "flow2onnx" or is_typing_only(path, line):
            continue
        allowed = {part, *MAY_IMPORT[part], *EVERYWHERE}
        reached = {names[1], ".".join(names[1:3])} if len(names) > 1 else {"flow2onnx"}
        assert reached & allowed, f"{path}:{line}: {part} imports {module}"


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_libraries_stay_in_their_places(path):
    part = part_of(path)
    for module, line in imports(path):
        places = MAY_USE.get(module.split(".")[0])
        assert places is None or part in places or is_typing_only(path, line), (
            f"{path}:{line}: {part} imports {module}, which is for {sorted(places)}"
        )


def test_every_rule_is_about_something():
    parts = {part_of(path) for path in FILES}
    assert set(MAY_IMPORT) - parts <= {"export"}


def test_runtime_stands_alone():
    known = {"numpy", "onnxruntime", "flow2onnx_runtime", "__future__"}
    # of onnxruntime's own requirements; nothing that a bundle needs imports these two
    with_protobuf = {RUNTIME / "messages.py", RUNTIME / "model_config.py"}
    import sys

    for path in RUNTIME.rglob("*.py"):
        for module, line in imports(path):
            top = module.split(".")[0]
            if top == "onnx_ir" and is_typing_only(path, line):
                continue  # what a distribution that extends us is given; a device has none
            is_known = top in known or (top == "google" and path in with_protobuf)
            assert is_known or top in sys.stdlib_module_names, f"{path}:{line}: {module}"
            if path not in with_protobuf:
                assert not module.startswith(
                    ("flow2onnx_runtime.messages", "flow2onnx_runtime.model_config")
                ), f"{path}:{line}: {module} needs protobuf"


# Filled while modules are imported, and only then.
REGISTRIES = {"trace/registry.py:_ENTRIES", "autodiff/registry.py:_RULES",
              "autodiff/registry.py:_EXPANSIONS", "graph/alternatives.py:_LOWERINGS",
              "session.py:_default"}  # fmt: skip
MUTABLE_CALLS = {"dict", "list", "set", "defaultdict", "Counter", "deque", "bytearray"}


def is_mutable(value: ast.expr | None) -> bool:
    if isinstance(value, ast.Call):
        name = (
            value.func.id if isinstance(value.func, ast.Name) else getattr(value.func, "attr", "")
        )
        is_own_class = name.lstrip("_")[:1].isupper() and name.startswith("_")
        return name in MUTABLE_CALLS or is_own_class
    return isinstance(value, ast.ListComp | ast.SetComp | ast.DictComp | ast.List | ast.Set
                      | ast.Dict)  # fmt: skip


@pytest.mark.parametrize("path", [p for p in OURS if p.is_relative_to(PACKAGE)],
                         ids=lambda p: str(p.relative_to(PACKAGE)))  # fmt: skip
def test_no_state_in_modules(path):
    """Module variables are constants: upper case, never changed by a function, or a registry."""
    tree, where = TREES[path], str(path.relative_to(PACKAGE))
    tables = set()
    for node in tree.body:
        targets = (
            node.targets if isinstance(node, ast.Assign)
            else [node.target] if isinstance(node, ast.AnnAssign) else []
        )  # fmt: skip
        for target in targets:
            if not isinstance(target, ast.Name) or target.id == "__all__":
                continue
            if is_mutable(node.value) and f"{where}:{target.id}" not in REGISTRIES:
                tables.add(target.id)
                assert target.id.isupper() or is_frozen_call(node.value), (
                    f"{where}:{node.lineno}: {target.id} may change"
                )
    for name, line in changed_names(tree):
        assert name not in tables, f"{where}:{line}: {name} is changed"
    for node in ast.walk(tree):
        assert not isinstance(node, ast.Global), f"{where}:{node.lineno}: global"


def is_frozen_call(value: ast.expr | None) -> bool:
    return isinstance(value, ast.Call) and not (
        isinstance(value.func, ast.Name) and value.func.id in MUTABLE_CALLS
    )


def changed_names(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Names whose items functions set, delete or change by a method."""
    changers = {"append", "add", "update", "setdefault", "pop", "clear", "extend", "remove",
                "insert", "popitem", "discard"}  # fmt: skip
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef):
            continue
        for node in ast.walk(function):
            target = None
            if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del):
                target = node.value
            elif (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr in changers
            ):
                target = node.func.value
            if isinstance(target, ast.Name):
                yield target.id, node.lineno


@pytest.mark.parametrize("path", OURS, ids=lambda p: str(p.relative_to(ROOT)))
def test_files_are_short_and_finished(path):
    text = SOURCES[path]
    assert len(text.splitlines()) <= 600
    assert "TODO" not in text
    assert ast.get_docstring(TREES[path]), "a module says which concept it is"


PRINTERS = ("cli", "api/watch.py", "api/serving.py")


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_nothing_is_printed(path):
    if str(path.relative_to(PACKAGE)).startswith(PRINTERS):
        return
    for node in ast.walk(TREES[path]):
        is_print = isinstance(node, ast.Call) and getattr(node.func, "id", "") == "print"
        assert not is_print, f"{path}:{node.lineno}"


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_all_names_exist_and_are_sorted(path):
    for node in TREES[path].body:
        is_all = isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__"
        if is_all and isinstance(node.value, ast.List):
            names = ast.literal_eval(node.value)
            assert len(names) == len(set(names))
            assert not [n for n in names if n.startswith("_")]
