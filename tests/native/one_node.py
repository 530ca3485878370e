"""Models of one native operator as nobody would make them, run beside a reference.

Attributes and tensors are drawn at random, sound ones and others. The operators either compute
what numpy does or refuse by name. There are more cases for those who ask, best of a library that
is built with -fsanitize=address,undefined: FLOW2ONNX_RANDOM_CASES=20000 pytest tests/native.
"""

import os
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
from flow2onnx_native.abi import DOMAIN
from flow2onnx_native.library import NativeLibrary

from flow2onnx.graph.model import model_bytes
from tests.native.running import Array

CASES = int(os.environ.get("FLOW2ONNX_RANDOM_CASES", "250"))
EXTREMES = (-(2**63), -(2**62), -(2**31), -3, -1, 0, 1, 2, 3, 2**12, 2**16, 2**20, 2**24, 2**30,
            2**30 + 1, 2**31, 2**31 + 1, 2**32, 2**40, 2**61, 2**62, 2**63 - 1)  # fmt: skip

Attribute = int | Sequence[int] | Sequence[float]


def one_node(
    op_type: str, inputs: Mapping[str, Array], outputs: int = 1, **attributes: Attribute
) -> ir.Model:
    """A model of one node, of float outputs y, y1 and so on; inputs named "_" are left out."""
    values = [
        ir.Value(name=n, type=ir.TensorType(ir.DataType.from_numpy(x.dtype)))
        for n, x in inputs.items()
    ]
    made = [_attribute(name, value) for name, value in attributes.items()]
    operands = [None if str(v.name).startswith("_") else v for v in values]
    node = ir.Node(DOMAIN, op_type, operands, made, num_outputs=outputs)
    for i, value in enumerate(node.outputs):
        value.name, value.type = f"y{i or ''}", ir.TensorType(ir.DataType.FLOAT)
    given = [v for v in operands if v is not None]
    graph = ir.Graph(given, node.outputs, nodes=[node], opset_imports={"": 18, DOMAIN: 1})
    return ir.Model(graph, ir_version=9)


def _attribute(name: str, value: Attribute) -> ir.Attr:
    if isinstance(value, int):
        return ir.AttrInt64(name, value)
    if value and isinstance(value[0], float):
        return ir.AttrFloat32s(name, list(value))
    return ir.AttrInt64s(name, [int(v) for v in value])


def outcome(
    library: NativeLibrary,
    threads: int,
    op_type: str,
    inputs: Mapping[str, Array],
    *,
    in_place: str | None = None,
    outputs: int = 1,
    **attributes: Attribute,
) -> Array | str:
    """The first output, or the message of the refusal; `in_place`: the input it goes to."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 4
    options.enable_cpu_mem_arena = False  # one piece of memory for each tensor
    options.register_custom_ops_library(library.path)
    content = model_bytes(one_node(op_type, inputs, outputs, **attributes))
    feeds = {n: x for n, x in inputs.items() if not n.startswith("_")}
    try:
        opened = ort.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        if in_place is None:
            return np.asarray(opened.run(None, feeds)[0])
        binding = opened.io_binding()
        held = {n: ort.OrtValue.ortvalue_from_numpy(x.copy()) for n, x in feeds.items()}
        for name, value in held.items():
            binding.bind_ortvalue_input(name, value)
        binding.bind_ortvalue_output("y", held[in_place])
        opened.run_with_iobinding(binding)
        return np.array(held[in_place].numpy())  # outlives the value
    except Exception as error:  # the runtime's exceptions have no common base
        return str(error)


def is_refusal(op_type: str, message: str) -> bool:
    """True for the operator's own words, false for those that a runtime happens to have."""
    said = (f"{op_type}: ", "is missing", "Result buffer is not large enough", "has 9 dimensions")
    return any(words in message for words in said)


def disturbed(numbers: Sequence[int], draw: np.random.Generator) -> list[int]:
    """The same numbers but for a few, that are extreme or off by little; or fewer, or more."""
    found = list(numbers)
    for at in draw.integers(0, len(found), int(draw.integers(1, 4))):
        near = min(max(found[at] + int(draw.integers(-2, 3)), EXTREMES[0]), EXTREMES[-1])
        found[at] = near if draw.random() < 0.4 else int(draw.choice(np.array(EXTREMES, object)))
    if draw.random() < 0.05:
        return found[: int(draw.integers(0, len(found)))]
    return [*found, 1] if draw.random() < 0.03 else found


def numbers(draw: np.random.Generator, *shape: int) -> Array:
    return draw.standard_normal(shape).astype(np.float32)


def each_case(of: int, case: Callable[[np.random.Generator], bool]) -> int:
    """How many of the cases were computed; one that fails tells its seed."""
    computed = 0
    for seed in range(CASES):
        try:
            computed += case(np.random.default_rng([of, seed]))
        except Exception as error:
            error.add_note(f"case {seed} of {of}")
            raise
    return computed
