"""The shape of the code: what imports what, what is kept where."""

import ast
import importlib
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path

import pytest

from tests.rooms import (
    PACKAGE,
    PICTURE,
    arrows,
    floors,
    imported_modules,
    imports,
    part_of,
    picture,
)

ROOT = Path(__file__).parents[1]
RUNTIME = ROOT / "runtime" / "python" / "flow2onnx_runtime"
FILES = sorted(PACKAGE.rglob("*.py"))
# Distributions of their own, which need the runtime and no compiler, and their other libraries.
WINGS = {
    ROOT / "runtime" / "server" / "flow2onnx_serve": {
        "click", "google", "grpc", "numpy", "onnxruntime", "prometheus_client", "starlette",
        "uvicorn",
    },
    ROOT / "runtime" / "native" / "flow2onnx_native": {"numpy", "onnx", "onnx_ir"},
}  # fmt: skip
PARTS = (RUNTIME, *WINGS, ROOT / "models")
OURS = [*FILES, *(path for part in PARTS for path in sorted(part.rglob("*.py")))]


@cache
def tree_of(path: Path) -> ast.Module:
    """A file as a tree; read when it is first asked for, as many processes import this module."""
    return ast.parse(path.read_text())


@pytest.fixture(autouse=True, scope="module")
def trees_forgotten():
    """Let the tests of other modules not carry them along."""
    yield
    tree_of.cache_clear()


def of_each(paths: Sequence[Path]) -> Callable[[Callable[[Path], None]], Callable[[], None]]:
    """Make a check of one file the test of all: a report each would take longer than the checks."""

    def test_of(check: Callable[[Path], None]) -> Callable[[], None]:
        def test() -> None:
            wrong = []
            for path in paths:
                try:
                    check(path)
                except AssertionError as error:
                    wrong.append(f"{path.relative_to(ROOT)}: {error}")
            assert not wrong, "\n".join(wrong)

        test.__name__, test.__doc__ = check.__name__, check.__doc__
        return test

    return test_of


# The rooms in their order, each with the rooms that it imports: always some that stand before it.
ROOMS = {
    "errors": set(),
    "source": set(),
    "dtypes": {"errors"},
    "proto": {"errors"},
    "typing": {"errors", "dtypes"},
    "config": {"errors", "dtypes", "source"},
    "graph": {"errors", "dtypes"},
    "lowering": {"errors", "dtypes", "graph"},
    "analysis": {"graph"},
    "onnx_io": {"errors", "dtypes", "graph"},
    "checkpoint": {"errors", "dtypes", "proto"},
    "autodiff": {"errors", "dtypes", "graph", "lowering"},
    "passes": {"errors", "dtypes", "graph", "analysis"},
    "trace": {"errors", "source", "dtypes", "typing", "config", "graph", "lowering"},
    "data": {"errors", "source", "dtypes", "proto", "trace"},
    "optim": {"errors", "dtypes", "graph", "lowering", "autodiff", "trace"},
    "ops": {"errors", "source", "dtypes", "graph", "lowering", "trace", "data"},
    "compile": {
        "errors", "dtypes", "typing", "graph", "lowering", "onnx_io", "passes", "trace", "optim",
    },
    "engine": {
        "errors", "source", "config", "graph", "lowering", "analysis", "passes", "trace",
        "data", "compile",
    },
    "export": {
        "errors", "dtypes", "typing", "graph", "onnx_io", "checkpoint", "passes",
        "trace", "optim", "compile", "engine",
    },
    "imported": {
        "errors", "dtypes", "typing", "config", "graph", "lowering", "onnx_io", "autodiff",
        "passes", "trace", "optim", "ops", "compile", "export",
    },
    "integrations": set(),
    "api": {
        "errors", "source", "dtypes", "proto", "typing", "config", "graph", "checkpoint", "trace",
        "data", "optim", "ops", "compile", "engine", "export",
    },
    "cli": {
        "errors", "source", "typing", "config", "trace", "data", "engine",
        "export", "imported", "api",
    },
}  # fmt: skip
# Facts about the package as a whole.
EVERYWHERE = {"__version__"}

