"""`flow.summary`: what jobs write, read back by TensorBoard itself where it is installed."""

import io
import json
import struct
from itertools import pairwise

import numpy as np
import pytest

import flow2onnx as flow
import flow2onnx.typing as tp
from flow2onnx.errors import ArgumentError, DataError, JobError
from flow2onnx.proto.event_files import EventWriter, histogram_of, read_records
from flow2onnx.proto.summary import Event, HParamsPluginData, SummaryProjector
from tests.api.support import raises


def int8(text):
    return np.frombuffer(text.encode(), np.int8)


def number(value):
    return np.array([value], np.int64)


def begin(folder):
    @flow.global_function()
    def create_writer() -> None:
        flow.summary.create_summary_writer(str(folder))

    return create_writer


def events(folder):
    (path,) = (folder / "event").iterdir()
    assert "tfevents" in path.name, "TensorBoard looks for files of this name"
    return [Event.FromString(record) for record in read_records(path)]


def test_scalars(tmp_path):
    create = begin(tmp_path)

    @flow.global_function()
    def write(
        value: tp.Numpy.Placeholder((1,)),
        step: tp.Numpy.Placeholder((1,), dtype=flow.int64),
        tag: tp.Numpy.Placeholder((4,), dtype=flow.int8),
    ) -> None:
        flow.summary.scalar(value * 2, step, tag)

    @flow.global_function()
    def flush() -> None:
        flow.summary.flush_summary_writer()

    create()
    for i in range(3):
        write(np.array([i], np.float32), number(10 * i), int8("loss"))
    flush()
    first, *rest = events(tmp_path)
    assert first.file_version == "brain.Event:2"
    found = [(e.step, e.summary.value[0].tag, e.summary.value[0].simple_value) for e in rest]
    assert found == [(0, "loss", 0.0), (10, "loss", 2.0), (20, "loss", 4.0)]


def test_a_tag_shorter_than_declared(tmp_path):
    create = begin(tmp_path)

    @flow.global_function()
    def write(
        value: tp.ListNumpy.Placeholder((1,)),
        step: tp.ListNumpy.Placeholder((1,), dtype=flow.int64),
        tag: tp.ListNumpy.Placeholder((1000,), dtype=flow.int8),
    ) -> None:
        flow.summary.scalar(value, step, tag)

    create()
    write([np.array([5], np.float32)], [number(1)], [int8("größe")])
    assert events(tmp_path)[1].summary.value[0].tag == "größe"


def test_histograms(tmp_path):
    create = begin(tmp_path)

    @flow.global_function()
    def write(
        value: tp.Numpy.Placeholder((100,)),
        step: tp.Numpy.Placeholder((1,), dtype=flow.int64),
        tag: tp.Numpy.Placeholder((1,), dtype=flow.int8),
    ) -> None:
        flow.summary.histogram(value, step, tag)

    create()
    values = np.random.default_rng(0).standard_normal(100).astype(np.float32)
    write(values, number(3), int8("w"))
    histo = events(tmp_path)[1].summary.value[0].histo
    assert (histo.num, histo.min, histo.max) == (100, values.min(), values.max())
    assert histo.sum_squares == pytest.approx(np.square(values.astype(float)).sum())
    limits, counts = np.array(histo.bucket_limit), np.array(histo.bucket)
    inside = [((values > low) & (values <= high)).sum() for low, high in pairwise(limits)]
    assert counts[1:].tolist() == inside


def test_values_that_are_not_finite_are_left_out(caplog):
    found = histogram_of(np.array([1.0, np.nan, np.inf, -2.0]))
    assert (found["num"], found["min"], found["max"]) == (2, -2.0, 1.0)
    assert "2 of 4 values are not finite" in caplog.text


def test_images(tmp_path):
    from PIL import Image

    create = begin(tmp_path)

    @flow.global_function()
    def write(
        value: tp.Numpy.Placeholder((2, 5, 7, 3), dtype=flow.uint8),
        step: tp.Numpy.Placeholder((1,), dtype=flow.int64),
        tag: tp.Numpy.Placeholder((3,), dtype=flow.int8),
    ) -> None:
        flow.summary.image(value, step=step, tag=tag)

    create()
    images = np.random.default_rng(0).integers(0, 256, (2, 5, 7, 3)).astype(np.uint8)
    write(images, number(1), int8("img"))
    shown = events(tmp_path)[1].summary.value
    assert [v.tag for v in shown] == ["img0", "img1"]
    for value, image in zip(shown, images, strict=True):
        read = np.asarray(Image.open(io.BytesIO(value.image.encoded_image_string)))
        np.testing.assert_array_equal(read, image)


