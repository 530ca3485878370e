"""Sinking of a ReLU behind the pool that reads it."""

from collections.abc import Collection

import onnx_ir as ir

from flow2onnx.graph.builder import Builder
from flow2onnx.passes.base import Pass, only_user, remove

__all__ = ["SinkRelu", "sink_relu"]


class SinkRelu(Pass):
    """Pool first: ReLU, and its gradient, are cheaper on the pooled values. The largest commutes.

    Given:   h = Relu(x);  y = MaxPool<kernel_shape=[2, 2]>(h);  z = Neg(y)
    Result:  p = MaxPool<kernel_shape=[2, 2]>(x);  y = Relu(p);  z = Neg(y)
    Kept:    pairs of which a value is `kept` or an output, pools that tell positions
    """

    def __init__(self, kept: Collection[ir.Value] = ()) -> None:
        self._kept = frozenset(kept)

    def run(self, graph: ir.Graph) -> bool:
        """Look from each pool back to the ReLU."""
        changed = False
        for pool in [n for n in graph if n.op_type == "MaxPool" and len(n.outputs) == 1]:
            h, y = pool.inputs[0], pool.outputs[0]
            relu = h.producer() if h is not None else None
            if h is None or relu is None or relu.op_type != "Relu" or y.is_graph_output():
                continue
            if only_user(h) is pool and not {h, y} & self._kept:
                _swap_relu_and_pool(graph, relu, pool)
                changed = True
        return changed


def _swap_relu_and_pool(graph: ir.Graph, relu: ir.Node, pool: ir.Node) -> None:
    pooled = pool.outputs[0]
    after = ir.Node("", "Relu", [pooled], num_outputs=1, name=relu.name)
    after.meta.update(relu.meta)
    y = after.outputs[0]
    y.name, y.type, y.shape = pooled.name, pooled.type, pooled.shape
    pooled.name = f"{y.name}/before_relu"
    pooled.replace_all_uses_with(y)
    after.replace_input_with(0, pooled)
    graph.insert_after(pool, after)
    pool.replace_input_with(0, relu.inputs[0])
    remove(graph, relu)


def sink_relu(b: Builder, kept: Collection[ir.Value]) -> None:
    """SinkRelu on a graph that more is going to be appended to."""
    if SinkRelu(kept).run(b.graph):
        b.nodes[:] = list(b.graph)
