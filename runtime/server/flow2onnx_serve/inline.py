"""Models so quick that threads cost more than they bring."""

from dataclasses import replace
from time import perf_counter

from flow2onnx_runtime import FlowError, Options, Program
from flow2onnx_runtime.assignment import nodes_of, recording
from flow2onnx_runtime.options import Model
from flow2onnx_runtime.providers import CPU

from flow2onnx_serve.synthetic import batch_axis, synthetic_inputs

__all__ = ["inline_rows", "open_program"]

_QUICK = 1e-3  # seconds of a run of one row, below which a pool of threads only spins
_INLINE = 3e-4  # seconds of a run that the event loop may make itself: as long as two requests
_TRIES = 20
# Operators whose work depends on the values that they are given, not on their sizes alone.
_OPEN_ENDED = {"ConstantOfShape", "Expand", "If", "Loop", "Multinomial", "NonZero", "OneHot", "Pad",
               "Range", "Resize", "Scan", "Tile", "Upsample"}  # fmt: skip


def open_program(name: str, model: Model, options: Options) -> tuple[Program, bool]:
    """A program of this name, and True if it is a quick one, which then has no threads of its own.

    A quick one runs on the processor and always takes about as long: every size but the batch is
    fixed.
    """
    program = Program(model, None, recording(options), name=name)
    if options.provider_names != CPU.names:
        return program, False
    if not _is_steady(program) or not _is_within(_QUICK, program, 1):
        return program, False
    if not options.shared_threads and options.intra_op_threads != 1:
        program.release()
        program = Program(model, None, replace(options, intra_op_threads=1), name=name)
    return program, True


def inline_rows(program: Program, rows: int) -> int:
    """How many rows of a quick program, up to `rows`, the event loop may compute itself."""
    if rows == 1 and batch_axis(program) is not None:
        return 0  # requests of any number of rows are run one by one
    while rows and not _is_within(_INLINE, program, rows):
        rows //= 2
    return rows


def _is_steady(program: Program) -> bool:
    nodes = nodes_of(program.session)
    if nodes is None or any(node.op_type in _OPEN_ENDED for node in nodes):
        return False
    axis = batch_axis(program)
    sizes = (size for info in program.feeds for size in info.shape)
    return all(isinstance(size, int) or size == axis for size in sizes)


def _is_within(limit: float, program: Program, rows: int) -> bool:
    """True if a run takes at most `limit` seconds, at least once while the machine is busy."""
    arrays = synthetic_inputs(program, rows)
    try:
        program.run(arrays)
        end = perf_counter() + _TRIES * limit
        while (began := perf_counter()) < end:
            program.run(arrays)
            if perf_counter() - began <= limit:
                return True
    except FlowError:  # not on synthetic_array-up values
        return False
    return False
