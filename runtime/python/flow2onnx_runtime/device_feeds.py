"""Feeds copied to a device before the run that takes them, while another one runs."""

from collections.abc import Sequence
from itertools import cycle
from typing import Any

from numpy.typing import NDArray

from flow2onnx_runtime.buffers import Buffer, new_buffer
from flow2onnx_runtime.dtypes import element_named
from flow2onnx_runtime.program import DeviceFeeds, Program

__all__ = ["FeedBuffers"]


class FeedBuffers:
    """So many sets of feed buffers of a program on its device, filled in turn.

    A set is free again once the run that took it is over. On the host the arrays themselves are
    bound, and nothing is copied; a captured graph reads from its own addresses only.
    """

    def __init__(self, program: Program, sets: int, *, always: bool = False) -> None:
        place = program.options.device
        self._copies = always or (place[0] != "cpu" and not program.options.captures)
        self._program, self._place = program, place
        self._sets = cycle([dict[int, tuple[Any, Buffer]]() for _ in range(sets)])

    def put(self, arrays: Sequence[NDArray[Any]]) -> Sequence[NDArray[Any]] | DeviceFeeds:
        """The arrays as `Program.run` takes them, on the device if that is another place."""
        checked = self._program.check_feeds(arrays)
        if not self._copies:
            return checked
        held = next(self._sets)
        for i, (feed, array) in enumerate(zip(self._program.feeds, checked, strict=True)):
            if i not in held or held[i][0] != array.shape:
                buffer = new_buffer(self._place, array.shape, element_named(feed.element))
                held[i] = array.shape, buffer
            held[i][1].write(array)
        return DeviceFeeds([held[i][1].value for i in range(len(checked))])
