"""Decoding, random windows and resizing."""

import contextlib
import io
import itertools
import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from flow2onnx.data import images
from flow2onnx.data.images import Window, decode, flip, resize, size_in_ratio
from flow2onnx.errors import ArgumentError, DataError
from tests.data.files import photo, png


def encoded(image, kind="PNG", **options):
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def test_colours():
    rgb = photo(0)
    np.testing.assert_array_equal(decode(png(rgb), "RGB"), rgb)
    np.testing.assert_array_equal(decode(png(rgb)), rgb[:, :, ::-1])
    grey = decode(png(rgb), "GRAY")
    weights = np.array([0.299, 0.587, 0.114])
    assert grey.shape == (12, 10, 1)
    assert np.abs(grey[..., 0] - rgb @ weights).max() <= 1
    np.testing.assert_array_equal(decode(png(grey), "RGB"), grey.repeat(3, axis=2))


def test_other_kinds_of_pixels():
    rgb = photo(1)
    alpha = Image.fromarray(np.dstack([rgb, photo(2, channels=1)]))
    np.testing.assert_array_equal(decode(encoded(alpha), "RGB"), rgb)
    palette = Image.fromarray(rgb[:2, :2]).quantize(4)
    np.testing.assert_array_equal(
        decode(encoded(palette), "RGB"), np.asarray(palette.convert("RGB"))
    )
    deep = np.arange(0, 65536, 512, dtype=np.uint16).reshape(8, 16)
    made = decode(encoded(Image.fromarray(deep)), "GRAY")[..., 0]
    np.testing.assert_array_equal(made, deep >> 8)


def test_jpeg():
    smooth = np.tile(np.arange(0, 240, 5, dtype=np.uint8)[:, None, None], (1, 40, 3))
    data = encoded(Image.fromarray(smooth), "JPEG", quality=95)
    assert np.abs(decode(data, "RGB").astype(int) - smooth).max() <= 4
    assert np.abs(decode(data, "GRAY").astype(int) - smooth[..., :1]).max() <= 4


def test_the_camera_was_turned():
    image = Image.fromarray(np.arange(200, dtype=np.uint8).reshape(10, 20))
    exif = Image.Exif()
    exif[0x0112] = 6
    data = encoded(image.convert("RGB"), "JPEG", exif=exif, quality=100)
    assert decode(data).shape == (20, 10, 3)


def test_what_is_no_image():
    with pytest.raises(DataError, match="no image that Pillow knows, 4 bytes"):
        decode(b"abcd")
    whole = encoded(Image.fromarray(photo(0, 60, 60)), "JPEG")
    with pytest.raises(DataError, match="a damaged image"):
        decode(whole[: len(whole) // 2])


def test_only_declared_formats_are_opened(monkeypatch):
    def start(*given, **named):
        pytest.fail("a program was started")

    monkeypatch.setattr("subprocess.check_call", start)
    monkeypatch.setattr("subprocess.Popen", start)
    for kind in ("EPS", "PDF", "ICO", "PCX", "TGA", "SGI"):
        with pytest.raises(DataError, match="no image that Pillow knows"):
            decode(encoded(Image.fromarray(photo(0, 40, 40)), kind))
    for kind in images.FORMATS:
        if kind != "SUN":  # which Pillow does not write
            assert decode(encoded(Image.fromarray(photo(0, 40, 40)), kind)).shape == (40, 40, 3)


def png_of_size(width, height):
    """A PNG that claims a size, with the pixels of another."""
    whole = encoded(Image.new("1", (8, 8)))
    header = whole[12:16] + struct.pack(">II", width, height) + whole[24:29]
    return whole[:12] + header + struct.pack(">I", zlib.crc32(header)) + whole[33:]


@pytest.mark.parametrize("size", [(10000, 8000), (10000, 10000), (20000, 20000), (2**31 - 1, 2)])
def test_a_few_bytes_that_claim_a_large_image(size):
    with pytest.raises(DataError, match=r"an image is too large: .*pixels"):
        decode(png_of_size(*size))


def test_the_limit_of_pixels(monkeypatch):
    with pytest.raises(DataError, match="10000 × 8000 pixels"):
        decode(encoded(Image.new("1", (10000, 8000))))
    monkeypatch.setattr(images, "MAX_PIXELS", 100)
    with pytest.raises(DataError, match="at most 100 pixels"):
        decode(png(photo(0)))


def test_random_damage_raises_only_data_errors():
    random = np.random.default_rng()
    seed = random.bit_generator.seed_seq.entropy
    for kind in ("PNG", "JPEG"):
        whole = np.frombuffer(encoded(Image.fromarray(photo(0, 30, 30)), kind), np.uint8)
        for _ in range(150):
            damaged = whole.copy()
            damaged[random.integers(len(whole), size=4)] = random.integers(0, 256, 4)
            with contextlib.suppress(DataError):
                assert decode(damaged.tobytes()).ndim == 3, seed


def test_windows_keep_to_their_ranges():
    random, window = np.random.default_rng(0), Window()
    areas, ratios = [], []
    for height, width in itertools.product((30, 200, 333), (40, 200, 500)):
        for _ in range(100):
            rows, columns = window.draw(random, height, width)
            h, w = rows.stop - rows.start, columns.stop - columns.start
            assert 0 <= rows.start < rows.stop <= height
            assert 0 <= columns.start < columns.stop <= width
            areas.append(h * w / height / width)
            ratios.append(w / h)
    assert 0.06 < min(areas) < 0.12
    assert 0.85 < max(areas) <= 1
    assert min(ratios) > 0.7
    assert max(ratios) < 1.4


def test_windows_of_narrow_images():
    random = np.random.default_rng(0)
    rows, columns = Window().draw(random, 1000, 10)
    assert (columns.stop - columns.start) == 10
    assert rows.stop - rows.start == int(10 / 0.75)
    rows, columns = Window().draw(random, 10, 1000)
    assert rows.stop - rows.start == 10
    assert columns.stop - columns.start == 13
    never = Window(attempts=1, areas=(1.0, 1.0), ratios=(0.9, 1.1))
    rows, columns = never.draw(random, 100, 200)
    assert (rows.stop - rows.start, columns.stop - columns.start) == (100, 110)


@pytest.mark.parametrize("bad", [{"areas": (0, 1)}, {"ratios": (2, 1)}, {"attempts": 0}])
def test_windows_that_cannot_be(bad):
    with pytest.raises(ArgumentError):
        Window(**bad)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ((100, 200, 50, "shorter", None, None), (50, 100)),
        ((200, 100, 50, "shorter", None, None), (100, 50)),
        ((100, 200, 50, "shorter", None, 80), (40, 80)),
        ((100, 200, 50, "longer", None, None), (25, 50)),
        ((100, 200, 50, "longer", 30, None), (30, 60)),
        ((3, 1, 1, "longer", None, None), (1, 1)),
    ],
)
def test_sizes_that_keep_the_ratio(given, expected):
    assert size_in_ratio(*given) == expected


