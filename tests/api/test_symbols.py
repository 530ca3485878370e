"""OneFlow's symbols: which are here, and whether they are called as OneFlow's are."""

import inspect
from pathlib import Path

import pytest

import flow2onnx as flow
from flow2onnx.api.aliases import ALIASES
from flow2onnx.api.surface import MIRRORS, NAMES, ON_DEMAND
from flow2onnx.api.unsupported import UNSUPPORTED, Unsupported
from flow2onnx.errors import UnsupportedError
from flow2onnx.ops.named_losses import LOSSES
from flow2onnx.trace.registry import entries
from flow2onnx.trace.symbols import ANYTHING, symbols
from tests.api.support import raises
from tests.ops.jobs import define
from tests.ops.table import ROWS

NOT_YET = (Path(__file__).parent / "not_yet.txt").read_text().split()
# names of later releases, and of ours
OTHERS = {
    "Blob", "accelerate", "bfloat16", "from_training_info", "grad", "hvp", "jacobian", "jvp",
    "lora", "lora_network", "make_trainable", "nn.GRU", "nn.LSTM", "nn.RNN", "optimizer.named",
    "optimizer.schedule", "vjp",
    *(f"losses.{name}" for name in LOSSES),
}  # fmt: skip
# defaults of ours: the addresses of 2020 answer no longer
CHANGED = {("data.load_mnist", "url"), ("data.load_mnist", "hash_check")}
GENERIC = "(*args, **kwargs)"  # OneFlow's deprecated names say nothing of their arguments


def resolve(name):
    found = flow
    for part in name.split("."):
        found = getattr(found, part)
    return found


CALLED = sorted(
    name
    for name, symbol in symbols().items()
    if symbol.text not in ("", GENERIC) and name not in {*UNSUPPORTED, *NOT_YET}
)


@pytest.mark.parametrize("name", CALLED)
def test_signature_is_oneflows(name):
    # a keyword of ours may follow: `data.load_mnist` takes a `path`
    parameters = inspect.signature(resolve(name)).parameters.values()
    given = [p for p in parameters if p.kind is not p.KEYWORD_ONLY]
    wanted = symbols()[name].signature.parameters.values()
    assert [(p.name, p.kind) for p in given] == [(p.name, p.kind) for p in wanted]
    for g, w in zip(given, wanted, strict=True):
        if w.default is not ANYTHING and (name, w.name) not in CHANGED:
            assert type(g.default) is type(w.default) or isinstance(g.default, float | tuple)
            assert g.default == w.default, g.name
        else:
            assert (g.default is g.empty) == (w.default is w.empty)


def test_every_symbol_is_here_or_listed():
    assert sorted(set(symbols()) - set(NAMES)) == NOT_YET


def test_every_name_is_a_symbol():
    ours = {row.name for row in ROWS if row.ours}
    on_demand = {name for names in ON_DEMAND.values() for name in names}
    assert (set(NAMES) | on_demand) - set(symbols()) == OTHERS | ours


def test_what_is_unsupported_is_nothing_else():
    others = {*entries(), *(a.old for a in ALIASES)}
    assert not set(UNSUPPORTED) & others
    assert not set(entries()) & {a.old for a in ALIASES}
    for name, found in NAMES.items():
        assert isinstance(found, Unsupported) == (name in UNSUPPORTED), name


@pytest.mark.parametrize("name", sorted(UNSUPPORTED))
def test_what_is_unsupported_says_so(name):
    function = resolve(name)
    with raises(UnsupportedError, NotImplementedError, function.reason, at="function(1"):
        function(1, two=2)
    assert name in function.__doc__ or function.reason in function.__doc__
    assert str(inspect.signature(function)).startswith("(")


def test_what_is_unsupported_knows_the_job():
    def body(x):
        return flow.local_gather(x, x)

    job = define(body, [])
    flow.clear_default_session()
    with raises(UnsupportedError, NotImplementedError, "flow.local_gather: gathering"):
        body(None)
    assert job.__name__ == "job"


def test_unsupported_classes():
    with raises(UnsupportedError, NotImplementedError, "flow.nn.Module"):

        class Net(flow.nn.Module):
            pass

    with raises(UnsupportedError, NotImplementedError, "flow.data.COCODataset"):
        flow.data.COCODataset.image_ids  # noqa: B018  # looking is what is tested
    assert not hasattr(flow.nn.Module, "__wrapped__")


def test_reasons_are_sentences():
    for row in UNSUPPORTED.values():
        for text in (row.reason, row.nearest):
            assert text
            assert not text.endswith(".")
            assert text[0].islower() or text.startswith(("ONNX", "OneFlow")), text


def test_mirrors():
    assert flow.experimental.nn.relu is flow.nn.relu
    assert flow.experimental.get_variable is flow.get_variable
    assert flow.experimental.scope.placement is flow.scope.placement
    for name, value in MIRRORS.items():
        assert resolve(name) is value is resolve(name.removeprefix("experimental."))
