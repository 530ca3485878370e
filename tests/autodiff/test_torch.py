"""The choices at ties, zeros and ends against torch, which made them first."""

import numpy as np
import pytest

from flow2onnx.autodiff import gradients
from flow2onnx.dtypes import by_numpy, uint8
from flow2onnx.graph import Builder
from flow2onnx.graph.types import dims
from tests.autodiff.graphs import open_graph

torch = pytest.importorskip("torch")


def ours(make, seed, *arrays, opset=21):
    """The gradients of the sum of `make(b, *inputs)` times `seed`, for the inputs."""
    b = Builder(opset)
    inputs = [b.input(f"x{i}", a.shape, by_numpy(a.dtype)) for i, a in enumerate(arrays)]
    y = make(b, *inputs)
    found = gradients(b, {y: b.const(seed)}, inputs)
    for i, x in enumerate(inputs):
        b.output(found[x], f"dx{i}")
    return open_graph(b)(*arrays)


def theirs(make, seed, *arrays):
    inputs = [torch.tensor(a, requires_grad=True) for a in arrays]
    (make(*inputs) * torch.tensor(seed)).sum().backward()
    return [x.grad.numpy() for x in inputs]


def same(make, reference, seed, *arrays, opset=21):
    seed = np.asarray(seed, np.float32)
    found, wanted = ours(make, seed, *arrays, opset=opset), theirs(reference, seed, *arrays)
    for g, w in zip(found, wanted, strict=True):
        np.testing.assert_allclose(g, w, rtol=1e-5, atol=1e-6)


def f(*content):
    return np.asarray(content, np.float32)


REDUCTIONS = {"mul": "prod", "max": "amax", "min": "amin"}


@pytest.mark.parametrize("how", REDUCTIONS)
def test_scatter_with_ties_and_zeros(how):
    x = f([0, 1, 2], [3, 0, 2], [1, 1, 1])
    updates = f([0, 1, 2], [3, 1, 0], [1, 0, 5])
    places = np.asarray([[0, 0, 0], [0, 1, 1], [2, 2, 0]])
    same(
        lambda b, x, u: b.ScatterElements(x, places, u, reduction=how),
        lambda x, u: x.scatter_reduce(0, torch.tensor(places), u, REDUCTIONS[how]),
        np.arange(9).reshape(3, 3) + 1,
        x,
        updates,
    )


@pytest.mark.parametrize("zeros", [0, 1, 2])
@pytest.mark.parametrize("axis", [0, 1])
def test_products_of_zeros(zeros, axis):
    x = f([1, 2, 3], [4, 5, 6])
    x[0, :zeros] = 0
    seed = np.full((1, 3) if axis == 0 else (2, 1), 2.0)
    same(lambda b, x: b.ReduceProd(x, [axis]), lambda x: x.prod(axis, keepdim=True), seed, x)
    same(
        lambda b, x: b.CumProd(x, np.int64(axis)),
        lambda x: x.cumprod(axis),
        np.arange(6).reshape(2, 3) + 1,
        x,
        opset=26,
    )


@pytest.mark.parametrize(("low", "high"), [(-1, 1), (1, -1), (0, 0)])
def test_clip_with_ends_that_vary(low, high):
    same(
        lambda b, x, low, high: b.Clip(x, low, high),
        lambda x, low, high: torch.clamp(x, low, high),
        np.arange(7) + 1,
        f(-2, -1, -0.5, 0, 0.5, 1, 2),
        np.asarray(low, np.float32),
        np.asarray(high, np.float32),
    )


def test_a_determinant_of_zero():
    x = f([1, 2, 3], [2, 4, 6], [1, 0, 1])
    (found,) = ours(lambda b, x: b.Det(x), np.float32(1), x)
    cofactors = f([4, 4, -4], [-2, -2, 2], [0, 0, 0])
    np.testing.assert_allclose(found, cofactors, atol=1e-5)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("ignored", [-1, 2])
