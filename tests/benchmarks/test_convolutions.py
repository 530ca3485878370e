"""The shapes of the sweep of convolutions, and its tables and chart."""

from collections import Counter

import pytest

from benchmarks import convolutions
from benchmarks.contest import machine
from benchmarks.convolution_shapes import CLASSES, Convolution, draw_shapes, published_layers
from benchmarks.convolution_worker import PASSES, Torch, operands
from benchmarks.convolutions import Row


def layer(net: str, text: str) -> Convolution:
    return next(c for c in published_layers() if c.net == net and c.text.startswith(f"1x{text}"))


def test_four_hundred_shapes_of_sixteen_classes():
    shapes = draw_shapes()
    assert len({s.text for s in shapes}) == 400
    assert Counter(s.kind for s in shapes) == dict.fromkeys(CLASSES, 25)
    assert {s.rank for s in shapes} == {1, 2, 3}
    assert len({s.net for s in shapes}) > 60
    assert shapes == draw_shapes()
    assert [s.text for s in draw_shapes(32, seed=1)] != [s.text for s in draw_shapes(32, seed=2)]


@pytest.mark.parametrize(
    ("net", "text", "kind", "made"),
    [
        ("ResNet-50", "3>64@224", "few channels", (1, 64, 112, 112)),
        ("Inception v3", "128>128@17 k1x7", "large kernels", (1, 128, 17, 17)),
        ("FSRCNN", "56>1@32", "transposed", (1, 1, 96, 96)),
        ("WaveNet", "32>64@4000 k2 d512", "1-D", (1, 64, 3488)),
        ("V-Net", "256>128@4x8x8", "3-D transposed", (1, 128, 8, 16, 16)),
        ("RepLKNet", "128>128@56", "depthwise", (1, 128, 56, 56)),
    ],
)
def test_layers_of_the_table(net: str, text: str, kind: str, made: tuple[int, ...]):
    found = layer(net, text)
    assert (found.kind, found.output_shape) == (kind, made)
    assert Convolution.of_record(found.record()) == found


def test_torch_makes_what_the_table_says():
    pytest.importorskip("torch")
    peer = Torch(1)
    for shape in draw_shapes(16):
        shapes = shape.output_shape, shape.input_shape, shape.weight_shape
        for which, wanted in zip(PASSES, shapes, strict=True):
            step, _ = peer.prepare(shape, which)
            assert step()().shape == wanted
    assert [a.shape for a in operands(shape)] == [shapes[1], shapes[2], shapes[0]]


def test_tables_and_chart(tmp_path):
    rows = [
        Row("1x1", "a", "1x8>8@9 k1", "forward", 1, (1.0, 1.5), (1.0, 1.5), 1.5, 1.5, "Conv*"),
        Row("1x1", "a", "1x8>8@9 k1", "input gradient", 1, (1.0, 0.5), (1.0, 0.5), 0.5, 0.5),
        Row("3-D", "b", "1x8>8@9x9x9 k3", "forward", 1, note="not timed: results differ"),
    ]
    grid = convolutions.summary(rows, 1)
    assert list(grid.lines[0]) == [
        "1x1", "2", "50%", "50%", "1.00", "0.50", "1x8>8@9 k1 input gradient"
    ]  # fmt: skip
    assert [line[0].strip("*") for line in grid.lines] == ["1x1", *PASSES[:2], "all"]
    slower = convolutions.details(rows)
    assert [line[-1] for line in slower.lines] == ["not timed: results differ", ""]
    assert len(slower.lines[0]) == len(slower.lines[1]) == len(slower.header)
    found = {"title": "x", "machine": machine(), "rows": [convolutions._plain(r) for r in rows]}
    pytest.importorskip("matplotlib").use("Agg")
    convolutions.draw(found, tmp_path / "x.svg")
    assert "input gradient" in (tmp_path / "x.svg").read_text()