@pytest.mark.parametrize("form", [str, lambda pb: pb.SerializeToString()])
def test_texts_and_hyper_parameters(tmp_path, form):
    create = begin(tmp_path)

    @flow.global_function()
    def write(
        value: tp.ListNumpy.Placeholder((2000,), dtype=flow.int8),
        step: tp.ListNumpy.Placeholder((1,), dtype=flow.int64),
    ) -> None:
        flow.summary.pb(value, step=step)

    def bytes_of(pb):
        made = form(pb)
        return np.frombuffer(made.encode() if isinstance(made, str) else made, np.int8)

    create()
    write([bytes_of(flow.summary.text(["vgg16", 'say "ö"']))], [number(4)])
    given = {
        flow.summary.HParam("rate", flow.summary.RealRange(1e-2, 1e-1)): 0.02,
        flow.summary.HParam("layers", flow.summary.IntegerRange(2, 7)): np.int64(5),
        flow.summary.Hparam("kind", flow.summary.ValueSet(["sgd", "adam"])): "adam",
        flow.summary.Metric("loss", float): 0.5,
        "fast": True,
    }
    write([bytes_of(flow.summary.hparams(given))], [number(5)])
    _, text, hparams = events(tmp_path)
    (value,) = text.summary.value
    assert value.metadata.plugin_data.plugin_name == "text"
    assert [t.decode() for t in value.tensor.string_val] == ["vgg16", 'say "ö"']
    (value,) = hparams.summary.value
    start = HParamsPluginData.FromString(value.metadata.plugin_data.content).session_start_info
    assert start.hparams["rate"].number_value == 0.02
    assert start.hparams["layers"].number_value == 5
    assert start.hparams["kind"].string_value == "adam"
    assert start.hparams["fast"].bool_value is True
    assert start.metrics["loss"].number_value == 0.5


def test_a_projector(tmp_path):
    projector = flow.summary.Projector(str(tmp_path))
    with raises(ArgumentError, ValueError, "no file is chosen", at="embedding_projector("):
        projector.embedding_projector(value=np.ones(2))
    projector.create_embedding_projector()
    value, label = np.arange(6.0).reshape(2, 3), np.array([1, 2])
    projector.embedding_projector(
        value=value, label=label, tag="e", step=7, sample_name="s", sample_type="image", x=label
    )
    with open(projector.embedding_filename, "rb") as file:
        read = SummaryProjector.FromString(file.read())
    (one,) = read.projector
    assert (one.tag, one.step, one.value.dtype) == ("e", 7, "float64")
    np.testing.assert_array_equal(np.frombuffer(one.value.content).reshape(2, 3), value)
    assert [d.size for d in one.value.shape.dim] == [2, 3]
    assert (read.sample.name, read.sample.type) == ("s", 0)


def test_the_structure_of_the_jobs(tmp_path):
    @flow.global_function()
    def double(x: tp.Numpy.Placeholder((2,))) -> tp.Numpy:
        return flow.math.add(x, x, name="twice")

    graph = flow.summary.Graph(str(tmp_path))
    graph.write_structure_graph()
    with open(graph.structure_graph_filename, encoding="utf-8") as file:
        (node,) = json.load(file)["jobs"]["double"]
    assert (node["operator"], node["inputs"], node["outputs"]) == ("Add", ["x", "x"], ["out/0"])


def test_tensorboard_reads_it(tmp_path):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_file_loader")
    with EventWriter(tmp_path) as writer:
        writer.scalar("loss", 0.25, step=3)
        writer.histogram("w", np.arange(5.0), step=4)
    loader = accumulator.LegacyEventFileLoader(str(writer.path))
    version, scalar, histogram = loader.Load()
    assert version.file_version == "brain.Event:2"
    assert (scalar.step, scalar.summary.value[0].simple_value) == (3, 0.25)
    assert histogram.summary.value[0].histo.sum == 10


def test_without_a_writer():
    @flow.global_function()
    def flush() -> None:
        flow.summary.flush_summary_writer()

    with raises(JobError, AssertionError, "no summary writer yet", at="flush()"):
        flush()


def test_a_number_for_a_step():
    @flow.global_function()
    def write(x: tp.Numpy.Placeholder((1,))) -> None:
        flow.summary.scalar(x, 1, "loss")

    with raises(ArgumentError, ValueError, "takes blobs, got 1", at="summary.scalar(x"):
        write(np.ones(1, np.float32))


def test_a_damaged_file(tmp_path):
    with EventWriter(tmp_path) as writer:
        writer.scalar("loss", 1.0, step=1)
    data = writer.path.read_bytes()
    for damaged, text in ((data[:-3], "cut off"), (data[:-5] + b"\0" + data[-4:], "checksum")):
        writer.path.write_bytes(damaged)
        with pytest.raises(DataError, match=text):
            list(read_records(writer.path))
    writer.path.write_bytes(struct.pack("<Q", 1 << 62) + b"\0" * 50)
    with pytest.raises(DataError, match="cut off"):
        list(read_records(writer.path))