@pytest.mark.parametrize("shape", [(5, 4), (2, 4, 3)])
def test_cross_entropy(reduction, weighted, ignored, shape):
    rng = np.random.default_rng(1)
    x = rng.normal(size=shape).astype(np.float32)
    labels = rng.integers(0, 4, (shape[0], *shape[2:]))
    weight = f(0.5, 1, 2, 0.25) if weighted else None
    seed = np.ones(labels.shape if reduction == "none" else (), np.float32) * 1.5
    options = {"reduction": reduction, "ignore_index": ignored}
    torch_weight = None if weight is None else torch.tensor(weight)
    for op_type, function in (
        ("SoftmaxCrossEntropyLoss", torch.nn.functional.cross_entropy),
        ("NegativeLogLikelihoodLoss", torch.nn.functional.nll_loss),
    ):
        same(
            lambda b, x, op_type=op_type: b.emit(
                op_type, (x, labels, *([] if weight is None else [weight])), options
            )[0],
            lambda x, function=function: function(
                x, torch.tensor(labels), weight=torch_weight, **options
            ),
            seed,
            x,
        )


def test_both_outputs_of_cross_entropy():
    x, labels = f([1, 2, 0.5], [0, 1, 3]), np.asarray([2, 0])
    b = Builder()
    value = b.input("x", x.shape, by_numpy(x.dtype))
    loss, logs = b.several("SoftmaxCrossEntropyLoss", value, labels, outputs=2)
    seed = f([1, 2, 3], [4, 5, 6])
    found = gradients(b, {loss: b.const(np.float32(2)), logs: b.const(seed)}, [value])
    b.output(found[value], "dx")
    t = torch.tensor(x, requires_grad=True)
    total = 2 * torch.nn.functional.cross_entropy(t, torch.tensor(labels))
    (total + (t.log_softmax(1) * torch.tensor(seed)).sum()).backward()
    np.testing.assert_allclose(open_graph(b)(x)[0], t.grad.numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("axis", [None, 0])
def test_quantising_passes_straight_through(axis):
    x = f([-20, -12.8, 0.04], [3, 12.7, 12.8], [0.05, 12.69, 99])
    scale = f(0.1, 0.2, 0.05)[: 1 if axis is None else 3]
    zeros = np.asarray([128, 0, 3], np.uint8)[: len(scale)]
    form = {} if axis is None else {"axis": axis}
    if axis is None:
        scale, zeros = scale.reshape(()), zeros.reshape(())

    def make(b, x):
        point = b.const(zeros, uint8)
        q = b.QuantizeLinear(x, scale, point, **form)
        return b.DequantizeLinear(b.Reshape(q, list(dims(q))), scale, point, **form)

    def reference(x):
        if axis is None:
            return torch.fake_quantize_per_tensor_affine(x, float(scale), int(zeros), 0, 255)
        return torch.fake_quantize_per_channel_affine(
            x, torch.tensor(scale), torch.tensor(zeros.astype(np.int32)), axis, 0, 255
        )

    same(make, reference, np.arange(9).reshape(3, 3) + 1, x)


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "wrap"])
def test_padding_modes(mode):
    x = np.arange(12, dtype=np.float32).reshape(1, 3, 4)
    names = {"edge": "replicate", "wrap": "circular"}
    same(
        lambda b, x: b.Pad(x, np.asarray([1, 2]), None, np.asarray([2]), mode=mode),
        lambda x: torch.nn.functional.pad(x, (1, 2), names.get(mode, mode)),
        np.arange(21).reshape(1, 3, 7),
        x,
    )


@pytest.mark.parametrize(
    ("op_type", "function", "attrs"),
    [
        ("Celu", torch.nn.functional.celu, {}),
        ("Elu", torch.nn.functional.elu, {}),
        ("Gelu", torch.nn.functional.gelu, {}),
        ("HardSigmoid", torch.nn.functional.hardsigmoid, {"alpha": 1 / 6}),
        ("HardSwish", torch.nn.functional.hardswish, {}),
        ("Mish", torch.nn.functional.mish, {}),
        ("Selu", torch.nn.functional.selu, {}),
        ("Shrink", torch.nn.functional.hardshrink, {"lambd": 0.5}),
        ("Softplus", torch.nn.functional.softplus, {}),
        ("Softsign", torch.nn.functional.softsign, {}),
    ],
)
def test_activations(op_type, function, attrs):
    x = f(-30, -4, -3, -1, -0.5, 0, 0.5, 1, 3, 4, 30)
    same(lambda b, x: b.emit(op_type, (x,), attrs)[0], function, np.arange(11) + 1, x)
