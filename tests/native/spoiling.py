"""Attributes of native operators that nobody would make: refused, never run beyond a tensor."""

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir
from flow2onnx_native.library import NativeLibrary

from tests.native.running import Array, run, session

Program = tuple[ir.Model, Mapping[str, Array]]


def refusals(
    program: Program,
    name: str,
    attribute: str,
    numbers: list[int],
    library: NativeLibrary,
    count: int,
) -> int:
    """How many of `count` sessions are refused when numbers of the operator's attribute are others.

    One of its nodes has up to three of them replaced by `numbers` or by the next, and one time in
    ten ends too early. What refuses has to be the operator or the check of shapes.
    """
    draw = np.random.default_rng(0)
    model, feeds = program
    nodes = [n for n in model.graph if n.op_type == name]
    refused = []
    for i in range(count):
        node = nodes[i % len(nodes)]
        kept = node.attributes[attribute]
        given = list(kept.as_ints())
        for at in draw.integers(0, len(given), int(draw.integers(1, 4))):
            given[at] = int(draw.choice([*numbers, given[at] + 1]))
        if draw.random() < 0.1:
            given = given[: int(draw.integers(0, len(given)))]
        node.attributes[attribute] = ir.AttrInt64s(attribute, given)
        try:
            run(session(model, library), feeds)
        except Exception as error:  # the runtime's exceptions have no common base
            refused.append(str(error))
        node.attributes[attribute] = kept
    assert [e for e in refused if name not in e and "shape" not in e.lower()] == []
    return len(refused)
