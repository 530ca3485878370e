"""Trial runs that show which state may be updated in place, bit for bit."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flow2onnx_runtime.buffers import Buffer, copy_to_buffer, new_buffer
from flow2onnx_runtime.dtypes import Element, element_named
from flow2onnx_runtime.manifest import NEXT
from flow2onnx_runtime.program import Program, TensorInfo
from flow2onnx_runtime.synthetic import random_array

__all__ = ["verify_in_place"]

_FREE_SIZE = 2  # of a dimension that has none


def verify_in_place(program: Program, names: Iterable[str], most_bytes: int) -> frozenset[str]:
    """Those of `names` whose next value is the same bits in place as in a buffer of its own.

    The model runs each way, on made-up numbers and on copies; the state is not touched. All are
    returned untried if the state the program uses has more bytes than `most_bytes`, or if the
    model draws random numbers, and none if it does not run or its results differ too.
    """
    wanted = set(program.reads).intersection(program.writes).intersection(names)
    if not wanted or program.options.captures:
        return frozenset()
    if sum(_nbytes(program, name) for name in {*program.reads, *program.writes}) > most_bytes:
        return frozenset(wanted)
    feeds = _made_up(program)
    try:
        apart, again = _outputs(program, feeds, set()), _outputs(program, feeds, set())
        together = _outputs(program, feeds, wanted)
    except Exception:  # the runtime's exceptions have no common base
        return frozenset()
    if apart != again:
        return frozenset(wanted)
    same = {name for name, value in apart.items() if value == together[name]}
    others = apart.keys() - {NEXT + name for name in wanted}
    return frozenset(n for n in wanted if NEXT + n in same) if others <= same else frozenset()


def _made_up(program: Program) -> dict[str, NDArray[Any]]:
    """A value for each input: reals around 1, of whole numbers the first two, state as it is."""
    generator, sizes = np.random.default_rng(0), dict[str, int]()
    made = {}
    for info in program.inputs:
        if info.name in program.state and not _is_real(program.state.dtype(info.name)):
            made[info.name] = program.state.read(info.name)
    for name in program.reads:
        made.setdefault(name, _numbers(generator, program.state.shape(name), _kind(program, name)))
    for feed in program.feeds:
        made[feed.name] = _numbers(generator, _shape(feed, sizes), element_named(feed.element))
    return made


def _numbers(
    generator: np.random.Generator, shape: Sequence[int], element: Element
) -> NDArray[Any]:
    return random_array(
        generator, shape, element.numpy, reals=(0.5, 1.5), is_bfloat16=element.is_bits
    )


def _outputs(
    program: Program, values: dict[str, NDArray[Any]], in_place: set[str]
) -> dict[str, bytes]:
    """The outputs of one run, as bytes by name."""
    binding, place = program.session.io_binding(), program.options.device
    held: dict[str, Buffer] = {}
    for info in (*program.inputs, *program.outputs):
        target = info.name.removeprefix(NEXT)
        if info.name in values:
            held[info.name] = copy_to_buffer(place, values[info.name], element_named(info.element))
            binding.bind_ortvalue_input(info.name, held[info.name].value)
        elif info.name.startswith(NEXT) and target in in_place:
            held[info.name] = held[target]
            binding.bind_ortvalue_output(info.name, held[target].value)
        elif info.name.startswith(NEXT) and target in program.state:
            shape, kind = program.state.shape(target), _kind(program, target)
            held[info.name] = new_buffer(place, shape, kind)
            binding.bind_ortvalue_output(info.name, held[info.name].value)
        else:
            binding.bind_output(info.name, "cpu")
    program.session.run_with_iobinding(binding, program.lane_options())
    return _read(program, binding, held)


def _read(program: Program, binding: Any, held: dict[str, Buffer]) -> dict[str, bytes]:
    made = binding.get_outputs_as_ortvaluevector()
    found = {}
    for position, info in enumerate(program.outputs):
        if info.name in held:
            found[info.name] = held[info.name].read().tobytes()
        elif not element_named(info.element).is_bits:
            found[info.name] = np.array(made[position].numpy()).tobytes()
    return found


def _shape(feed: TensorInfo, sizes: dict[str, int]) -> tuple[int, ...]:
    return tuple(
        size if isinstance(size, int) else sizes.setdefault(size, _FREE_SIZE) for size in feed.shape
    )


def _nbytes(program: Program, name: str) -> int:
    return int(np.prod(program.state.shape(name), dtype=np.int64)) * _kind(program, name).size


def _kind(program: Program, name: str) -> Element:
    return element_named(program.state.element(name))


def _is_real(dtype: "np.dtype[Any]") -> bool:
    return bool(np.issubdtype(dtype, np.floating))
