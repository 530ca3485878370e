"""Jobs that read: readers and decoders in a job, from files to a trained model."""

import re
from inspect import unwrap

import numpy as np
import pytest

import flow2onnx as flow
import flow2onnx.typing as tp
from flow2onnx.data.decoding import random_of
from flow2onnx.data.images import Window
from flow2onnx.engine.session import current_session
from flow2onnx.errors import ArgumentError, ContextError, DataError, DTypeError, JobError
from flow2onnx.trace.registry import entries
from tests.api.support import raises, rate
from tests.data.files import numbered, photo, photos, write_parts
from tests.ops.test_rows import ON_THE_HOST


def run(body, returns=tp.Numpy, calls=1, **options):
    """The results of calls of a job with this body."""

    def job():
        return body()

    job.__annotations__["return"] = returns
    made = flow.global_function(**options)(job)
    results = [made() for _ in range(calls)]
    return results[0] if calls == 1 else results


@pytest.fixture
def numbers(tmp_path):
    return write_parts(tmp_path / "numbers", [numbered(5), numbered(3, 5)])


@pytest.fixture
def pictures(tmp_path):
    return write_parts(tmp_path / "pictures", [photos(4), photos(4, 4)], 5)


def read(folder, size=4, parts=2, **options):
    return flow.data.ofrecord_reader(folder, batch_size=size, data_part_num=parts, **options)


def decoded(records, name="n", shape=(), dtype=flow.int32, **options):
    return flow.data.OFRecordRawDecoder(records, name, shape=shape, dtype=dtype, **options)


def test_each_call_reads_the_next_batch(numbers):
    found = run(lambda: decoded(read(numbers)), calls=3)
    assert np.array(found).tolist() == [[0, 1, 2, 3], [4, 5, 6, 7], [0, 1, 2, 3]]
    assert found[0].dtype == np.int32


def test_an_epoch_ends_inside_a_batch(numbers):
    found = run(lambda: decoded(read(numbers, 3)), calls=4)
    assert np.array(found).ravel().tolist() == [*range(8), *range(4)]


def test_the_loader_of_old(numbers):
    body = lambda: decoded(flow.data.ofrecord_loader(numbers, 4, 2, shuffle=True))  # noqa: E731
    first = run(body, calls=4)
    assert set(np.array(first).ravel()) <= set(range(8))
    assert np.array(first).ravel().tolist() != [*range(8), *range(8)]
    flow.clear_default_session()
    np.testing.assert_array_equal(run(body, calls=4), first)


def test_two_readers_are_apart(numbers):
    def body():
        return decoded(read(numbers)), decoded(read(numbers, name="second"), dtype=flow.float)

    first, second = run(body, tp.Bundle[tp.Numpy])
    assert first.tolist() == second.tolist() == [0, 1, 2, 3]
    assert second.dtype == np.float32


def test_raw_shapes_and_kinds(tmp_path):
    folder = write_parts(
        tmp_path / "d",
        [
            [
                {
                    "x": np.arange(6, dtype=np.float32) / 4,
                    "d": np.float64([0.1]),
                    "b": bytes([1, 255, 3]),
                    "i": np.int64([2**40, -1]),
                    "short": np.int32([7]),
                }
            ]
            * 2
        ],
    )

    def body():
        r = read(folder, 2, 1)
        return (
            decoded(r, "x", (2, 3), flow.float),
            decoded(r, "d", (1,), flow.double),
            decoded(r, "b", (3,), flow.float),
            decoded(r, "i", [2], flow.int64),
            decoded(r, "short", (4,), flow.int32, auto_zero_padding=True),
            decoded(r, "short", (3,), flow.int32, dim1_varying_length=True),
        )

    x, d, b, i, padded, varying = run(body, tp.Bundle[tp.Numpy])
    assert x.shape == (2, 2, 3)
    assert x[1].ravel().tolist() == [0, 0.25, 0.5, 0.75, 1, 1.25]
    assert d.tolist() == [[0.1], [0.1]]
    assert b[0].tolist() == [1, -1, 3]  # bytes count as signed
    assert i[0].tolist() == [2**40, -1]
    assert padded[0].tolist() == [7, 0, 0, 0]
    assert varying[0].tolist() == [7, 0, 0]


def test_wrong_counts_name_the_record(numbers):
    with raises(
        DataError, ValueError, "feature 'n' has 1 values, the shape (2,) takes 2"
    ) as caught:
        run(lambda: decoded(read(numbers), shape=(2,)))
    assert f"{numbers}/part-0, record 0 at byte 0" in str(caught.value)
    assert caught.value.job == "job"


