"""The names below `flow`."""

import importlib
import inspect
import pkgutil
import subprocess
import sys

import pytest

import flow2onnx as flow
from flow2onnx.api.aliases import ALIASES
from flow2onnx.api.surface import NAMES, ON_DEMAND


def resolve(name):
    found = flow
    for part in name.split("."):
        found = getattr(found, part)
    return found


def test_every_name_is_there():
    for name, value in NAMES.items():
        assert resolve(name) is value, name


def test_all_lists_the_names():
    below = {n.split(".")[0] for n in NAMES}
    assert flow.__all__ == sorted(below.union(*ON_DEMAND.values()))
    assert not below.intersection(*ON_DEMAND.values())
    for name in flow.__all__:
        assert hasattr(flow, name)
    assert not [n for n in flow.__all__ if n.startswith("_")]


def test_star_import():
    found = {}
    exec("from flow2onnx import *", found)
    assert {n for n in found if n != "__builtins__"} == set(flow.__all__)


def test_nothing_else_lies_in_the_way():
    """Besides the names there are only the parts of the package, and OneFlow's own folder."""
    parts = {m.name for m in pkgutil.iter_modules(flow.__path__)} | {"framework"}
    others = {n for n in vars(flow) if not n.startswith("_")} - set(flow.__all__) - parts
    assert others == set()


@pytest.mark.parametrize("name", ["nn", "typing", "layers", "math", "optimizer", "scope", "train",
                                  "optimizer.grad_clipping", "checkpoint", "data"])  # fmt: skip
def test_modules_can_be_imported(name):
    module = importlib.import_module(f"flow2onnx.{name}")
    assert module is resolve(name)


def test_import_forms():
    import flow2onnx.nn
    import flow2onnx.typing as tp
    from flow2onnx.nn import relu

    assert relu is flow2onnx.nn.relu is flow.nn.relu
    assert tp is flow.typing
    assert tp.Numpy is flow.typing.Numpy


FUNCTIONS = sorted(
    {name for name, value in NAMES.items() if inspect.isfunction(value) or inspect.isclass(value)}
    .union(*ON_DEMAND.values()) - {"Blob"}  # a class that nobody calls
)  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_signature_and_documentation(name):
    function = resolve(name)
    signature = inspect.signature(function)
    text = str(signature)
    assert "graph.builder" not in text, "the builder is no argument of the user's"
    assert "onnx_ir.Value" not in text, "users have blobs, not values"
    kinds = {p.kind for p in signature.parameters.values()}
    generic = {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}
    assert not kinds >= generic, f"{name}{signature} tells nothing"
    assert function.__doc__
    assert len(function.__doc__.splitlines()[0]) < 110
    assert function.__name__ != "lower"


def test_signatures_are_those_of_the_documents():
    def text(name):
        parameters = inspect.signature(resolve(name)).parameters.values()
        return ", ".join(str(p.replace(annotation=p.empty)) for p in parameters)

    assert text("global_function") == "type='predict', function_config=None"
    assert text("watch") == "blob_watched, handler_or_prompt=None"
    assert text("scope.placement") == "device_tag, machine_device_ids, hierarchy=None"
    assert text("checkpoint.save") == "path, var_dict=None"
    assert text("load_variables") == "value_dict, ignore_mismatch=True"
    assert text("optimizer.PiecewiseConstantScheduler") == "boundaries, values, warmup=None"
    assert text("train.SimpleCheckPointManager") == "root_path, prefix='snapshot_'"
    assert text("math.relu").startswith("x, name=None")


def test_retired_names_point_at_present_ones():
    for alias in ALIASES:
        assert alias.new in NAMES
        assert alias.old in NAMES
        assert NAMES[alias.old] is not NAMES[alias.new]


def test_settings_are_the_sessions():
    flow.config.random_seed(3)
    from flow2onnx.engine.session import current_session

    assert current_session().settings.value("random_seed") == 3
    flow.clear_default_session()
    assert current_session().settings.value("random_seed") == 0


def test_import_leaves_heavy_things_alone():
    code = (
        "import sys, flow2onnx\n"
        "heavy = {'onnxruntime', 'sklearn', 'matplotlib', 'PIL', 'rich', 'click'}\n"
        "print(sorted(heavy & set(sys.modules) - already))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", "import sys; already = set(sys.modules)\n" + code],
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    assert done.stdout.strip() == "[]"