def test_a_ratio_that_makes_a_large_image():
    with pytest.raises(DataError, match="pixels"):
        size_in_ratio(1, 60000, 60000, "shorter", None, None)


def by_definition(image, height, width, weight):
    """A resize as a sum over all pixels, written down in the plainest way."""

    def matrix(have, want):
        rows = np.array([[weight(i, j, have / want) for j in range(have)] for i in range(want)])
        return rows / rows.sum(axis=1, keepdims=True)

    made = np.einsum(
        "ih,jw,hwc->ijc",
        matrix(image.shape[0], height),
        matrix(image.shape[1], width),
        image.astype(float),
    )
    return np.clip(np.floor(made + 0.5), 0, 255)


def covered(i, j, scale):
    return max(0.0, min(j + 1, (i + 1) * scale) - max(j, i * scale))


@pytest.mark.parametrize("size", [(5, 7), (12, 3), (1, 1), (11, 10)])
def test_area_is_the_mean_of_what_is_covered(size):
    image = photo(3)
    made = resize(image, *size, "area").astype(int)
    assert np.abs(made - by_definition(image, *size, covered)).max() <= 1


def test_area_of_large_reductions_is_the_same(monkeypatch):
    image = photo(4, 90, 80)
    slow = resize(image, 7, 30, "area").astype(int)
    monkeypatch.setattr(images, "_FEW", 100)
    assert np.abs(slow - resize(image, 7, 30, "area")).max() <= 1


def tent(i, j, scale):
    at = np.clip((i + 0.5) * scale - 0.5, 0, None)
    return max(0.0, 1 - abs(at - j))


@pytest.mark.parametrize("size", [(5, 7), (24, 30), (12, 3), (25, 5)])
def test_bilinear(size):
    image = photo(5)
    made = resize(image, *size, "bilinear").astype(int)
    assert np.abs(made - by_definition(image, *size, tent)).max() <= 1


def test_nearest():
    image = photo(6)
    made = resize(image, 7, 25, "nn")
    rows, columns = (np.arange(7) * 12 // 7), (np.arange(25) * 10 // 25)
    np.testing.assert_array_equal(made, image[rows][:, columns])


def test_bicubic_keeps_what_is_flat_and_follows_slopes():
    flat = np.full((8, 9, 3), 77, np.uint8)
    np.testing.assert_array_equal(resize(flat, 5, 20, "bicubic"), np.full((5, 20, 3), 77))
    slope = np.tile(np.arange(0, 200, 10, dtype=np.uint8)[:, None, None], (1, 4, 1))
    made = resize(slope, 40, 4, "bicubic")[6:-6, 0, 0].astype(float)
    np.testing.assert_allclose(made, np.arange(6, 34) * 5 - 2.5, atol=1)


def test_auto_takes_areas_to_shrink():
    image = photo(7)
    np.testing.assert_array_equal(resize(image, 6, 5), resize(image, 6, 5, "area"))
    np.testing.assert_array_equal(resize(image, 20, 15), resize(image, 20, 15, "bilinear"))
    assert resize(image, 12, 10) is image


@pytest.mark.parametrize("method", images.METHODS)
@pytest.mark.parametrize("size", [(5, 4), (20, 30), (30, 5)])
def test_real_pixels_and_one_channel(method, size):
    whole = resize(photo(8, channels=1), *size, method)
    real = resize(photo(8, channels=1).astype(np.float32), *size, method)
    assert (whole.shape, whole.dtype) == ((*size, 1), np.uint8)
    assert real.dtype == np.float32
    assert np.abs(np.clip(real, 0, 255) - whole).max() <= 1


def test_flips():
    image = photo(9)
    np.testing.assert_array_equal(flip(image, 0), image)
    np.testing.assert_array_equal(flip(image, 1), image[:, ::-1])
    np.testing.assert_array_equal(flip(image, 16), image[::-1])
    np.testing.assert_array_equal(flip(image, 17), image[::-1, ::-1])