def test_a_damaged_image_names_its_record(tmp_path):
    records = [*photos(5), {"encoded": b"\x89PNG\r\n\x1a\nnone", "class/label": 1}]
    folder = write_parts(tmp_path / "d", [records])

    def body():
        image = flow.data.OFRecordImageDecoder(read(folder, 3, 1), "encoded")
        return flow.image.Resize(image, target_size=(4, 4))[0]

    def job() -> tp.Numpy:
        return body()

    job = flow.global_function()(job)
    assert job().shape == (3, 4, 4, 3)
    for _ in range(2):  # and again at each call
        with raises(DataError, ValueError, f"{folder}/part-0, record 5 at byte "):
            job()


def test_a_missing_file(tmp_path):
    with raises(DataError, ValueError, "part-0: No such file"):
        run(lambda: decoded(read(str(tmp_path))))


def test_errors_reach_the_caller_of_a_callback(tmp_path, numbers):
    def job() -> tp.Callback[tp.Numpy]:
        return decoded(read(numbers), "missing")

    job = flow.global_function()(job)
    job()(lambda value: None)
    with raises(DataError, ValueError, "there is no feature 'missing'"):
        flow.sync_default_session()


def test_images(pictures):
    def body():
        r = read(pictures, 2, part_name_suffix_length=5)
        return [
            flow.image.Resize(
                flow.data.OFRecordImageDecoder(r, "encoded", color, name=color),
                target_size=(10, 12),
                channels=channels,
            )[0]
            for color, channels in (("RGB", 3), ("BGR", 3), ("GRAY", 1))
        ]

    rgb, bgr, grey = run(body, tp.Bundle[tp.Numpy])
    np.testing.assert_array_equal(rgb, [photo(0), photo(1)])
    np.testing.assert_array_equal(bgr, rgb[..., ::-1])
    assert grey.shape == (2, 12, 10, 1)
    assert rgb.dtype == np.uint8


