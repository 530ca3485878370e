"""The oldest reader, with its descriptions of blobs."""

import re

import numpy as np
import pytest

import flow2onnx as flow
import flow2onnx.typing as tp
from flow2onnx.data.images import resize
from flow2onnx.errors import ArgumentError
from tests.data.files import photo, photos, write_parts
from tests.data.test_readers import run


@pytest.fixture
def pictures(tmp_path):
    records = [r | {"raw": bytes([1, 2, 3])} for r in photos(4)]
    return write_parts(tmp_path / "pictures", [records])


def decode(folder, *blobs, **options):
    return flow.data.decode_ofrecord(folder, blobs, batch_size=2, **options)


def test_images_and_labels(pictures):
    def body():
        norm = flow.data.NormByChannelPreprocessor((1, 2, 3), (2, 4, 8))
        image = flow.data.BlobConf(
            "encoded",
            shape=(12, 10, 3),
            dtype=flow.float,
            codec=flow.data.ImageCodec(),
            preprocessors=[norm],
        )
        steps = [flow.data.ImagePreprocessor("bgr2rgb"), flow.data.ImageResizePreprocessor(6, 8)]
        small = flow.data.BlobConf("encoded", (8, 6, 3), flow.int32, flow.data.ImageCodec(steps))
        grey = flow.data.BlobConf("encoded", (12, 10, 1), flow.float, flow.data.ImageCodec())
        label = flow.data.BlobConf("class/label", (), flow.int32, flow.data.RawCodec())
        raw = flow.data.BlobConf("raw", (5,), flow.int8, flow.data.BytesListCodec())
        padded = flow.data.BlobConf("raw", (4,), flow.float, flow.data.RawCodec(True))
        return decode(pictures, image, small, grey, label, raw, padded)

    image, small, grey, label, raw, padded = run(body, tp.Bundle[tp.Numpy])
    bgr = np.stack([photo(0), photo(1)])[..., ::-1]
    np.testing.assert_allclose(
        image, (bgr - np.float32([1, 2, 3])) / np.float32([2, 4, 8]), rtol=1e-6
    )
    np.testing.assert_array_equal(small[0], resize(photo(0), 8, 6, "bilinear"))
    assert small.dtype == np.int32
    assert (grey.shape, grey.dtype) == ((2, 12, 10, 1), np.float32)
    assert label.tolist() == [0, 1]
    assert raw.tolist() == [[1, 2, 3, 0, 0]] * 2
    assert padded.tolist() == [[1, 2, 3, 0]] * 2


def test_mirrored_at_random(pictures):
    def body():
        codec = flow.data.ImageCodec([flow.data.ImagePreprocessor("mirror")])
        return decode(pictures, flow.data.BlobConf("encoded", (12, 10, 3), flow.uint8, codec))[0]

    found = run(body, calls=8)
    turned = set()
    for i, images in enumerate(found):
        for j, image in enumerate(images):
            bgr = photo((2 * i + j) % 4)[..., ::-1]
            is_turned = bool((image == bgr[:, ::-1]).all())
            assert is_turned or (image == bgr).all()
            turned.add(is_turned)
    assert turned == {True, False}


def test_channels_first():
    norm = flow.data.NormByChannelPreprocessor((1, 2, 3), data_format="channels_first")
    assert norm.std_values == (1.0, 1.0, 1.0)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (
            lambda: flow.data.BlobConf("encoded", (12, 10), flow.float, flow.data.ImageCodec()),
            "is an image of shape (height, width, channels)",
        ),
        (
            lambda: flow.data.BlobConf(
                "encoded",
                (12, 10, 3),
                flow.float,
                flow.data.ImageCodec([flow.data.ImageResizePreprocessor(5, 5)]),
            ),
            "is 12 × 10, resized to 5 × 5",
        ),
        (
            lambda: flow.data.BlobConf("encoded", (12, 10, 3), flow.float, "jpeg"),
            "the codec of blob",
        ),
        (
            lambda: flow.data.BlobConf(
                "encoded",
                (12, 10, 3),
                flow.float,
                flow.data.ImageCodec(),
                [flow.data.NormByChannelPreprocessor((1, 2))],
            ),
            "mean_values has 2",
        ),
        (lambda: flow.data.ImagePreprocessor("rotate"), "preprocessor is 'bgr2rgb' or 'mirror'"),
        (lambda: flow.data.NormByChannelPreprocessor((1,), data_format="NCHW"), "data_format is"),
        (lambda: "encoded", "blobs is a list of flow.data.BlobConf"),
    ],
)
def test_misuse(pictures, make, text):
    with pytest.raises(ArgumentError, match=re.escape(text)):
        run(lambda: decode(pictures, make())[0])
