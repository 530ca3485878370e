"""The workloads of the benchmarks: their sizes, and that flow2onnx and torch compute the same."""

import ast
import dataclasses
import inspect
import math
from pathlib import Path

import numpy as np
import pytest

from benchmarks.networks import Ops, Sizes
from benchmarks.peers import Options
from benchmarks.peers import flow2onnx as ours
from benchmarks.workloads import BATCHES, NETWORKS, PREDICTION, TRAINING, workload

ROOT = Path(__file__).parents[2]
OPERATIONS = {name for name in vars(Ops) if not name.startswith("_")}
SMALL = {
    "mlp": "mlp:batch=3,hidden=5,depth=2",
    "lenet": "lenet:batch=2",
    "resnet18": "resnet18:batch=2,side=8,width=2",
    "resnet50": "resnet50:batch=8,side=64,width=8,classes=5",
    "encoder": "encoder:batch=2,length=3,layers=2,units=8,heads=2,vocabulary=7",
    "decoder": "decoder:batch=2,length=3,layers=2,units=8,heads=2,vocabulary=7",
    "wide": "wide:batch=4,rows=50,width=2,fields=3,hidden=5",
    "lstm": "lstm:batch=2,length=5,units=4,vocabulary=7,cells=1",
    "coupled": "coupled:batch=2,length=5,units=4,vocabulary=7",
    "mixer": "mixer:batch=2,side=8,layers=1,units=6,classes=3",
    "graph": "graph:nodes=6,edges=20,inputs=5,units=4,classes=3",
    "depthwise": "depthwise:batch=4,side=16,stages=2,classes=5",
    "dilated": "dilated:batch=2,side=16,width=4,classes=5",
    "unet": "unet:batch=2,side=8,width=2,depth=2,classes=3",
    "vit": "vit:batch=2,side=8,patch=4,layers=2,units=8,heads=2,classes=5",
    "gan": "gan:batch=4,inputs=5,width=4",
    "dlrm": "dlrm:batch=4,fields=3,rows=50,width=2,hidden=5",
}


def losses(module, work):
    step = module.training(work, work.variables(), work.data(), Options())
    return [float(step(0)) for _ in range(3)]


def slowly(name):
    """A small workload whose steps are short: its loss falls by what its gradient says.

    Normalization over a few numbers carries every rounding error on, and long steps multiply them.
    """
    work = workload(SMALL[name])
    update = dataclasses.replace(work.update, rate=work.update.rate / 100)
    is_normed = name in ("resnet18", "resnet50", "depthwise", "dilated", "unet")
    return dataclasses.replace(work, update=update) if is_normed else work


@pytest.mark.parametrize(
    ("name", "parameters"),
    # published for ResNet-50 and MobileNetV2 (torchvision) and GPT-2 (Hugging Face), which has
    # 1024 positions; counted by hand for the others
    [
        ("mlp", 407_050),
        ("lenet", 1_663_370),
        ("resnet18", 11_173_962),
        ("resnet50", 25_557_032),
        ("decoder:length=1024", 124_439_808),
        ("depthwise:classes=1000", 3_504_872),
    ],
)
def test_number_of_parameters(name, parameters):
    assert sum(map(math.prod, workload(name).sizes.variables.values())) == parameters


def test_arithmetic_of_resnet50_is_the_published_one():
    # 4.09 billion multiplications with additions for an image (torchvision)
    assert workload("resnet50:batch=1").sizes.flops / 2 == pytest.approx(4.09e9, rel=0.005)


def test_every_network_has_a_small_case():
    assert SMALL.keys() == NETWORKS.keys()


@pytest.mark.parametrize("table", [TRAINING, PREDICTION])
def test_every_row_names_a_workload(table):
    for _, name in table.values():
        assert workload(name).sizes.flops > 0


def test_unknown_workload_says_which_there_are():
    with pytest.raises(SystemExit, match=r"no workload alexnet; there are mlp, lenet"):
        workload("alexnet")


def test_values_and_data_are_the_same_at_each_draw():
    first, second = (workload(SMALL["wide"]) for _ in range(2))
    for name, value in first.variables().items():
        np.testing.assert_array_equal(value, second.variables()[name])
    assert len(first.data()) == BATCHES
    for a, b in zip(first.data()[1], second.data()[1], strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("name", SMALL)
def test_a_job_learns_its_batch(name):
    found = losses(ours, slowly(name))
    assert np.isfinite(found).all()
    assert found[2] < found[0]


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
def test_losses_are_those_of_torch(name):
    pytest.importorskip("torch")
    from benchmarks.peers import torch as theirs

    work = slowly(name)
    mine, torchs = (np.array(losses(module, work)) for module in (ours, theirs))
    np.testing.assert_allclose(mine, torchs, rtol=work.tolerance)
    np.testing.assert_allclose(np.diff(mine), np.diff(torchs), rtol=0.05)


@pytest.mark.parametrize("peer", ["flow2onnx", "torch", "jax", "ort_training", "oneflow"])
def test_a_peer_has_every_operation(peer):
    # by its text: most peers live in environments of their own
    tree = ast.parse((ROOT / "benchmarks" / "peers" / f"{peer}.py").read_text())
    (ops,) = (n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "_Ops")
    arguments = {
        f.name: [a.arg for a in f.args.args] for f in ops.body if isinstance(f, ast.FunctionDef)
    }
    for name in OPERATIONS:
        assert arguments[name] == list(inspect.signature(getattr(Ops, name)).parameters), name


def test_sizes_refuse_what_does_not_fit():
    with pytest.raises(AssertionError, match="rows of 3, not of 4"):
        Sizes().dense((2, 3), "layer", 4, 5)
    with pytest.raises(AssertionError, match="3 channels, not 1"):
        Sizes().conv((2, 3, 8, 8), "layer", 1, 5, 3, 1, bias=True)