def test_random_parts_of_images(pictures):
    def body():
        r = read(pictures, 2, part_name_suffix_length=5)
        image = flow.data.OFRecordImageDecoderRandomCrop(r, "encoded", "RGB", seed=5)
        return flow.image.Resize(image, target_size=(8, 8), interpolation_type="nn")[0]

    found = run(body, calls=2)
    rows, columns = Window().draw(random_of(5, (1, 0)), 12, 10)
    cut = photo(2)[rows, columns]
    at = [np.arange(8) * n // 8 for n in cut.shape[:2]]
    np.testing.assert_array_equal(found[1][0], cut[at[0]][:, at[1]])
    flow.clear_default_session()
    np.testing.assert_array_equal(run(body, calls=2), found)


def test_stateful_operators_have_a_name_once(pictures):
    def body():
        r = read(pictures, 2, part_name_suffix_length=5)
        for _ in range(2):
            flow.data.OFRecordImageDecoderRandomCrop(r, "encoded")
        return decoded(r, "class/label")

    with raises(JobError, AssertionError, "OFRecordImageDecoderRandomCrop already exist"):
        run(body)


def test_bytes(pictures):
    def body():
        data = flow.data.OFRecordBytesDecoder(
            read(pictures, 2, part_name_suffix_length=5), "encoded"
        )
        assert (data.shape, data.dtype) == ((2,), flow.tensor_buffer)
        image = flow.image.decode(data, color_space="RGB")
        fixed = flow.data.image_decoder_random_crop_resize(data, 6, 5, seed=3)
        small = flow.image.random_crop(image, seed=4)
        small = flow.image.Resize(small, target_size=(3, 3))[0]
        return flow.tensor_buffer_to_tensor(image, flow.uint8, (12, 10, 3)), fixed, small

    whole, fixed, small = run(body, tp.Bundle[tp.Numpy])
    np.testing.assert_array_equal(whole, [photo(0), photo(1)])
    assert fixed.shape == (2, 5, 6, 3)
    assert small.shape == (2, 3, 3, 3)


def test_buffers_of_arrays(numbers):
    def body():
        n = decoded(read(numbers), shape=(1,))
        buffer = flow.tensor_to_tensor_buffer(n, 1)
        assert buffer.dtype is flow.tensor_buffer
        return flow.tensor_buffer_to_tensor(buffer, flow.float, (1,))

    assert run(body).tolist() == [[0], [1], [2], [3]]


def test_classification_reader(pictures):
    def body():
        image, label = flow.data.ofrecord_image_classification_reader(
            pictures, "encoded", "class/label", 3, 2, part_name_suffix_length=5
        )
        return flow.image.Resize(image, target_size=(10, 12))[0], label

    image, label = run(body, tp.Bundle[tp.Numpy])
    np.testing.assert_array_equal(image[2], photo(2)[..., ::-1])
    assert label.tolist() == [0, 1, 2]


def test_random_data():
    def body():
        image = flow.data.decode_random((3, 2), flow.float, 5)
        label = flow.data.decode_random(
            (1,), flow.int32, 5, initializer=flow.random_uniform_initializer(0, 10), name="label"
        )
        fixed = flow.data.decode_random((2,), flow.float, initializer=flow.constant_initializer(3))
        return image, label, fixed

    first, second = run(body, tp.Bundle[tp.Numpy], calls=2)
    assert first[0].shape == (5, 3, 2)
    assert 0 <= first[0].min() < first[0].max() < 1
    assert (first[0] != second[0]).any()
    assert first[1].dtype == np.int32
    assert first[2].tolist() == [[3, 3]]


def test_train_from_files(tmp_path):
    """A class is a corner that is bright: a job that reads them learns to tell them apart."""
    random = np.random.default_rng(0)
    records = []
    for i in range(64):
        pixels = random.integers(0, 60, (8, 8, 1), dtype=np.uint8)
        label = i % 4
        pixels[4 * (label // 2) :, 4 * (label % 2) :][:4, :4] += 150
        records.append({"encoded": photos_png(pixels), "class/label": label})
    folder = write_parts(tmp_path / "d", [records[:32], records[32:]])

    def images(r, **options):
        image = flow.data.OFRecordImageDecoder(r, "encoded", "GRAY")
        image = flow.image.Resize(image, target_size=(8, 8), channels=1)[0]
        image = flow.image.CropMirrorNormalize(image, color_space="GRAY", mean=[60], std=[70])
        return flow.layers.dense(
            flow.reshape(image, (16, -1)),
            4,
            name="dense",
            kernel_initializer=flow.random_normal_initializer(0, 0.01),
        ), decoded(r, "class/label")

    @flow.global_function("train")
    def train() -> tp.Numpy:
        logits, labels = images(
            read(folder, 16, random_shuffle=True, shuffle_buffer_size=32, shuffle_after_epoch=True)
        )
        loss = flow.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
        flow.optimizer.SGD(rate(0.1), momentum=0.9).minimize(loss)
        return loss

    @flow.global_function()
    def test() -> tp.Bundle[tp.Numpy]:
        return images(read(folder, 16))

    losses = [train().mean() for _ in range(40)]
    assert losses[0] == pytest.approx(np.log(4), abs=0.1)
    assert losses[-1] < 0.05
    logits, labels = test()
    assert (logits.argmax(axis=1) == labels).all()


def photos_png(pixels):
    from tests.data.files import png

    return png(pixels)


def test_readers_beside_placeholders(numbers):
    @flow.global_function()
    def job(x: tp.ListNumpy.Placeholder((3,))) -> tp.ListNumpy:
        return flow.math.reduce_sum(x) + flow.cast(decoded(read(numbers)), flow.float)

    found = [job([np.ones(n, np.float32)])[0] for n in (3, 2, 3)]
    # one reader, whatever the shapes of the calls
    assert [f.tolist() for f in found] == [[3, 4, 5, 6], [6, 7, 8, 9], [3, 4, 5, 6]]


def test_an_input_that_decides_what_is_read(numbers):
    @flow.global_function()
    def job(x: tp.ListNumpy.Placeholder((3,))) -> tp.ListNumpy:
        return flow.cast(decoded(read(numbers, x.shape[0])), flow.float) + x

    job([np.ones(3, np.float32)])
    with raises(JobError, AssertionError, "change what the job reads"):
        job([np.ones(2, np.float32)])


def test_export_leaves_the_reading_to_others(numbers, tmp_path):
    def job() -> tp.Numpy:
        return decoded(read(numbers), dtype=flow.float) * 2

    report = flow.global_function()(job).export(tmp_path / "m.onnx")
    assert report.ok
    row = next(r for r in report.rows if r.check == "host part")
    assert (
        row.detail
        == "job reads no files: its readers' batches are inputs, OFRecordRawDecoder_0/out"
    )


def test_blobs_of_the_host_know_themselves(numbers):
    def body():
        r = read(numbers, name="rd")
        assert (r.shape, r.dtype, r.op_name, r.blob_name) == ((4,), flow.record, "rd", "out")
        n = flow.data.OFRecordRawDecoder(r, "n", (), flow.int32, name="dec").with_distribute(
            flow.distribute.split(0)
        )
        assert (n.shape, n.dtype, n.is_dynamic) == ((4,), flow.int32, False)
        assert n.with_gradient_distribute(flow.distribute.broadcast()).split_axis == 0
        assert "test_readers.py" in n.location
        return n

    assert run(body).tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("body", "kind", "builtin", "text"),
    [
        (
            lambda f: flow.math.relu(read(f)),
            DTypeError,
            TypeError,
            "gives records, which no operator",
        ),
        (
            lambda f: flow.data.OFRecordImageDecoder(read(f), "n"),
            DTypeError,
            TypeError,
            "arrays of different sizes, which no operator",
        ),
        (lambda f: decoded(decoded(read(f))), DTypeError, TypeError, "takes records, got int32"),
        (
            lambda f: flow.image.Resize(decoded(read(f)), target_size=(2, 2)),
            DTypeError,
            TypeError,
            "takes tensor buffers, got int32",
        ),
        (lambda f: read(f, 0), ArgumentError, ValueError, "batch_size is a positive int, got 0"),
        (lambda f: read(3), ArgumentError, ValueError, "ofrecord_dir is the path"),
        (lambda f: decoded(read(f), shape=(0,)), ArgumentError, ValueError, "shape is a tuple"),
        (
            lambda f: flow.data.OFRecordImageDecoder(read(f), "n", "HSV"),
            ArgumentError,
            ValueError,
            "color_space is one of BGR, RGB, GRAY; got 'HSV'",
        ),
        (
            lambda f: flow.data.OFRecordImageDecoderRandomCrop(read(f), "n", random_area=[1]),
            ArgumentError,
            ValueError,
            "random_area is two numbers",
        ),
        (
            lambda f: flow.data.OFRecordImageDecoderRandomCrop(read(f), "n", seed="x"),
            ArgumentError,
            ValueError,
            "seed is an int",
        ),
        (
            lambda f: flow.data.decode_random((2,), flow.float, initializer=3),
            ArgumentError,
            ValueError,
            "initializer is one of",
        ),
        (
            lambda f: flow.tensor_to_tensor_buffer(decoded(read(f)), 2),
            ArgumentError,
            ValueError,
            "instance_dims is 2",
        ),
        (
            lambda f: flow.tensor_buffer_to_tensor(
                flow.data.OFRecordBytesDecoder(read(f), "n"), flow.float, (-1,)
            ),
            ArgumentError,
            ValueError,
            "instance_shape is positive",
        ),
    ],
)
def test_misuse(numbers, body, kind, builtin, text):
    with pytest.raises(kind, match=re.escape(text)) as caught:
        run(lambda: body(numbers))
    assert isinstance(caught.value, builtin)
    assert "test_readers.py:" in caught.value.source
    assert caught.value.job == "job"


def test_bytes_of_numbers(numbers):
    body = lambda: flow.tensor_buffer_to_tensor(  # noqa: E731
        flow.data.OFRecordBytesDecoder(read(numbers), "n"), flow.uint8, (1,)
    )
    with raises(DataError, ValueError, "feature 'n' is a list of 1 int32, not one of bytes"):
        run(body)


def test_buffers_of_another_shape(pictures):
    body = lambda: flow.tensor_buffer_to_tensor(  # noqa: E731
        flow.data.OFRecordImageDecoder(read(pictures, part_name_suffix_length=5), "encoded"),
        flow.uint8,
        (2, 2, 3),
    )
    with raises(DataError, ValueError, "a buffer of shape (12, 10, 3), (2, 2, 3) is asked for"):
        run(body)


def test_outside_a_job(numbers):
    with raises(ContextError, NotImplementedError, "operators exist only inside a job"):
        read(numbers)


def test_blobs_of_another_job(numbers):
    kept = []

    def first():
        kept.append(decoded(read(numbers)))
        return kept[0]

    run(first)
    flow.clear_default_session()
    with raises(JobError, AssertionError, "was made in another job"):
        run(lambda: kept[0] * 2)


def test_a_cleared_session_reads_no_more(numbers):
    run(lambda: decoded(read(numbers)))
    pipeline = next(iter(current_session()._pipelines))
    flow.clear_default_session()
    with pytest.raises(DataError, match="closed"):
        pipeline.next()


def test_every_operator_of_the_host_is_used_here():
    from pathlib import Path

    text = "".join(p.read_text() for p in Path(__file__).parent.glob("test_*.py"))
    by_function = {}
    for name, entry in entries().items():
        if entry.function.__module__.rpartition(".")[2] in ON_THE_HOST:
            by_function.setdefault(unwrap(entry.function), []).append(name)
    for names in by_function.values():
        assert any(f"flow.{name}(" in text for name in names), names
