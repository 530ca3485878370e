"""TensorBoard's event files: records with checksums, around summaries of numbers.

protobuf comes with onnxruntime, which needs it; it is imported only by who imports this module.

>>> import tempfile
>>> with tempfile.TemporaryDirectory() as folder, ScalarWriter(folder) as writer:
...     writer.scalar("loss", 0.5, step=1)
...     len(writer.path.read_bytes())
95
"""

import os
import socket
import struct
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flow2onnx_runtime.callbacks import Callback
from flow2onnx_runtime.closeable import Closeable
from flow2onnx_runtime.errors import OptionsError
from flow2onnx_runtime.messages import messages
from flow2onnx_runtime.world import launched_world

if TYPE_CHECKING:
    from flow2onnx_runtime.loop import Loop

__all__ = ["Event", "ScalarWriter", "Summary", "TensorBoardLog", "add_value", "checksum"]

_POLYNOMIAL = 0x82F63B78  # Castagnoli's, bits reversed
_MASK = 0xA282EAD8
_MESSAGES = messages(
    "oneflow.summary",
    {
        "TensorShapeProto": "repeated TensorShapeProto.Dim dim = 2",
        "TensorShapeProto.Dim": "required int64 size = 1; optional string name = 2",
        "TensorProto": "required TensorDataType dtype = 1; "
        "required TensorShapeProto tensor_shape = 2; optional int32 version_number = 3; "
        "optional bytes tensor_content = 4; repeated float float_val = 5 [packed]; "
        "repeated double double_val = 6 [packed]; repeated int32 int_val = 7 [packed]; "
        "repeated bytes string_val = 8; repeated int64 int64_val = 9 [packed]; "
        "repeated bool bool_val = 10 [packed]",
        "SummaryMetadata": "required PluginData plugin_data = 1; optional string display_name = 2; "
        "optional string summary_description = 3",
        "PluginData": "required string plugin_name = 1; optional bytes content = 2",
        "HistogramProto": "required double min = 1; required double max = 2; "
        "required double num = 3; required double sum = 4; required double sum_squares = 5; "
        "repeated double bucket_limit = 6 [packed]; repeated double bucket = 7 [packed]",
        "Image": "required int32 height = 1; required int32 width = 2; "
        "required int32 colorspace = 3; required bytes encoded_image_string = 4",
        "Summary": "repeated SummaryValue value = 1",
        "SummaryValue": "optional string node_name = 7; required string tag = 1; "
        "optional SummaryMetadata metadata = 9; oneof:value float simple_value = 2; "
        "oneof:value bytes obsolete_old_style_histogram = 3; oneof:value Image image = 4; "
        "oneof:value HistogramProto histo = 5; oneof:value TensorProto tensor = 8",
        "Event": "required double wall_time = 1; optional int64 step = 2; "
        "oneof:what string file_version = 3; oneof:what bytes graph_def = 4; "
        "oneof:what Summary summary = 5; oneof:what bytes meta_graph_def = 9",
    },
    {"TensorDataType": {"DT_INVALID": 0, "DT_FLOAT": 1, "DT_STRING": 7}},
)
Event, Summary = _MESSAGES["Event"], _MESSAGES["Summary"]


def _table() -> list[int]:
    found = []
    for byte in range(256):
        for _ in range(8):
            byte = (byte >> 1) ^ (_POLYNOMIAL if byte & 1 else 0)
        found.append(byte)
    return found


_TABLE = _table()


def checksum(data: bytes) -> int:
    """The masked CRC-32C that stands behind the parts of a record."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    crc ^= 0xFFFFFFFF
    return (((crc >> 15) | (crc << 17)) + _MASK) & 0xFFFFFFFF


def _record(data: bytes) -> bytes:
    length = struct.pack("<Q", len(data))
    sums = (struct.pack("<I", checksum(part)) for part in (length, data))
    return length + next(sums) + data + next(sums)


class ScalarWriter(Closeable):
    """Writes one event file into a folder; each event is in the file when its call returns."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        where = Path(folder)
        where.mkdir(parents=True, exist_ok=True)
        name = f"events.out.tfevents.{int(time.time())}.{socket.gethostname()}.{os.getpid()}"
        self.path = _free(where, name)
        self._file = self.path.open("xb")
        self._write(Event(wall_time=time.time(), file_version="brain.Event:2"))

    def scalar(self, tag: str, value: float, step: int) -> None:
        """Add a number to the curve `tag`."""
        summary = Summary()
        add_value(summary, tag, "scalars").simple_value = value
        self.add(summary, step)

    def add(self, summary: Any, step: int) -> None:
        """Add a summary as it is."""
        self._write(Event(wall_time=time.time(), step=step, summary=summary))

    def flush(self) -> None:
        """Bring everything to the disk."""
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file; a second call does nothing."""
        self._file.close()

    def _write(self, event: Any) -> None:
        self._file.write(_record(event.SerializeToString()))
        self._file.flush()


def _free(folder: Path, name: str) -> Path:
    """The path of that name, or numbered where there is such a file already."""
    path, number = folder / name, 0
    while path.exists():
        number += 1
        path = folder / f"{name}.{number}"
    return path


def add_value(summary: Any, tag: str, plugin: str) -> Any:
    """A new value of a summary, for a plug-in of TensorBoard."""
    value = summary.value.add(tag=tag)
    value.metadata.plugin_data.plugin_name = plugin
    return value


class TensorBoardLog(Callback):
    """Write the numbers of each epoch to event files in a folder, at the step it ended with.

    With `every`, also the losses of each so manieth batch, as ``batch/loss``.
    """

    def __init__(self, folder: str | os.PathLike[str], every: int | None = None) -> None:
        if every is not None and (isinstance(every, bool) or type(every) is not int or every < 1):
            raise OptionsError(f"every is {every!r}", hint="give a number of at least 1")
        self._folder, self._every = folder, every
        self._writer: ScalarWriter | None = None

    def on_fit_begin(self, loop: "Loop") -> None:
        """Begin a file; of several processes the first writes it."""
        if launched_world().rank == 0:
            self._writer = ScalarWriter(self._folder)

    def on_batch_end(self, loop: "Loop", results: Mapping[str, Any]) -> None:
        """Write the losses of a batch."""
        if self._writer is None or not self._every or loop.batch % self._every:
            return
        for name, value in loop.numbers(results).items():
            self._writer.scalar(f"batch/{name}", value, loop.step)

    def on_epoch_end(self, loop: "Loop", row: dict[str, float]) -> None:
        """Write a row."""
        for name, value in row.items():
            if self._writer is not None and name not in ("epoch", "step"):
                self._writer.scalar(name, value, int(row["step"]))

    def on_fit_end(self, loop: "Loop") -> None:
        """Close the file."""
        if self._writer is not None:
            self._writer.close()
