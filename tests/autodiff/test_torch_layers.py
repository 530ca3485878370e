"""Gradients of the intricate layers against torch's own, from the same numbers."""

import numpy as np
import pytest

from flow2onnx.autodiff import gradients
from flow2onnx.dtypes import by_numpy
from flow2onnx.graph import Builder
from flow2onnx.graph.types import dims
from tests.autodiff.graphs import as_tuple, open_graph

torch = pytest.importorskip("torch")
functional = torch.nn.functional


def numbers(*shapes, seed=3, low=-1.0, high=1.0):
    rng = np.random.default_rng(seed)
    return [rng.uniform(low, high, shape).astype(np.float32) for shape in shapes]


def differentiate(make, arrays, opset=21):
    """The output of what `make` makes, its gradients at the inputs, and the seed."""
    b = Builder(opset)
    inputs = [b.input(f"x{i}", a.shape, by_numpy(a.dtype)) for i, a in enumerate(arrays)]
    y = as_tuple(make(b, *inputs))[0]
    (seed,) = numbers(dims(y), seed=5)
    found = gradients(b, {y: b.const(seed)}, inputs)
    b.output(y, "y")
    for i, x in enumerate(inputs):
        b.output(found[x], f"dx{i}")
    return open_graph(b)(*arrays), seed


def compare(make, reference, arrays, *, opset=21):
    """Value and gradients of the node of `make` against those of torch's `reference`."""
    values, seed = differentiate(make, arrays, opset)
    tensors = [torch.tensor(a, requires_grad=True) for a in arrays]
    wanted = reference(*tensors)
    wanted.backward(torch.tensor(seed))
    for ours, theirs in zip(values, [wanted.detach(), *(t.grad for t in tensors)], strict=True):
        scale = 1 + float(theirs.abs().max())
        np.testing.assert_allclose(ours / scale, theirs.numpy() / scale, atol=2e-5)


@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize(
    ("mode", "name"), [("linear", "bilinear"), ("nearest", "nearest"), ("cubic", "bicubic")]
)
def test_grid_sample(mode, name, padding, aligned):
    arrays = [*numbers((2, 3, 5, 4)), *numbers((2, 4, 3, 2), low=-1.6, high=1.6)]
    attrs = {"mode": mode, "padding_mode": padding, "align_corners": int(aligned)}
    compare(
        lambda b, x, grid: b.GridSample(x, grid, **attrs),
        lambda x, grid: functional.grid_sample(x, grid, name, padding, aligned),
        arrays,
    )


def test_grid_sample_of_a_volume():
    arrays = [*numbers((1, 2, 3, 4, 3)), *numbers((1, 2, 2, 3, 3), low=-1.3, high=1.3)]
    compare(
        lambda b, x, grid: b.GridSample(x, grid),
        lambda x, grid: functional.grid_sample(x, grid, align_corners=False),
        arrays,
    )


def test_points_on_elements_take_the_slope_of_torchs_side():
    (x,) = numbers((1, 2, 3, 3))
    grid = np.asarray([[[[0, 0], [-1, 1], [0.5, 0]]]], np.float32)
    compare(
        lambda b, x, grid: b.GridSample(x, grid, align_corners=1),
        lambda x, grid: functional.grid_sample(x, grid, align_corners=True),
        [x, grid],
    )


# torch's gates in the order of the standard: i f g o as i o f c, and r z n as z r h
ORDERS = {"LSTM": [0, 3, 1, 2], "GRU": [1, 0, 2], "RNN": [0]}
PARAMETERS = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")


def reordered(array, order):
    parts = np.split(array, len(order))
    return np.concatenate([parts[i] for i in order])


@pytest.mark.parametrize("is_both_ways", [False, True])
@pytest.mark.parametrize("op_type", sorted(ORDERS))
def test_recurrent_layer(op_type, is_both_ways):
    order, width, size = ORDERS[op_type], 3, 4
    torch.manual_seed(0)
    layer = getattr(torch.nn, op_type)(width, size, bidirectional=is_both_ways)
    (x,) = numbers((5, 2, width))
    ways = ["", "_reverse"][: 1 + is_both_ways]

    def of_torch(part):
        """The parameters, or their gradients, as the standard has them."""
        w, r, *biases = (
            np.stack([
                reordered(part(getattr(layer, f"{name}_l0{way}")).numpy(), order) for way in ways
            ])
            for name in PARAMETERS
        )  # fmt: skip
        return w, r, np.concatenate(biases, 1)

    attrs = {"hidden_size": size, "direction": "bidirectional" if is_both_ways else "forward"}
    if op_type == "GRU":
        attrs["linear_before_reset"] = 1
    arrays = [x, *of_torch(lambda p: p.detach())]
    (y, *found), seed = differentiate(lambda b, *v: b.emit(op_type, v, attrs, 1)[0], arrays)
    start = torch.tensor(x, requires_grad=True)
    made, _ = layer(start)
    made.backward(torch.tensor(seed.transpose(0, 2, 1, 3).reshape(made.shape)))
    np.testing.assert_allclose(
        y.transpose(0, 2, 1, 3).reshape(made.shape), made.detach().numpy(), atol=1e-5
    )
    wanted = [start.grad.numpy(), *of_torch(lambda p: p.grad)]
    for ours, theirs in zip(found, wanted, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=5e-5)


