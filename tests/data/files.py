"""Records and images for the tests of this folder."""

import io
import struct

import numpy as np
from PIL import Image

from flow2onnx.data.ofrecord import OFRecordWriter


def png(array):
    file = io.BytesIO()
    Image.fromarray(array[..., 0] if array.shape[-1] == 1 else array).save(file, "PNG")
    return file.getvalue()


def photo(seed, height=12, width=10, channels=3):
    return np.random.default_rng(seed).integers(0, 256, (height, width, channels), dtype=np.uint8)


def write_parts(folder, parts, suffix_length=-1):
    """Part files of the given lists of records."""
    folder.mkdir(parents=True, exist_ok=True)
    for i, records in enumerate(parts):
        with OFRecordWriter(folder / f"part-{str(i).zfill(max(suffix_length, 0))}") as writer:
            for record in records:
                writer.write(record)
    return str(folder)


def numbered(count, start=0):
    """Records that hold their number."""
    return [{"n": np.int32(start + i)} for i in range(count)]


def photos(count, start=0, **size):
    """Records of a PNG and a label."""
    return [
        {"encoded": png(photo(start + i, **size)), "class/label": np.int32((start + i) % 10)}
        for i in range(count)
    ]


def framed(body):
    return struct.pack("<q", len(body)) + body
