"""Forward mode: the reverse walk is linear in its seeds, so its own transpose goes forwards."""

from collections.abc import Collection, Mapping

from flow2onnx.autodiff.walk import gradients
from flow2onnx.graph import Builder, Value
from flow2onnx.graph.types import dtype_of, sizes_of
from flow2onnx.lowering.scatters import zeros

__all__ = ["hessian_products", "tangents"]


def tangents(
    b: Builder, directions: Mapping[Value, Value], outputs: Collection[Value]
) -> dict[Value, Value]:
    """The derivatives of `outputs` along `directions`, one direction for each value of the keys.

    The product of a Jacobian J with a direction v is the gradient, in u, of u Jᵀ v: what a walk
    back from seeds u computes is differentiated in u. No rule but those of the walk is needed, and
    whatever u is drops out. An output that depends on none of the keys is absent from the result.
    """
    seeds = {y: zeros(b, sizes_of(y), dtype_of(y)) for y in outputs}
    found = gradients(b, seeds, directions)
    back = gradients(b, _weights(b, found, directions), seeds.values())
    return {y: back[u] for y, u in seeds.items() if u in back}


def hessian_products(
    b: Builder, seeds: Mapping[Value, Value], directions: Mapping[Value, Value]
) -> tuple[dict[Value, Value], dict[Value, Value]]:
    """The gradients of sum(loss * seed) in the keys of `directions`, and the Hessian's product.

    Both by value; a value that no loss depends on is absent from the first, one in which the
    gradients are constant from the second. Hessians are symmetric: a second walk back, from the
    first one's gradients weighted by `directions`, gives the product.
    """
    found = gradients(b, seeds, directions)
    first = {x: found[x] for x in directions if x in found}
    return first, gradients(b, _weights(b, first, directions), directions)


def _weights(
    b: Builder, found: Mapping[Value, Value], directions: Mapping[Value, Value]
) -> dict[Value, Value]:
    """The directions as seeds of the gradients that were found; two may share one gradient."""
    weights: dict[Value, Value] = {}
    for x, direction in directions.items():
        if x in found:
            g = found[x]
            weights[g] = b.Add(weights[g], direction) if g in weights else direction
    return weights
