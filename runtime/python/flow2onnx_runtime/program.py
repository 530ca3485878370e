"""One model bound to a state: runs it with as little work per call as the runtime allows."""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from flow2onnx_runtime.assignment import open_capturing
from flow2onnx_runtime.buffers import new_buffer
from flow2onnx_runtime.dtypes import as_bits, element_named
from flow2onnx_runtime.errors import FeedError, OptionsError, RunError, StateError
from flow2onnx_runtime.index_ranges import IndexRange
from flow2onnx_runtime.manifest import NEXT
from flow2onnx_runtime.model_check import OwnModel
from flow2onnx_runtime.options import DEFAULT_OPTIONS, Model, Options, open_session
from flow2onnx_runtime.providers import CPU
from flow2onnx_runtime.run_errors import run_error
from flow2onnx_runtime.state import State
from flow2onnx_runtime.tensor_info import TensorInfo, tensor_info
from flow2onnx_runtime.transfers import BoundFeed, CopiedFeed, OpenResult
from flow2onnx_runtime.uploads import Uploads

__all__ = ["DeviceFeeds", "Program", "TensorInfo"]

# Up to this size copying a feed costs less than binding the caller's array anew.
_COPY_LIMIT = 16 * 1024


@dataclass(frozen=True)
class DeviceFeeds:
    """One OrtValue for each feed, checked and where the program runs, or on its way there."""

    values: Sequence[Any]
    uploads: Uploads | None = None


