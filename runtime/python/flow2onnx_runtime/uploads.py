"""Arrays on their way to a device: through pinned memory, on a stream beside what runs there."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from flow2onnx_runtime.buffers import Buffer
from flow2onnx_runtime.cuda_runtime import PinnedMemory, copy_stream

__all__ = ["Uploads"]


class Uploads:
    """Copies to tensors of one device, which nobody may read before `finish`.

    A slot is whose pinned memory an array goes through; the array may change once `begin` returns.
    Where CUDA cannot be called, `begin` does the whole copy.
    """

    def __init__(self, place: tuple[str, int]) -> None:
        self._stream = copy_stream(place)
        self._pinned: dict[int, PinnedMemory] = {}
        self._busy: set[int] = set()  # slots whose memory is still being read

    @property
    def is_beside(self) -> bool:
        """True if copies go on while the host does something else."""
        return self._stream is not None

    def begin(self, slot: int, target: Buffer, array: NDArray[Any]) -> None:
        """Begin to copy an array to a tensor of its shape."""
        if self._stream is None:
            target.write(array)
            return
        if slot in self._busy:
            self.finish()
        if array.nbytes == 0:
            return
        held = self._pinned.get(slot)
        if held is None or held.size < array.nbytes:
            held = self._pinned[slot] = PinnedMemory(array.nbytes)
        np.copyto(held.like(array), array, casting="no")
        self._stream.copy(target.value.data_ptr(), held.address, array.nbytes)
        self._busy.add(slot)

    def move(self, slot: int, target: Buffer, source: Any, size: int) -> None:
        """Begin to copy so many bytes from an OrtValue of the same device."""
        assert self._stream is not None, "only where copies go on beside"
        if size:
            self._stream.copy(target.value.data_ptr(), source.data_ptr(), size)
            self._busy.add(slot)

    def finish(self) -> None:
        """Wait until all that was begun is there."""
        if self._stream is not None and self._busy:
            self._stream.wait()
        self._busy.clear()
