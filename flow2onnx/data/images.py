"""Images on the host: decoding, random windows, resizing, as OneFlow did them with OpenCV.

Images are uint8 arrays (height, width, channels). Decoding and bilinear enlarging are Pillow's,
which agree with OpenCV's to a level; what Pillow does in another way, such as bilinear reduction
without smoothing and exact averages of areas, is computed here.
"""

import io
import math
import warnings
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import numpy as np
from flow2onnx_runtime.dtypes import Array
from numpy.typing import NDArray

from flow2onnx.errors import ArgumentError, DataError, UnsupportedError

__all__ = ["COLORS", "FORMATS", "MAX_PIXELS", "METHODS", "Side", "Window", "decode", "flip",
           "resize", "size_in_ratio"]  # fmt: skip

Image = NDArray[np.uint8]
Side = Literal["shorter", "longer"]

# What OpenCV reads, and GIF. Others stay shut: EPS starts a program.
FORMATS = ("BMP", "GIF", "JPEG", "JPEG2000", "PNG", "PPM", "SUN", "TIFF", "WEBP")
COLORS = {"BGR": 3, "RGB": 3, "GRAY": 1}
MAX_PIXELS = 1 << 26  # of one decoded image; a few bytes can claim any size
_FEW = 4  # pixels for each place, up to which adding them is faster than differences of sums
METHODS = ("auto", "bilinear", "nearest_neighbor", "nn", "bicubic", "area")


def _pillow() -> Any:  # a module
    try:
        import PIL.Image
        import PIL.ImageOps
    except ImportError as error:
        raise UnsupportedError(
            "images are decoded with Pillow, which is not installed",
            hint="pip install 'flow2onnx[images]'",
        ) from error
    return PIL


def decode(data: bytes, color: str = "BGR") -> Image:
    """The image in a file of one of `FORMATS`, in the order of channels that `color` names.

    One of more than `MAX_PIXELS` is refused before it is decoded.
    """
    pillow = _pillow()
    try:
        with _open_image(pillow, data) as image:
            _check_size(image.size)
            return _pixels(pillow, image, color)
    except DataError:
        raise
    except pillow.Image.DecompressionBombError as error:
        raise _too_large(str(error)) from error
    except Exception as error:  # Pillow's decoders raise whatever they meet
        kind = "no image that Pillow knows" if _is_unknown(pillow, error) else "a damaged image"
        raise DataError(
            f"{kind}, {len(data)} bytes that begin with {data[:8]!r}: {error}",
            hint=f"the feature that holds the encoded image? read are {', '.join(FORMATS)}",
        ) from error


def _open_image(pillow: Any, data: bytes) -> Any:
    with warnings.catch_warnings():
        # of sizes that are refused just after, with the limit that holds here
        warnings.simplefilter("ignore", pillow.Image.DecompressionBombWarning)
        return pillow.Image.open(io.BytesIO(data), formats=FORMATS)


def _is_unknown(pillow: Any, error: Exception) -> bool:
    return isinstance(error, pillow.UnidentifiedImageError)


def _check_size(size: tuple[int, int]) -> None:
    if size[0] * size[1] > MAX_PIXELS:
        raise _too_large(f"{size[0]} × {size[1]} pixels")


def _too_large(size: str) -> DataError:
    return DataError(
        f"an image is too large: {size}",
        hint=f"images have at most {MAX_PIXELS} pixels; is the file damaged?",
    )


def _pixels(pillow: Any, image: Any, color: str) -> Image:
    if color == "GRAY" and image.format == "JPEG":
        image.draft("L", None)  # the decoder's own grey
    if image.mode.startswith("I;16"):
        high = (np.asarray(image) >> 8).astype(np.uint8)
        image = pillow.Image.fromarray(high)
    if "exif" in image.info:  # OpenCV turns the image as the camera was held
        image = pillow.ImageOps.exif_transpose(image)
    pixels: Image = np.array(image.convert("L" if color == "GRAY" else "RGB"))
    if color == "GRAY":
        return pixels[:, :, None]
    return pixels[:, :, ::-1] if color == "BGR" else pixels


