"""The shapes of the sweep of convolutions, its tables and chart, and what becomes of failures."""

import argparse
import json
import os
import sys
from collections import Counter
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

from benchmarks import convolutions
from benchmarks.contest import machine
from benchmarks.convolution_shapes import CLASSES, SEED, Convolution, draw_shapes, published_layers
from benchmarks.convolution_worker import PASSES, Torch, operands
from benchmarks.convolutions import QUICK, Row, UnfinishedSweep, choose
from benchmarks.worker_process import PeerError


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


def test_one_of_so_many_shapes_of_each_class():
    shapes = choose(draw_shapes(), CLASSES, 10)
    assert Counter(s.kind for s in shapes) == dict.fromkeys(CLASSES, 3)
    assert {s.kind for s in choose(shapes, ["3-D", "1-D"], 2)} == {"3-D", "1-D"}
    assert choose(draw_shapes(), CLASSES, 1) == draw_shapes()


# Speaks as a worker does, and ends at once when it is asked for an input gradient.
WORKER = """
import json, sys
print(json.dumps({"versions": {"made": "1"}}), flush=True)
for line in sys.stdin:
    if line.startswith("run"):
        seconds = int(line.split()[1]) * (0.008 if sys.argv[1] == "torch" else 0.004)
        print(seconds, 2 * seconds, flush=True)
    elif json.loads(line)["pass"] == "input gradient":
        sys.exit("out of memory")
    else:
        print(json.dumps({"sample": [1.0, 2.0], "how": "by hand"}), flush=True)
"""


@pytest.fixture
def workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Let both sides of a sweep be such a worker."""
    (tmp_path / "small_worker.py").write_text(WORKER)
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    monkeypatch.setattr(convolutions, "environment_of", lambda one, folder, isa: environment)
    monkeypatch.setattr(convolutions, "WORKER", "small_worker")
    monkeypatch.setattr(convolutions, "interpreter", lambda peer: sys.executable)
    monkeypatch.setattr(convolutions, "intel_library", lambda: None)


def test_a_process_that_ends_costs_its_pass_alone(workers: None, tmp_path: Path):
    shapes = choose(draw_shapes(), ["1x1"], 13)
    record = UnfinishedSweep(tmp_path / "sweep" / "so_far.json", {"title": "two"})
    convolutions.measure(record, shapes, 1, str(tmp_path), QUICK)
    for shape in shapes:
        first, failed, last = (record.row(1, shape, which) for which in PASSES)
        assert (first.ratio, first.busy_ratio) == (last.ratio, last.busy_ratio) == (2, 2)
        assert failed.note == "flow2onnx ended: out of memory"
        assert failed.ratio is None
    assert record.versions == {"flow2onnx": {"made": "1"}, "torch": {"made": "1"}}
    assert [p.name for p in record.path.parent.iterdir()] == ["so_far.json"]


def test_a_sweep_goes_on_where_it_ended(workers: None, tmp_path: Path):
    shapes = choose(draw_shapes(), ["1x1"], 13)
    about = {"title": "two", "only": ["1x1"]}
    begun = UnfinishedSweep(tmp_path / "so_far.json", about)
    begun.use({"flow2onnx": {"made": "1"}, "torch": {"made": "1"}})
    known = Row("1x1", "a", shapes[0].text, PASSES[0], 1, (1.0, 7.0), (1.0, 7.0), 7.0, 7.0, "Conv*")
    begun.add(known)
    record = UnfinishedSweep(begun.path, about)
    record.read()
    convolutions.measure(record, shapes, 1, str(tmp_path), QUICK)
    assert record.row(1, shapes[0], PASSES[0]) == known
    assert record.row(1, shapes[1], PASSES[2]).ratio == 2


def test_the_least_of_all_rounds_counts(workers: None, tmp_path: Path):
    shapes = choose(draw_shapes(), ["1x1"], 13)
    record = UnfinishedSweep(tmp_path / "so_far.json", {"title": "two"})
    record.use({"flow2onnx": {"made": "1"}, "torch": {"made": "1"}})
    about = ("1x1", "a", shapes[0].text)
    record.add(Row(*about, PASSES[0], 1, (9.0, 7.0), (9.0, 7.0), 7 / 9, 7 / 9, "by hand"))
    record.add(Row(*about, PASSES[1], 1, (3.0, 6.0), (3.0, 6.0), 2.0, 2.0, "by hand"))
    record.add(Row(*about, PASSES[2], 1, note="ours ended"))
    convolutions.measure(record, shapes, 1, str(tmp_path), replace(QUICK, rounds=2))
    first, ended, failed = (record.row(1, shapes[0], which) for which in PASSES)
    assert (first.ms, first.busy_ms, first.ratio) == ((4.0, 7.0), (8.0, 7.0), 1.75)
    assert (ended.ms, ended.ratio) == ((3.0, 6.0), 2.0)  # the second round's process ended
    assert (failed.ms, failed.note) == ((4.0, 8.0), "")
    assert {record.rounds(1, *case) for case in product(shapes, PASSES)} == {2}


def test_rows_of_other_sweeps_are_refused(tmp_path: Path):
    path = tmp_path / "so_far.json"
    UnfinishedSweep(path, {"title": "two"}).read()  # there is none: it begins anew
    begun = UnfinishedSweep(path, {"title": "two"})
    begun.use({"torch": {"torch": "2"}})
    begun.add(Row("1x1", "a", "1x8>8@9 k1", PASSES[0], 1))
    with pytest.raises(PeerError, match=r"is of another sweep: .*two.*, not .*three"):
        UnfinishedSweep(path, {"title": "three"}).read()
    record = UnfinishedSweep(path, {"title": "two"})
    record.read()
    with pytest.raises(PeerError, match=r"is of other versions: .*'2'.*, not .*'3'"):
        record.use({"torch": {"torch": "3"}})
    path.write_text("[]")
    with pytest.raises(PeerError, match="is no record of a sweep"):
        record.read()


@pytest.mark.slow
def test_a_side_that_is_not_installed_ends_the_sweep(
    workers: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(convolutions, "interpreter", lambda peer: None)
    args = argparse.Namespace(only=["1x1"], every=25, quick=True, resume=False, threads=[1], isa="",
                              seed=SEED, out=tmp_path)  # fmt: skip
    with pytest.raises(PeerError, match="flow2onnx is not installed"):
        convolutions.sweep(args)
    monkeypatch.setattr(convolutions, "interpreter", lambda peer: sys.executable)
    convolutions.sweep(args)
    assert len(json.loads((tmp_path / "convolutions.json").read_text())["rows"]) == len(PASSES)
    assert not (tmp_path / "convolutions.unfinished.json").exists()
