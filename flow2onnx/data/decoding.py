"""From records to arrays: what the decoders of a job do with one sample."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from flow2onnx_runtime.dtypes import Array

from flow2onnx.data import images
from flow2onnx.data.ofrecord import Record
from flow2onnx.dtypes import DType
from flow2onnx.errors import DataError

__all__ = ["Bytes", "Crop", "Encoded", "FixedSize", "Key", "Raw", "as_tensor", "random_of"]

Key = tuple[int, int]  # of a sample: the number of its batch, and its slot there


def random_of(seed: int, key: Key) -> np.random.Generator:
    """The generator of one sample: the seed, the batch and the slot decide what it draws."""
    return np.random.default_rng([seed, *key])


@dataclass(frozen=True)
class Raw:
    """Numbers of a feature in a fixed shape.

    Bytes count as int8 each. Only with `is_padded` may there be fewer: zeros follow.
    """

    feature: str
    shape: tuple[int, ...]
    dtype: DType
    is_padded: bool = False

    def __call__(self, key: Key, record: Record) -> tuple[Array]:
        """The array of one record."""
        values, count = self._values(record), math.prod(self.shape)
        if len(values) > count or (len(values) < count and not self.is_padded):
            raise DataError(
                f"feature {self.feature!r} has {len(values)} values, the shape {self.shape} "
                f"takes {count}",
                place=record.where,
                hint="give the shape of one sample; auto_zero_padding=True allows fewer",
            )
        made = np.zeros(count, self.dtype.numpy)
        made[: len(values)] = values.astype(self.dtype.numpy, copy=False)
        return (made.reshape(self.shape),)

    def _values(self, record: Record) -> Array:
        feature = record.feature(self.feature)
        if isinstance(feature.values, np.ndarray):
            return feature.values
        return np.frombuffer(_single(record, self.feature), np.int8)


def _single(record: Record, name: str) -> bytes:
    feature = record.feature(name)
    if isinstance(feature.values, tuple) and len(feature.values) == 1:
        return feature.values[0]
    raise DataError(
        f"feature {name!r} is a list of {len(feature)} {feature.kind}, not one of bytes",
        place=record.where,
        hint="`flow2onnx data show` lists the features of the records",
    )


@dataclass(frozen=True)
class Bytes:
    """The bytes of a feature, as a one-dimensional buffer."""

    feature: str

    def __call__(self, key: Key, record: Record) -> tuple[Array]:
        """The buffer of one record."""
        return (np.frombuffer(_single(record, self.feature), np.uint8),)


@dataclass(frozen=True)
class Encoded:
    """An encoded image, of a feature or (feature None) a buffer: whole, or a random part of it."""

    feature: str | None
    color: str = "BGR"
    window: images.Window | None = None
    seed: int = 0

    def __call__(self, key: Key, given: Record | Array) -> tuple[Array]:
        """The image of one sample."""
        if isinstance(given, Record):
            assert self.feature is not None, "a record has features"
            data = _single(given, self.feature)
        else:
            data = given.tobytes()
        image: Array = images.decode(data, self.color)
        if self.window is not None:
            image = image[self.window.draw(random_of(self.seed, key), *image.shape[:2])]
        return (image,)


@dataclass(frozen=True)
class FixedSize:
    """Resizing to one size, with the factors (horizontal, vertical)."""

    height: int
    width: int
    channels: int
    dtype: DType
    method: str = "auto"

    def __call__(self, key: Key, image: Array) -> tuple[Array, Array]:
        """The image of one sample and its factors."""
        height, width, channels = image.shape
        if channels != self.channels:
            raise DataError(
                f"an image of {channels} channels, {self.channels} are asked for",
                hint="pass channels=, and decode with the color_space that has them",
            )
        made = images.resize(image, self.height, self.width, self.method)
        factors = np.array([self.width / width, self.height / height], np.float32)
        return made.astype(self.dtype.numpy, copy=False), factors


@dataclass(frozen=True)
class Crop:
    """A window of a fixed size at a relative place of an image."""

    height: int
    width: int
    channels: int
    y: float = 0.5
    x: float = 0.5

    def __call__(self, key: Key, image: Array) -> tuple[Array]:
        """The window of one sample."""
        height, width, channels = image.shape
        if channels != self.channels or height < self.height or width < self.width:
            raise DataError(
                f"an image of {width} × {height} pixels and {channels} channels; the crop is "
                f"{self.width} × {self.height} of {self.channels}",
                hint="resize to at least the size of the crop; check color_space",
            )
        top, left = int((height - self.height) * self.y), int((width - self.width) * self.x)
        return (image[top : top + self.height, left : left + self.width],)


def as_tensor(shape: Sequence[int], dtype: DType, buffer: Array) -> Array:
    """A buffer that has to have the shape, as an array of the element type."""
    if buffer.shape != tuple(shape):
        raise DataError(
            f"a buffer of shape {buffer.shape}, {tuple(shape)} is asked for",
            hint="instance_shape is the shape of every buffer",
        )
    return buffer.astype(dtype.numpy, copy=False)