MAY_USE = {
    "onnx": {"graph", "onnx_io", "export", "integrations"},
    "onnx_ir": {"graph", "analysis", "onnx_io", "autodiff", "passes"},
    "onnxruntime": {"engine", "cli", "export"},
    "flow2onnx_runtime": {
        "errors", "source", "proto", "typing", "config", "analysis", "onnx_io", "passes",
        "checkpoint", "autodiff", "trace", "data", "optim", "ops", "compile", "engine", "export",
        "imported", "integrations", "api", "cli",
    },
    "sklearn": {"data", "integrations"},
    "PIL": {"data", "cli"},
    "google": {"onnx_io"},
    "rich": {"cli"},
    "click": {"cli"},
    "matplotlib": {"cli"},
}  # fmt: skip


# Where files and bytes become models or sessions, each behind `check_model`. `ir.load`, `onnx.load`
# and their like read whatever other files a model names.
OPENERS = {
    "InferenceSession": {"flow2onnx_runtime/provider_checks.py"},  # create_session
    "create_session": {"flow2onnx_runtime/options.py", "flow2onnx_runtime/provider_checks.py"},
    "check_model": {
        "flow2onnx_runtime/options.py",  # open_session
        "flow2onnx_runtime/onnx_messages.py",  # what is drawn
        "flow2onnx/onnx_io/read.py",  # open_model
        "flow2onnx/onnx_io/foreign.py",  # models that are no files
        "flow2onnx/export/saved_model.py",
        "flow2onnx/integrations/mlflow.py",
        "flow2onnx_native/accelerator.py",
    },
    "onnx.checker.check_model": {
        "flow2onnx/onnx_io/read.py", "flow2onnx/onnx_io/foreign.py", "flow2onnx/graph/verify.py",
    },
    "parse_model": {  # bytes that were checked, or that this process has written
        "flow2onnx/engine/opening.py", "flow2onnx/export/saved_model.py",
        "flow2onnx/graph/model.py",
    },
    "ModelProto.FromString": {
        "flow2onnx/graph/model.py", "flow2onnx/onnx_io/read.py", "flow2onnx/onnx_io/parse.py",
        "flow2onnx/export/verification/reference.py",  # copies of what open_model has read
    },
    "onnx.load_external_data_for_model": {"flow2onnx/export/verification/reference.py"},
    "onnx.load": {"flow2onnx/integrations/mlflow.py"},
    "onnx.load_from_string": {"flow2onnx_native/accelerator.py"},
    "ir.load": {"flow2onnx/onnx_io/parse.py"},  # what a quantizer wrote just now
    # made by the engine, node by node, or written anew of what was checked: not checked again
    "OwnModel": {
        "flow2onnx/engine/opening.py", "flow2onnx/engine/explain_job.py",
        "flow2onnx/engine/variables.py", "flow2onnx_runtime/options.py",
    },
}  # fmt: skip
LOADERS = (
    "onnx.load",
    "onnx.external_data_helper.load",
    "onnx.shape_inference.infer_shapes_path",
    "onnx.hub",
    "onnx.parser",
    "ir.load",
    "ir.external_data.load",
    "ir.from_onnx_text",
)
PARSERS = ("load_model", "TrainingSession", "load_external_data_for_model")


def is_typing_only(path: Path, line: int) -> bool:
    """True if the line stands below `if TYPE_CHECKING:`."""
    return any(
        isinstance(node, ast.If)
        and isinstance(node.test, ast.Name)
        and node.test.id == "TYPE_CHECKING"
        and node.lineno <= line <= (node.end_lineno or node.lineno)
        for node in tree_of(path).body
    )


def test_rooms_import_what_their_row_says():
    assert arrows() == ROOMS


def test_imports_go_one_way():
    order = list(ROOMS)
    for room, rooms in ROOMS.items():
        later = [other for other in rooms if order.index(other) >= order.index(room)]
        assert not later, f"{room} imports {later}, which stand after it"


def test_the_house_grows_no_higher():
    """Rooms, arrows and floors as they are; 32 parts, 143 arrows, 14 floors before the rooms."""
    found = arrows()
    assert sum(map(len, found.values())) <= 122
    assert max(floors(found).values()) <= 11


