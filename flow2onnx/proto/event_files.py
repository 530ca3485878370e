"""TensorBoard event files: records with checksums, around summaries of values.

>>> import tempfile
>>> with tempfile.TemporaryDirectory() as folder, EventWriter(folder) as writer:
...     writer.scalar("loss", 0.5, step=1)
...     [len(record) for record in read_records(writer.path)]
[24, 39]
"""

import logging
import os
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from flow2onnx_runtime.dtypes import Array
from flow2onnx_runtime.event_files import ScalarWriter, Summary, add_value, checksum
from flow2onnx_runtime.messages import parse_bytes, parse_text

from flow2onnx.errors import ArgumentError, DataError

__all__ = ["EventWriter", "histogram_of", "png", "read_records", "summary_of"]

_log = logging.getLogger("flow2onnx.summary")


def read_records(path: str | os.PathLike[str]) -> Iterator[bytes]:
    """The records of an event file; raises `DataError` at one that is cut off or damaged."""
    data, at = Path(path).read_bytes(), 0
    while at < len(data):
        head, after = data[at : at + 8], at + 12
        size = int.from_bytes(head, "little")
        body, end = data[after : after + size], after + size + 4
        if end > len(data):
            raise DataError(
                "the record is cut off",
                place=f"{path}, byte {at}",
                hint="the program that wrote it was stopped; what is before is whole",
            )
        of_head, of_body = (
            int.from_bytes(part, "little") for part in (data[at + 8 : after], data[end - 4 : end])
        )
        if (of_head, of_body) != (checksum(head), checksum(body)):
            raise DataError("a checksum is wrong", place=f"{path}, byte {at}",
                            hint="the file is damaged, or no event file")  # fmt: skip
        yield body
        at = end


class EventWriter(ScalarWriter):
    """Writes one event file below `logdir`; each event is in the file when its call returns."""

    def __init__(self, logdir: str | os.PathLike[str]) -> None:
        super().__init__(Path(logdir, "event"))

    def histogram(self, tag: str, values: Array, step: int) -> None:
        """Add the distribution of all values of an array."""
        summary = Summary()
        held = add_value(summary, tag, "histograms").histo
        for name, number in histogram_of(values).items():
            if isinstance(number, list):
                getattr(held, name).extend(number)
            else:
                setattr(held, name, number)
        self.add(summary, step)

    def images(self, tag: str, images: Array, step: int) -> None:
        """Add a batch of images, uint8 and channels last; several get numbered tags."""
        if images.ndim != 4 or images.shape[3] not in (1, 3, 4) or images.dtype != np.uint8:
            raise ArgumentError(
                f"summary.image: images are uint8 of shape (number, height, width, 1, 3 or 4), "
                f"got {images.dtype} of {images.shape}",
                hint="cast and transpose them in the job",
            )
        summary = Summary()
        for i, image in enumerate(images):
            held = add_value(summary, tag if len(images) == 1 else f"{tag}{i}", "images").image
            held.height, held.width, held.colorspace = image.shape
            held.encoded_image_string = png(image)
        self.add(summary, step)


def summary_of(content: bytes) -> Any:
    """The summary that bytes hold: in protobuf's text form, as OneFlow took it, or encoded."""
    try:
        return parse_text(content.decode(), Summary)
    except ValueError:  # also what decoding raises
        pass
    try:
        return parse_bytes(content, Summary)
    except ValueError:
        raise ArgumentError(
            "summary.pb: the bytes are no summary",
            hint="feed str(flow.summary.text([...])) or its SerializeToString(), as int8",
        ) from None


def _limits() -> Array:
    """The limits of TensorBoard's buckets: from 1e-12 on, each a tenth above the one before."""
    count = int(np.log(1e32) / np.log(1.1)) + 1
    positive = 1e-12 * 1.1 ** np.arange(count)
    top = np.finfo(np.float64).max
    return np.concatenate([[-top], -positive[::-1], [0.0], positive, [top]])


def histogram_of(values: Array) -> dict[str, Any]:
    """The fields of a histogram: moments, and counts of buckets from the first to the last used."""
    numbers = np.asarray(values, np.float64).ravel()
    finite = numbers[np.isfinite(numbers)]
    if finite.size < numbers.size:
        _log.warning("histogram: %d of %d values are not finite, and left out",
                     numbers.size - finite.size, numbers.size)  # fmt: skip
    if not finite.size:
        finite = np.zeros(1)
    limits = _limits()
    counts = np.bincount(np.searchsorted(limits, finite), minlength=limits.size)
    used = np.flatnonzero(counts)
    shown = slice(max(used[0] - 1, 0), used[-1] + 1)
    return {
        "min": float(finite.min()),
        "max": float(finite.max()),
        "num": float(finite.size),
        "sum": float(finite.sum()),
        "sum_squares": float(np.square(finite).sum()),
        "bucket_limit": limits[shown].tolist(),
        "bucket": counts[shown].astype(float).tolist(),
    }


_COLOURS = {1: 0, 3: 2, 4: 6}


def png(image: Array) -> bytes:
    """An image, uint8 of (height, width, 1, 3 or 4), as a PNG file."""
    height, width, channels = image.shape
    rows = np.zeros((height, 1 + width * channels), np.uint8)  # each begins with its filter: none
    rows[:, 1:] = image.reshape(height, -1)
    header = struct.pack(">IIBBBBB", width, height, 8, _COLOURS[channels], 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows.tobytes())), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, data) for kind, data in chunks)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