@pytest.mark.parametrize(
    ("x", "w", "options"),
    [
        ((2, 4, 5), (4, 3, 3), {"stride": [2], "output_padding": [1], "groups": 2}),
        (
            (2, 4, 3, 4), (4, 2, 3, 2),
            {"stride": [3, 2], "padding": [1, 2], "output_padding": [2, 1], "groups": 2,
             "dilation": [2, 3]},
        ),
        (
            (1, 4, 2, 3, 2), (4, 3, 2, 1, 3),
            {"stride": [2, 1, 3], "output_padding": [1, 0, 2], "dilation": [1, 1, 2]},
        ),
    ],
)  # fmt: skip
def test_transposed_convolution(x, w, options):
    names = {"stride": "strides", "dilation": "dilations", "output_padding": "output_padding"}
    attrs = {names[k]: v for k, v in options.items() if k in names}
    groups, padding = options.get("groups", 1), options.get("padding", [0] * (len(x) - 2))
    attrs |= {"pads": padding * 2, "group": groups}
    transposed = getattr(functional, f"conv_transpose{len(x) - 2}d")
    compare(
        lambda b, *v: b.ConvTranspose(*v, **attrs),
        lambda x, w, bias: transposed(x, w, bias, **options),
        numbers(x, w, (w[1] * groups,)),
    )


@pytest.mark.parametrize("size", [(7, 9), (3, 2)])
@pytest.mark.parametrize(
    ("options", "attrs"),
    [
        ({"mode": "bicubic"}, {"coordinate_transformation_mode": "pytorch_half_pixel"}),
        ({"mode": "bicubic", "align_corners": True},
         {"coordinate_transformation_mode": "align_corners"}),
        ({"mode": "bicubic", "antialias": True},
         {"cubic_coeff_a": -0.5, "antialias": 1, "exclude_outside": 1}),
        ({"mode": "bilinear"}, {}),
        ({"mode": "bilinear", "antialias": True}, {"antialias": 1, "exclude_outside": 1}),
    ],
)  # fmt: skip
def test_resize(options, attrs, size):
    mode = {"bicubic": "cubic", "bilinear": "linear"}[options["mode"]]
    compare(
        lambda b, x: b.Resize(x, None, None, [2, 3, *size], mode=mode, **attrs),
        lambda x: functional.interpolate(x, size, **options),
        numbers((2, 3, 4, 5)),
    )


@pytest.mark.parametrize("form", ["plain", "causal", "mask", "grouped"])
def test_attention(form):
    heads = 2 if form == "grouped" else 4
    mask = np.arange(25).reshape(5, 5) % 4 != 1 if form == "mask" else None
    options = {"is_causal": form == "causal", "enable_gqa": form == "grouped"}
    if mask is not None:
        options["attn_mask"] = torch.tensor(mask)
    operands = [] if mask is None else [mask]
    compare(
        lambda b, *x: b.Attention(*x, *operands, is_causal=int(form == "causal")),
        lambda *x: functional.scaled_dot_product_attention(*x, **options),
        numbers((2, 4, 5, 6), (2, heads, 5, 6), (2, heads, 5, 3)),
        opset=24,
    )


NORMALISATIONS = {
    "GroupNormalization": (2, {"num_groups": 2}, lambda *x: functional.group_norm(x[0], 2, *x[1:])),
    "InstanceNormalization": (
        2, {}, lambda x, *rest: functional.instance_norm(x, None, None, *rest)
    ),
    "LayerNormalization": (2, {}, lambda *x: functional.layer_norm(x[0], (4,), *x[1:])),
    "RMSNormalization": (1, {}, lambda *x: functional.rms_norm(x[0], (4,), *x[1:], 1e-5)),
}  # fmt: skip


@pytest.mark.parametrize("op_type", sorted(NORMALISATIONS))
def test_normalisation(op_type):
    parameters, attrs, reference = NORMALISATIONS[op_type]
    compare(
        lambda b, *x: b.emit(op_type, x, attrs)[0],
        reference,
        numbers((3, 4, 4), *[(4,)] * parameters),
        opset=23,
    )