@dataclass(frozen=True)
class Window:
    """The choice of a random part of an image; `areas` are shares of its area."""

    attempts: int = 10
    areas: tuple[float, float] = (0.08, 1.0)
    ratios: tuple[float, float] = (0.75, 1.333333)

    def __post_init__(self) -> None:
        for name, (low, high) in (("random_area", self.areas), ("aspect_ratio", self.ratios)):
            if not 0 < low <= high:
                raise ArgumentError(f"{name} is a range above 0, got {[low, high]}")
        if self.attempts < 1:
            raise ArgumentError(f"num_attempts is at least 1, got {self.attempts}")

    def draw(self, random: np.random.Generator, height: int, width: int) -> tuple[slice, slice]:
        """Rows and columns of a window, width / height within the ratios."""
        h, w = self._size(random, height, width)
        y = int(random.integers(height - h + 1))
        x = int(random.integers(width - w + 1))
        return slice(y, y + h), slice(x, x + w)

    def _size(self, random: np.random.Generator, height: int, width: int) -> tuple[int, int]:
        low, high = self.ratios
        area, least = height * width, self.areas[0] * height * width
        widest, tallest = max(1, int(height * high)), max(1, int(width / low))
        if height * widest < least:
            return height, min(widest, width)
        if tallest * width < least:
            return min(tallest, height), width
        for _ in range(self.attempts):
            asked = random.uniform(*self.areas) * area
            ratio = math.exp(random.uniform(math.log(low), math.log(high)))
            w = max(1, round(math.sqrt(asked * ratio)))
            h = max(1, round(math.sqrt(asked / ratio)))
            if w <= width and h <= height and low <= w / h <= high:
                return h, w
        return self._fallback(height, width)

    def _fallback(self, height: int, width: int) -> tuple[int, int]:
        """The whole image cut to the ratios, and shrunk to the largest area."""
        low, high = self.ratios
        h, w = height, width
        if w / h > high:
            w = int(h * high)
        elif w / h < low:
            h = int(w / low)
        largest = self.areas[1] * height * width
        if h * w > largest:
            scale = math.sqrt(largest / (h * w))
            h, w = int(h * scale), int(w * scale)
        return max(1, h), max(1, w)


def size_in_ratio(
    height: int, width: int, target: int, side: Side, least: int | None, most: int | None
) -> tuple[int, int]:
    """The height and width of an image whose `side` is brought to `target`.

    `most` bounds the longer side when the shorter is set, `least` the shorter when the longer is.
    """
    is_tall = height > width
    shorter, longer = min(height, width), max(height, width)
    aspect = shorter / longer
    if side == "shorter":
        new_shorter, new_longer = target, round(target / aspect)
        if most is not None and new_longer > most:
            new_longer, new_shorter = most, round(most * aspect)
    else:
        new_longer, new_shorter = target, round(target * aspect)
        if least is not None and new_shorter < least:
            new_shorter, new_longer = least, round(least / aspect)
    new_shorter, new_longer = max(1, new_shorter), max(1, new_longer)
    _check_size((new_shorter, new_longer))
    return (new_longer, new_shorter) if is_tall else (new_shorter, new_longer)


def flip(image: Array, code: int) -> Array:
    """The image mirrored: bit 0x01 left and right, bit 0x10 top and bottom."""
    rows = slice(None, None, -1 if code & 0x10 else 1)
    columns = slice(None, None, -1 if code & 0x01 else 1)
    return image[rows, columns]


def resize(image: Array, height: int, width: int, method: str = "auto") -> Array:
    """The image at another size."""
    have = image.shape[:2]
    if have == (height, width):
        return image
    if method == "auto":
        method = "bilinear" if height * width >= have[0] * have[1] else "area"
    if method == "bilinear" and height >= have[0] and width >= have[1]:
        return _resize_by_pillow(image, height, width, "BILINEAR")
    if method == "area" and height <= have[0] and width <= have[1]:
        rows = _area_means(image, height, axis=0)
        return _round(_area_means(rows, width, axis=1), image.dtype)
    kind = {"nn": "nearest_neighbor", "area": "stretched"}.get(method, method)
    return _resize_by_taps(image, height, width, kind)


def _resize_by_pillow(image: Array, height: int, width: int, method: str) -> Array:
    pillow = _pillow()
    kind = np.uint8 if image.dtype == np.uint8 else np.float32
    bands = [image] if image.dtype == np.uint8 and image.shape[2] == 3 else np.moveaxis(image, 2, 0)
    sources = [pillow.Image.fromarray(np.ascontiguousarray(band, kind)) for band in bands]
    filter_ = pillow.Image.Resampling[method]
    made = [np.asarray(source.resize((width, height), filter_)) for source in sources]
    return made[0] if made[0].ndim == 3 else np.stack(made, axis=2).astype(image.dtype)