def test_the_picture_shows_the_imports():
    assert PICTURE.read_text("utf-8") == picture(arrows()), "run: python -m tests.rooms"


def test_no_module_imports_itself_on_a_detour():
    graph = imported_modules()
    done: set[str] = set()

    def walk(name: str, way: tuple[str, ...]) -> None:
        assert name not in way, f"a cycle: {' → '.join((*way[way.index(name) :], name))}"
        if name not in done:
            for other in graph[name]:
                walk(other, (*way, name))
            done.add(name)

    for name in graph:
        walk(name, ())


@of_each(FILES)
def test_libraries_stay_in_their_places(path):
    part = part_of(path)
    for module, line in imports(tree_of(path)):
        places = MAY_USE.get(module.split(".")[0])
        assert places is None or part in places, (
            f"{path}:{line}: {part} imports {module}, which is for {sorted(places)}"
        )


# Functions that import, each with the reason: all else that is slow to import, or may be missing,
# stands behind the packages that use `flow2onnx_runtime.on_demand`.
DOORS = {
    "cli/__init__.py:main": "says what to install where click or rich is missing",
    "export/quantizer.py:_library": "the quantizer needs a package of its own",
}
BEHIND_DOORS = ("flow2onnx", "flow2onnx_runtime", "onnxruntime")


@of_each(FILES)
def test_imports_stand_at_the_top(path):
    for function in ast.walk(tree_of(path)):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            for module, line in imports(function):
                if module.split(".")[0] in BEHIND_DOORS:
                    where = f"{path.relative_to(PACKAGE)}:{function.name}"
                    assert where in DOORS, f"{path}:{line}: {module} is imported in a function"


@pytest.mark.parametrize("room", ["engine", "export", "imported"])
def test_names_of_packages_are_there_on_demand(room):
    package = importlib.import_module(f"flow2onnx.{room}")
    for name in package.__all__:
        assert getattr(package, name) is not None
        assert not (PACKAGE / room / f"{name}.py").exists(), "it would hide the name"


def test_runtime_stands_alone():
    known = {"numpy", "onnxruntime", "flow2onnx_runtime", "__future__"}
    # of onnxruntime's own requirements; nothing that a bundle needs imports these
    names = ("event_files", "messages", "model_config", "onnx_messages")
    engines = {
        "torch_collectives.py": "torch", "mpi_collectives.py": "mpi4py", "mpi_notices.py": "mpi4py",
    }  # fmt: skip
    with_protobuf = {RUNTIME / f"{name}.py" for name in names}
    for path in RUNTIME.rglob("*.py"):
        for module, line in imports(tree_of(path)):
            top = module.split(".")[0]
            if top == "onnx_ir" and is_typing_only(path, line):
                continue  # what a distribution that extends us is given; a device has none
            is_known = top in known or (top == "google" and path in with_protobuf)
            is_known = is_known or engines.get(path.name) == top
            assert is_known or top in sys.stdlib_module_names, f"{path}:{line}: {module}"
            if path not in with_protobuf:
                needs_it = module in [f"flow2onnx_runtime.{name}" for name in names]
                assert not needs_it or is_typing_only(path, line), f"{path}:{line}: {module}"


@pytest.mark.parametrize("wing", WINGS, ids=lambda path: path.name)
def test_wings_need_no_compiler(wing):
    known = {"flow2onnx_runtime", wing.name, *WINGS[wing], *sys.stdlib_module_names}
    for path in wing.rglob("*.py"):
        for module, line in imports(tree_of(path)):
            assert module.split(".")[0] in known, f"{path}:{line}: {module}"


def opener(call: ast.Call) -> str | None:
    """The name in OPENERS of what a call opens a model by, or the call's own if it has none."""
    name, node = "", call.func
    while isinstance(node, ast.Attribute):
        name, node = f".{node.attr}{name}", node.value
    name = (node.id if isinstance(node, ast.Name) else "") + name
    known = [o for o in OPENERS if name == o or name.endswith(f".{o}")]
    if known:
        return max(known, key=len)
    return name if name.startswith(LOADERS) or name.split(".")[-1] in PARSERS else None