class Program:
    """A model whose state lives in `state`, ready to run.

    Inputs named like a tensor of the state read it; an output ``next/v`` is the next value of
    ``v``. All other inputs are `feeds`, all other outputs `results`, in the model's order. A
    program that touches a state takes its lock while it runs; one that does not may run in any
    number of threads at once.

    `in_place` names state whose next value goes into the buffer of the present one: only what is
    proven to be written after its last reader, and after what inputs can make fail. A run that
    lacks memory or is stopped leaves it torn, see `State`. None is updated so while runs are
    captured as a CUDA graph, which runs the first step three times, nor with `native` of the
    options, whose graph is another one than was proven.

    `links` are values by name, of a fixed shape, that programs hand to each other: an output of
    such a name is written there, an input reads it there, and neither is a feed or a result.

    Raises `BundleError` for a model that cannot be opened or has inputs that are no tensors,
    `StateError` if the model's idea of a state tensor is another, `ProviderError`.
    """

    def __init__(
        self,
        model: Model | OwnModel,
        state: State | None = None,
        options: Options = DEFAULT_OPTIONS,
        *,
        name: str | None = None,
        initializers: Mapping[str, Any] | None = None,
        in_place: Collection[str] = (),
        links: Mapping[str, Any] | None = None,
    ) -> None:
        self.links: Mapping[str, Any] = links or {}
        self.name = name or ("model" if isinstance(model, bytes | OwnModel) else Path(model).name)
        self.ranges: Mapping[str, IndexRange] = {}  # by feed, the numbers that it may hold
        self.options = options
        self.state = State() if state is None else state
        self._pinned = initializers  # the session reads them where they are
        self.session = (
            open_capturing(self.name, model, options, initializers)
            if options.captures
            else open_session(model, options, initializers)
        )
        inputs = [tensor_info(self.name, arg) for arg in self.session.get_inputs()]
        outputs = [tensor_info(self.name, arg) for arg in self.session.get_outputs()]
        self.inputs, self.outputs = tuple(inputs), tuple(outputs)
        given = (*self.state, *self.links)
        self.feeds = tuple(i for i in inputs if i.name not in given)
        self.results = tuple(
            o for o in outputs if not self._is_next(o) and o.name not in self.links
        )
        self.reads = tuple(i.name for i in inputs if i.name in self.state)
        self.writes = tuple(o.name[len(NEXT) :] for o in outputs if self._is_next(o))
        is_on_host, reads_host = options.device[0] == "cpu", _host_inputs(self.session)
        self.host_inputs = frozenset() if is_on_host else reads_host
        # a binding copies these to the memory of their provider, and sees no later writing
        others = frozenset(arg.name for arg in self.session.get_inputs()) - reads_host
        self.copied_inputs = others if is_on_host else reads_host
        for info in (*inputs, *outputs):
            self._check_state(info)
        if options.captures:
            self._check_fixed(*inputs, *outputs)
            self._check_no_host_inputs()
        self._lane_ids = count(1)
        self.read_mask = sum(self.state.bit(v) for v in self.reads)
        self._mask = self.read_mask | sum(self.state.bit(v) for v in self.writes)
        self._lanes: dict[tuple[int, bool], _Lane] = {}
        self.update_in_place(in_place)
        self._idle: list[_Lane] = []

    @property
    def touches_state(self) -> bool:
        """True if the model reads or writes any tensor of the state."""
        return bool(self._mask)

    def update_in_place(self, names: Iterable[str]) -> None:
        """From the next run on, update exactly these in their own buffers, as far as it may be."""
        with self.state.lock:
            both = frozenset(self.reads).intersection(self.writes)
            is_safe = not (self.options.captures or self.options.native)  # it is another graph
            self.in_place = both.intersection(names if is_safe else ())
            self.write_mask = sum(self.state.bit(v) for v in self.writes if v not in self.in_place)
            self._lanes.clear()

    def run(
        self,
        arrays: Sequence[NDArray[Any]] | DeviceFeeds,
        *,
        commit: bool = True,
        guard: Callable[[list[NDArray[Any]]], None] | None = None,
        keep: int = 0,
        run_options: Any = None,
    ) -> list[NDArray[Any]]:
        """Run once on one array per feed; returns one new array per result.

        Any strides are accepted, shapes and dtypes must match. If `commit`, the state takes its
        next values once the run has succeeded, but for the tensors whose bits are in `keep`;
        without, or if the run fails, it stays as it was, as it also does if `guard`, which sees the
        results first, raises. Of what is updated in place, a failed run leaves neither the old
        values nor the new ones, and a guard comes too late. An interrupt leaves the state as before
        the run or as after it. `run_options`, an `onnxruntime.RunOptions`, stands in for the
        program's own where no state is touched: another thread may stop the run through it.
        Raises `FeedError` for arrays that do not fit, `RunError` if the runtime fails.
        """
        if not isinstance(arrays, DeviceFeeds):
            arrays = self.check_feeds(arrays)
        if not self._mask:
            results = self._run_stateless(arrays, run_options)
            if guard is not None:
                guard(results)
            return results
        state = self.state
        with state.lock:
            if state.torn:
                state.check_whole(self.reads)
            key = state.mask & self._mask, commit or not self.in_place
            lane = self._lanes.get(key)
            if lane is None:
                lane = self._lanes[key] = _Lane(self, self.in_place, commit)
            flips = self.write_mask & ~keep if commit else 0
            if guard is None:
                return lane.run(arrays, flips=flips)
            results = lane.run(arrays)
            guard(results)
            state.mask ^= flips
        return results

    def release(self) -> None:
        """Drop the buffers kept for the next run, which refer to the program in turn.

        A program that is dropped after this is freed at once; one that goes on makes new ones.
        """
        with self.state.lock:
            self._lanes.clear()
        self._idle.clear()

    def arrange(self, arrays: Sequence[Any], named: Mapping[str, Any]) -> list[Any]:
        """Positional and named arrays in the order of `feeds`; `FeedError` if that is not all."""
        if not named and len(arrays) == len(self.feeds):
            return list(arrays)
        names = [feed.name for feed in self.feeds]
        given = dict(zip(names, arrays, strict=False)) | dict(named)
        if len(arrays) + len(named) != len(names) or len(given) != len(names):
            raise FeedError(
                f"{self.name} takes {len(names)} arrays ({', '.join(names) or 'none'}), "
                f"got {len(arrays)} by position and {', '.join(named) or 'none'} by name",
                hint="give each input once",
            )
        for name in named:
            if name not in names:
                raise FeedError(f"{self.name} has no input {name}", hint=f"inputs: {names}")
        return [given[name] for name in names]

    def by_name(self, results: Sequence[NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """The list that `run` returned, by the results' names."""
        return {info.name: value for info, value in zip(self.results, results, strict=True)}

    def _run_stateless(
        self, arrays: Sequence[NDArray[Any]] | DeviceFeeds, run_options: Any
    ) -> list[NDArray[Any]]:
        # One lane per run under way: list.pop and append are atomic.
        try:
            lane = self._idle.pop()
        except IndexError:
            lane = _Lane(self)
        try:
            return lane.run(arrays, run_options)
        finally:
            self._idle.append(lane)

    def lane_options(self) -> Any:
        """RunOptions for one more lane, or None: the run entries, and a CUDA graph of its own.

        A graph holds the addresses it was captured with, which are those of one lane.
        """
        entries = dict(self.options.run_entries)
        if self.options.captures:
            entries["gpu_graph_id"] = str(next(self._lane_ids))
        if not entries:
            return None
        run_options = ort.RunOptions()
        for key, value in entries.items():
            run_options.add_run_config_entry(key, value)
        return run_options

    def _check_fixed(self, *tensors: TensorInfo) -> None:
        for info in tensors:
            if not info.is_static:
                raise OptionsError(
                    f"{self.name} cannot be captured as a CUDA graph: the shape of {info.name} "
                    f"varies, {info.shape}",
                    hint="give it a fixed shape, or leave enable_cuda_graph off",
                )

    def _check_no_host_inputs(self) -> None:
        if self.host_inputs:
            raise OptionsError(
                f"{self.name} cannot be captured as a CUDA graph: the host reads "
                f"{', '.join(sorted(self.host_inputs))}, which a replay would not see change",
                hint="leave enable_cuda_graph off, or make them constants",
            )

    def feed_place(self, feed: TensorInfo) -> tuple[str, int]:
        """Where a feed is read: some, such as shapes and conditions, on the host everywhere."""
        return ("cpu", 0) if feed.name in self.host_inputs else self.options.device

    def _is_next(self, output: TensorInfo) -> bool:
        return output.name.startswith(NEXT) and output.name[len(NEXT) :] in self.state

    def _check_state(self, info: TensorInfo) -> None:
        name = info.name[len(NEXT) :] if self._is_next(info) else info.name
        if name not in self.state:
            return
        have = (self.state.element(name), self.state.shape(name))
        if have[0] != info.element or not info.fits(have[1], {}):
            raise StateError(
                f"{self.name}: {info.name} is {info.element} {info.shape}, "
                f"the state's {name} is {have[0]} {have[1]}",
                hint="the model and the state come from different jobs",
            )

    def check_feeds(self, arrays: Sequence[NDArray[Any]]) -> Sequence[NDArray[Any]]:
        """The arrays as `run` takes them; raises `FeedError` for those that do not fit."""
        if len(arrays) != len(self.feeds):
            names = ", ".join(feed.name for feed in self.feeds) or "none"
            raise FeedError(
                f"{self.name} takes {len(self.feeds)} arrays, got {len(arrays)}",
                hint=f"its inputs are {names}",
            )
        for feed, array in zip(self.feeds, arrays, strict=True):
            # The common case costs two comparisons; everything else is worked out apart.
            if (
                type(array) is not np.ndarray
                or array.shape != feed.shape
                or array.dtype != feed.dtype
            ):
                arrays = self._checked_slowly(arrays)
                break
        if self.ranges:
            self._check_ranges(arrays)
        return arrays

    def _check_ranges(self, arrays: Sequence[NDArray[Any]]) -> None:
        for feed, array in zip(self.feeds, arrays, strict=True):
            self.check_range(feed, array)

    def check_range(self, feed: TensorInfo, array: NDArray[Any]) -> None:
        """Raise `FeedError` for numbers that the feed may not hold."""
        known = self.ranges.get(feed.name)
        found = known.complaint(feed.name, array) if known is not None else None
        if found is not None:
            message, hint = found
            layer = f", in {known.layer}" if known is not None and known.layer else ""
            raise FeedError(f"{self.name}: {message}{layer}", hint=hint)

    def _checked_slowly(self, arrays: Sequence[Any]) -> list[NDArray[Any]]:
        sizes: dict[str, int] = {}
        return [
            self.fit_feed(feed, value, sizes)
            for feed, value in zip(self.feeds, arrays, strict=True)
        ]

    def fit_feed(self, feed: TensorInfo, value: Any, sizes: dict[str, int]) -> NDArray[Any]:
        """A value as the array of a feed; `sizes` collects the sizes of the symbols."""
        array = np.asarray(value)
        element = element_named(feed.element)
        if not element.takes(array.dtype):
            raise FeedError(
                f"{self.name}: {feed.name} is {feed.element}, got {array.dtype}",
                hint=f"convert it: array.astype({feed.dtype.name!r})",
            )
        if not feed.fits(array.shape, sizes):
            known = ", ".join(f"{symbol}={size}" for symbol, size in sizes.items())
            raise FeedError(
                f"{self.name}: {feed.name} has shape {feed.shape}, got {array.shape}"
                + (f" where {known}" if known else ""),
                hint="the number of dimensions and every fixed or repeated size must match",
            )
        return as_bits(array, element)


_OF_A_NODE = re.compile(r"while running \w+ node")
_AT_ANY_TIME = re.compile("alloc|memory|terminat", re.IGNORECASE)


def _may_come_late(message: str) -> bool:
    """True if a run may have failed after it updated state: not by what a node was given."""
    return not _OF_A_NODE.search(message) or bool(_AT_ANY_TIME.search(message))


class _Lane:
    """An IOBinding with all that a run touches besides the state: feed and result buffers."""

    def __init__(
        self, program: Program, in_place: frozenset[str] = frozenset(), commits: bool = True
    ) -> None:
        self._in_place, self._commits = in_place, commits
        self._program = program
        self._binding = program.session.io_binding()
        # The method in C itself, in place of that which wraps it: an interrupt that such a call
        # raises came after the run, and not before it.
        self._call = program.session._sess.run_with_iobinding
        self._handle = self._binding._iobinding
        self._run_options = program.lane_options()
        self._place = program.options.device
        # A captured graph may not reach into host memory.
        on_host = program.options.host_results and not program.options.captures
        self._result_place = ("cpu", 0) if on_host else self._place
        self._bind_reads()
        self._uploads = Uploads(self._place)
        self._device_feeds: list[CopiedFeed] = []
        self._fills: list[Callable[[NDArray[Any]], None]] | None = None  # once arrays come
        self._open: list[str] = []  # outputs whose shape only a run tells
        self._dropped: list[str] = []  # next values that nobody takes
        self._fetches = self._bind_outputs()

    def run(
        self,
        arrays: Sequence[NDArray[Any]] | DeviceFeeds,
        run_options: Any = None,
        *,
        flips: int = 0,
    ) -> list[NDArray[Any]]:
        """Run once; as soon as that has succeeded, flip these bits of the state's mask."""
        self._feed(arrays)
        for name in self._open:
            # An output left bound keeps the last run's shape and refuses any other.
            self._binding.bind_output(name, "cpu")
        state, options = self._program.state, run_options or self._run_options
        try:
            self._call(self._handle, options)
        except Exception as error:  # the runtime's exceptions have no common base
            raise self._run_error(error) from error
        except BaseException:  # an interrupt, which came while the runtime was computing
            if self._in_place and self._commits:
                state.mask ^= flips  # the rest has its next values already
            raise
        state.mask ^= flips
        results = [fetch() for fetch in self._fetches]
        for name in self._dropped:
            self._binding.bind_output(name, *self._place)  # which lets go of what was made
        return results

    def _feed(self, arrays: Sequence[NDArray[Any]] | DeviceFeeds) -> None:
        for name in self._copied_reads:
            self._binding.bind_ortvalue_input(name, self._program.state.current(name))
        for name in self._copied_links:
            self._binding.bind_ortvalue_input(name, self._program.links[name])
        if isinstance(arrays, DeviceFeeds):
            self._feed_from_device(arrays)
            return
        if self._fills is None:
            self._fills = self._new_fills()
        for fill, array in zip(self._fills, arrays, strict=True):
            fill(array)
        if self._place[0] != "cpu":
            self._uploads.finish()

    def _feed_from_device(self, feeds: DeviceFeeds) -> None:
        if feeds.uploads is not None:
            feeds.uploads.finish()
        if self._program.options.captures:
            self._copy_to_graph(feeds.values)
            return
        for feed, value in zip(self._program.feeds, feeds.values, strict=True):
            self._binding.bind_ortvalue_input(feed.name, value)
        self._fills = None  # their buffers are bound no more

    def _copy_to_graph(self, values: Sequence[Any]) -> None:
        """Copy feeds on the device to where a captured graph reads them."""
        if self._fills is None:
            self._fills = self._new_fills()
        for own, value in zip(self._device_feeds, values, strict=True):
            own.take(value)
        self._uploads.finish()

    def _new_fills(self) -> list[Callable[[NDArray[Any]], None]]:
        self._device_feeds.clear()
        return [self._fill(feed) for feed in self._program.feeds]

    def _run_error(self, error: Exception) -> RunError:
        hint = "the state is as it was"
        if self._in_place and self._commits and _may_come_late(str(error)):
            self._program.state.torn |= self._in_place
            hint = (
                f"{len(self._in_place)} tensors were being updated in place: load a saved state, "
                "or give them new values"
            )
        return run_error(self._program.name, error, self._place, hint)

    def _bind_reads(self) -> None:
        state = self._program.state
        self._copied_reads = [n for n in self._program.reads if n in self._program.copied_inputs]
        for name in self._program.reads:
            self._binding.bind_ortvalue_input(name, state.current(name))
        linked = [info.name for info in self._program.inputs if info.name in self._program.links]
        self._copied_links = [n for n in linked if n in self._program.copied_inputs]
        for name in linked:
            self._binding.bind_ortvalue_input(name, self._program.links[name])

    def _bind_outputs(self) -> list[Callable[[], NDArray[Any]]]:
        # In the model's order, so that a result's position in the binding is its position there.
        written = set(self._program.writes)
        fetches = []
        for position, info in enumerate(self._program.outputs):
            target = info.name[len(NEXT) :]
            if info.name.startswith(NEXT) and target in written:
                self._bind_next(info.name, target)
            elif info.name in self._program.links:
                self._binding.bind_ortvalue_output(info.name, self._program.links[info.name])
            else:
                fetches.append(self._fetch(info, position))
        return fetches

    def _bind_next(self, output: str, target: str) -> None:
        state = self._program.state
        if target not in self._in_place:
            self._binding.bind_ortvalue_output(output, state.other(target))
        elif self._commits:
            self._binding.bind_ortvalue_output(output, state.current(target))
        else:
            self._dropped.append(output)
            self._binding.bind_output(output, self._place[0], self._place[1])

    def _fill(self, feed: TensorInfo) -> Callable[[NDArray[Any]], None]:
        """A function that puts an array into the input `feed`."""
        if self._program.feed_place(feed)[0] != "cpu":
            slot = len(self._device_feeds)
            own = CopiedFeed(self._binding, feed, self._place, self._uploads, slot)
            self._device_feeds.append(own)
            return own.fill
        is_copied = feed.name in self._program.copied_inputs
        if feed.is_static and feed.nbytes <= _COPY_LIMIT and not is_copied:
            buffer = new_buffer(("cpu", 0), feed.sizes, element_named(feed.element))
            self._binding.bind_ortvalue_input(feed.name, buffer.value)
            return buffer.write
        return BoundFeed(self._binding, feed).fill

    def _fetch(self, info: TensorInfo, position: int) -> Callable[[], NDArray[Any]]:
        """A function that copies the output `info` out after a run."""
        # The runtime shows an output of unknown rank as one of rank 0; only a model made for a
        # state promises that its ranks are known.
        if info.is_static and (info.shape or self._program.touches_state):
            buffer = new_buffer(self._result_place, info.sizes, element_named(info.element))
            self._binding.bind_ortvalue_output(info.name, buffer.value)
            return buffer.read
        self._binding.bind_output(info.name, "cpu")
        self._open.append(info.name)
        return OpenResult(self._binding, position, element_named(info.element)).read


def _host_inputs(session: Any) -> frozenset[str]:
    """The inputs that a session reads on the host; the others in a device's memory."""
    if not hasattr(session, "get_input_memory_infos"):  # which older runtimes lack
        is_on_host = session.get_providers()[0] == CPU.name
        return frozenset(arg.name for arg in session.get_inputs() if is_on_host)
    infos = zip(session.get_inputs(), session.get_input_memory_infos(), strict=True)
    return frozenset(arg.name for arg, memory in infos if memory.name == "Cpu")
