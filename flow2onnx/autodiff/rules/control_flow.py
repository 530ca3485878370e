"""Control flow and sequences: both branches are differentiated, loops of known length unrolled."""

from flow2onnx.autodiff.registry import expansion, no_gradient, vjp
from flow2onnx.autodiff.walk import gradients
from flow2onnx.errors import UnsupportedError
from flow2onnx.graph import Builder
from flow2onnx.graph.functions import expand_sequence, inline_nodes, unroll
from flow2onnx.graph.nodes import nesting_depth, read_values
from flow2onnx.graph.types import dtype_of, sizes_of
from flow2onnx.lowering.scatters import zeros

# A file cannot hold graphs that lie much deeper in each other: its readers stop there.
_DEEPEST = 24


@vjp("If")
def _(b, n, *gs):
    # the branch that is taken is computed again where its gradient is
    if nesting_depth(n) > _DEEPEST:
        raise no_gradient(n, f"with branches {nesting_depth(n)} deep in each other")
    read = read_values(n)
    wrt = [v for v in read[len(n.inputs) :] if dtype_of(v).is_floating_point]
    if not wrt:
        return [None] * len(read)
    branches = {
        name: _branch(b, n.attributes[name].as_graph(), wrt, gs)
        for name in ("then_branch", "else_branch")
    }
    found = dict(zip(wrt, b.several("If", n.inputs[0], outputs=len(wrt), **branches), strict=True))
    return [found.get(v) for v in read]


def _branch(b, graph, wrt, gs):
    """A graph that computes the gradients of one branch."""
    inner = Builder.inside(b, graph.name)
    with inner.under(b.prefix, b.source):
        outputs = inline_nodes(inner, graph, [], [], graph.outputs)
        seeds = {}
        for y, g in zip(outputs, gs, strict=True):
            if g is not None:
                own = y if y.producer() in set(inner.nodes) else inner.Identity(y)
                seeds[own] = inner.Add(seeds[own], g) if own in seeds else g
        found = gradients(inner, seeds, wrt)
        for v in wrt:
            g = found.get(v)
            whole = zeros(inner, sizes_of(v), dtype_of(v)) if g is None else inner.Identity(g)
            inner.graph.outputs.append(whole)
    return inner.graph


@expansion("Loop", "Scan")
def _(b, n):
    return _known_when_built(n, lambda: unroll(b, n, n.inputs, n.attributes))


@expansion("ConcatFromSequence", "SequenceAt")
def _(b, n):
    # whoever reads a sequence reads the tensors that it is made of instead
    return _known_when_built(n, lambda: expand_sequence(b, n, n.inputs))


def _known_when_built(n, expand):
    """The values that `expand` makes of a loop or sequence, whose counts have to be constants."""
    try:
        return expand()
    except UnsupportedError as error:
        raise no_gradient(n, f"here: {error.message}") from None


@expansion("OptionalGetElement")
def _(b, n):
    return b.Identity(n.inputs[0])