def place_of(path: Path) -> str:
    """A module by its distribution and what follows."""
    part = next(part for part in (PACKAGE, *PARTS) if path.is_relative_to(part))
    return str(path.relative_to(part.parent))


@of_each(OURS)
def test_models_are_opened_in_one_way(path):
    for node in ast.walk(tree_of(path)):
        name = opener(node) if isinstance(node, ast.Call) else None
        assert name is None or place_of(path) in OPENERS.get(name, ()), (
            f"{path}:{node.lineno}: opens a model by {name}, beside check_model"
        )


def test_openers_are_where_the_table_has_them():
    used = {
        (name, place_of(path))
        for path in OURS
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Call) and (name := opener(node))
    }
    assert used == {(name, place) for name, places in OPENERS.items() for place in places}


# A user's record, whose signature is part of the surface.
BY_POSITION = {"Preprocess"}


def positional_fields(record: ast.ClassDef) -> int:
    """How many values the constructor of a dataclass takes by position; 0 for other classes."""
    decorators = [ast.unparse(d) for d in record.decorator_list]
    if not any(d.startswith("dataclass") and "kw_only=True" not in d for d in decorators):
        return 0
    fields = [s for s in record.body if isinstance(s, ast.AnnAssign)]
    kinds = [ast.unparse(field.annotation) for field in fields]
    end = kinds.index("KW_ONLY") if "KW_ONLY" in kinds else len(fields)
    return sum(
        "ClassVar" not in kind and "init=False" not in ast.unparse(field.value or ast.Constant(0))
        for field, kind in zip(fields[:end], kinds[:end], strict=True)
    )


@of_each(FILES)
def test_records_take_few_values_by_position(path):
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.ClassDef) and node.name not in BY_POSITION:
            count = positional_fields(node)
            assert count <= 5, f"{path}:{node.lineno}: {node.name} takes {count} by position"


# Filled while modules are imported, and only then.
REGISTRIES = {"trace/registry.py:_ENTRIES", "trace/registry.py:_METHODS",
              "autodiff/registry.py:_RULES", "autodiff/registry.py:_EXPANSIONS",
              "lowering/forms.py:_LOWERINGS", "engine/session.py:_default"}  # fmt: skip
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


@of_each([p for p in OURS if p.is_relative_to(PACKAGE)])
def test_no_state_in_modules(path):
    """Module variables are constants: upper case, never changed by a function, or a registry."""
    tree, where = tree_of(path), str(path.relative_to(PACKAGE))
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


@of_each(OURS)
def test_files_are_short_and_finished(path):
    text = path.read_text()
    assert len(text.splitlines()) <= 600
    assert "TODO" not in text
    assert ast.get_docstring(tree_of(path)), "a module says which concept it is"


def test_functions_are_short():
    folders = ("benchmarks", "examples", "flow2onnx", "models", "runtime", "tests")
    everything = (path for folder in folders for path in (ROOT / folder).rglob("*.py"))
    lengths = {
        f"{path.relative_to(ROOT)}:{node.lineno} {node.name}": node.end_lineno - node.lineno + 1
        for path in everything
        if "node_modules" not in path.parts
        for node in functions(tree_of(path))
    }
    assert len(lengths) > 10_000
    assert not {place: lines for place, lines in lengths.items() if lines > 60}


def functions(node):
    """The functions below a node, whatever statements they stand in; expressions have none."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield child
        if isinstance(child, ast.stmt | ast.ExceptHandler | ast.match_case):
            yield from functions(child)


PRINTERS = ("cli", "api/watch.py", "api/serving.py")


@of_each(FILES)
def test_nothing_is_printed(path):
    if str(path.relative_to(PACKAGE)).startswith(PRINTERS):
        return
    for node in ast.walk(tree_of(path)):
        is_print = isinstance(node, ast.Call) and getattr(node.func, "id", "") == "print"
        assert not is_print, f"{path}:{node.lineno}"


@of_each(FILES)
def test_all_names_exist_and_are_sorted(path):
    for node in tree_of(path).body:
        is_all = isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__"
        if is_all and isinstance(node.value, ast.List):
            names = ast.literal_eval(node.value)
            assert len(names) == len(set(names))
            assert not [n for n in names if n.startswith("_")]