def _area_means(image: Array, want: int, axis: int) -> Array:
    """The mean of what each of `want` places covers, parts of a pixel counted in part."""
    have = image.shape[axis]
    if have <= _FEW * want:
        return _weighted_sum(image, *_taps("area", have, want), axis)
    sums = np.zeros([size + (i == axis) for i, size in enumerate(image.shape)])
    np.cumsum(image, axis=axis, out=sums[(slice(None),) * axis + (slice(1, None),)])
    bounds = np.arange(want + 1) * (have / want)
    whole = np.minimum(bounds.astype(int), have - 1)
    part = (bounds - whole).reshape((-1, 1, 1) if axis == 0 else (1, -1, 1))
    below = sums.take(whole, axis=axis)
    upto = below + part * (sums.take(whole + 1, axis=axis) - below)
    means: Array = np.diff(upto, axis=axis) * (want / have)
    return means


def _round(made: Array, dtype: "np.dtype[Any]") -> Array:
    if dtype != np.uint8:
        return made.astype(dtype)
    return np.clip(np.floor(made + 0.5), 0, 255).astype(np.uint8)


def _resize_by_taps(image: Array, height: int, width: int, kind: str) -> Array:
    """Each result is a weighted sum of a few rows, then of a few columns."""
    if kind == "nearest_neighbor":
        rows, _ = _taps(kind, image.shape[0], height)
        columns, _ = _taps(kind, image.shape[1], width)
        return image[rows[:, 0]][:, columns[:, 0]]
    rows_of = _weighted_sum(image, *_taps(kind, image.shape[0], height), axis=0)
    made = _weighted_sum(rows_of, *_taps(kind, image.shape[1], width), axis=1)
    return _round(made, image.dtype)


def _weighted_sum(image: Array, places: Array, weights: Array, axis: int) -> Array:
    shape = (-1, 1, 1) if axis == 0 else (1, -1, 1)
    total: Array | None = None
    for place, weight in zip(places.T, weights.T, strict=True):
        part = image.take(place, axis=axis).astype(np.float32) * weight.reshape(shape)
        total = part if total is None else total + part
    assert total is not None, "there is at least one tap"
    return total


@lru_cache(maxsize=256)
def _taps(kind: str, have: int, want: int) -> tuple[Array, Array]:
    """For each of `want` places which of the `have` it reads, and how much of each."""
    scale, place = have / want, np.arange(want)
    if kind == "nearest_neighbor":
        at = np.minimum(np.floor(place * scale).astype(int), have - 1)
        return at[:, None], np.ones((want, 1), np.float32)
    if kind == "area":
        places = np.floor(place * scale)[:, None].astype(int) + np.arange(math.ceil(scale) + 1)
        covered = np.minimum(places + 1, (place + 1)[:, None] * scale) - np.maximum(
            places, place[:, None] * scale
        )
        shares = np.maximum(covered, 0) / scale
        return np.minimum(places, have - 1), shares.astype(np.float32)
    if kind == "stretched":  # OpenCV's area method where an axis is enlarged
        first = np.floor(place * scale).astype(int)
        share = (place + 1) - (first + 1) / scale
        share = np.where(share <= 0, 0.0, share - np.floor(share))
        offsets, weights = [0, 1], np.stack([1 - share, share], axis=1)
    else:
        exact = (place + 0.5) * scale - 0.5
        first = np.floor(exact).astype(int)
        t = exact - first
        is_cubic = kind == "bicubic"
        offsets = [-1, 0, 1, 2] if is_cubic else [0, 1]
        weights = _cubic(t) if is_cubic else np.stack([1 - t, t], axis=1)
    places = np.clip(first[:, None] + np.array(offsets), 0, have - 1)
    return places, weights.astype(np.float32)


def _cubic(t: Array) -> Array:
    """The weights of four neighbours, with OpenCV's constant."""
    a = -0.75
    far = ((a * (t + 1) - 5 * a) * (t + 1) + 8 * a) * (t + 1) - 4 * a
    near = ((a + 2) * t - (a + 3)) * t * t + 1
    next_ = ((a + 2) * (1 - t) - (a + 3)) * (1 - t) ** 2 + 1
    return np.stack([far, near, next_, 1 - far - near - next_], axis=1)
