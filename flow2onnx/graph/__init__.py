"""The graph of a job: typed ONNX nodes, how they are made, checked and written.

With `passes` the only place that knows `onnx` and `onnx_ir`.
"""

from onnx_ir import Graph, Model, Node, Value

from flow2onnx.graph.alternatives import (
    BY_RULE,
    Choice,
    Lowering,
    Picks,
    Question,
    check_asked,
    choosing,
    lowering,
    lowerings,
    still_there,
    trial_bytes,
)
from flow2onnx.graph.batch import free_batch
from flow2onnx.graph.builder import Builder
from flow2onnx.graph.captures import captured, depth_of, read_by
from flow2onnx.graph.freeze import (
    NEWEST_OPSET,
    Placement,
    Signature,
    drop_inputs,
    drop_outputs,
    freeze,
    hold,
    refer,
    rename_outputs,
    signature,
    stamp,
)
from flow2onnx.graph.functions import folded, known_sequence, replay, standard_body, unrolled
from flow2onnx.graph.importing import (
    Handler,
    append_foreign,
    append_part,
    as_output,
    graph_from,
    graphs_of,
    input_dtype,
    input_shape,
    twin,
)
from flow2onnx.graph.in_place import in_place
from flow2onnx.graph.loading import ForeignModel, foreign_model
from flow2onnx.graph.marks import GradientOf, gradient_noted, note_gradient
from flow2onnx.graph.memory import byte_size, constant_bytes, most_alive
from flow2onnx.graph.model import (
    complete_content,
    copy_model,
    model_bytes,
    model_of,
    model_text,
    parse_model,
    to_proto,
)
from flow2onnx.graph.prefix import prefix_input
from flow2onnx.graph.quantizing import Scheme, fake_quantized, limits, scale_of, zero_point
from flow2onnx.graph.scattering import added_into, added_up, zeros
from flow2onnx.graph.seeds import is_drawn, reseed
from flow2onnx.graph.shaping import reshaped, unbroadcast
from flow2onnx.graph.stored import StoredModel, open_model, parameter_totals, typed_model
from flow2onnx.graph.sums import channel_sum, row_sum
from flow2onnx.graph.thaw import input_dtypes, number_tensors, plain_model, thaw
from flow2onnx.graph.training_info import (
    Algorithm,
    algorithm_of,
    with_training_info,
    without_training_info,
)
from flow2onnx.graph.types import (
    bounds_of,
    constant_of,
    dims,
    dtype_of,
    is_static,
    may_match,
    rank_of,
    size_of,
    sizes_of,
)
from flow2onnx.graph.verify import Report, kernel_gaps, verify

__all__ = [
    "BY_RULE",
    "NEWEST_OPSET",
    "Algorithm",
    "Builder",
    "Choice",
    "ForeignModel",
    "GradientOf",
    "Graph",
    "Handler",
    "Lowering",
    "Model",
    "Node",
    "Picks",
    "Placement",
    "Question",
    "Report",
    "Scheme",
    "Signature",
    "StoredModel",
    "Value",
    "added_into",
    "added_up",
    "algorithm_of",
    "append_foreign",
    "append_part",
    "as_output",
    "bounds_of",
    "byte_size",
    "captured",
    "channel_sum",
    "check_asked",
    "choosing",
    "complete_content",
    "constant_bytes",
    "constant_of",
    "copy_model",
    "depth_of",
    "dims",
    "drop_inputs",
    "drop_outputs",
    "dtype_of",
    "fake_quantized",
    "folded",
    "foreign_model",
    "free_batch",
    "freeze",
    "gradient_noted",
    "graph_from",
    "graphs_of",
    "hold",
    "in_place",
    "input_dtype",
    "input_dtypes",
    "input_shape",
    "is_drawn",
    "is_static",
    "kernel_gaps",
    "known_sequence",
    "limits",
    "lowering",
    "lowerings",
    "may_match",
    "model_bytes",
    "model_of",
    "model_text",
    "most_alive",
    "note_gradient",
    "number_tensors",
    "open_model",
    "parameter_totals",
    "parse_model",
    "plain_model",
    "prefix_input",
    "rank_of",
    "read_by",
    "refer",
    "rename_outputs",
    "replay",
    "reseed",
    "reshaped",
    "row_sum",
    "scale_of",
    "signature",
    "size_of",
    "sizes_of",
    "stamp",
    "standard_body",
    "still_there",
    "thaw",
    "to_proto",
    "trial_bytes",
    "twin",
    "typed_model",
    "unbroadcast",
    "unrolled",
    "verify",
    "with_training_info",
    "without_training_info",
    "zero_point",
    "zeros",
]
