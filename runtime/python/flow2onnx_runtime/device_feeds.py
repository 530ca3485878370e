"""Feeds copied to a device before the run that takes them, while another one runs."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import cycle
from typing import Any

from numpy.typing import NDArray

from flow2onnx_runtime.buffers import Buffer, new_buffer
from flow2onnx_runtime.dtypes import element_named
from flow2onnx_runtime.program import DeviceFeeds, Program
from flow2onnx_runtime.uploads import Uploads

__all__ = ["FeedBuffers"]


@dataclass(frozen=True)
class _Set:
    """The feeds of one run: by position its shape and its buffer, and what is on the way there."""

    uploads: Uploads
    buffers: dict[int, tuple[tuple[int, ...], Buffer]] = field(default_factory=dict)


class FeedBuffers:
    """So many sets of feed buffers of a program on its device, filled in turn.

    A set is free again once the run that took it is over. The arrays are on their way when `put`
    returns, and may change; the run waits for them. On the host they are bound themselves, and
    nothing is copied.
    """

    def __init__(self, program: Program, sets: int, *, always: bool = False) -> None:
        place = program.options.device
        held = [_Set(Uploads(place)) for _ in range(sets)]
        # a captured graph reads from its own addresses, and a copy on the device costs little
        is_of_use = place[0] != "cpu" and (
            held[0].uploads.is_beside or not program.options.captures
        )
        self._copies = always or is_of_use
        self._program = program
        self._sets = cycle(held)

    def put(self, arrays: Sequence[NDArray[Any]]) -> Sequence[NDArray[Any]] | DeviceFeeds:
        """The arrays as `Program.run` takes them, on the device if that is another place."""
        checked = self._program.check_feeds(arrays)
        if not self._copies:
            return checked
        held = next(self._sets)
        for i, (feed, array) in enumerate(zip(self._program.feeds, checked, strict=True)):
            if i not in held.buffers or held.buffers[i][0] != array.shape:
                place = self._program.feed_place(feed)
                buffer = new_buffer(place, array.shape, element_named(feed.element))
                held.buffers[i] = array.shape, buffer
            if self._program.feed_place(feed)[0] == "cpu":
                held.buffers[i][1].write(array)
            else:
                held.uploads.begin(i, held.buffers[i][1], array)
        return DeviceFeeds([held.buffers[i][1].value for i in range(len(checked))], held.uploads)
