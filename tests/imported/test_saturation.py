"""A Clip of an exported model on its ends: flat if it is an activation, else it passes."""

import numpy as np
import onnxruntime as ort
import pytest
from onnx import helper, numpy_helper

import flow2onnx as flow
from tests.imported import models

POINTS = np.asarray([-3, -1, 0, 0.5, 1, 6, 7], np.float32)
FUNCTION = "pkg.torch.onnx.fx_node"
ENDS = [models.info("x", [len(POINTS)])], [models.info("y", [len(POINTS)])]
LIMIT, ACTIVATION = (True, True), (False, False)


def clip(low, high, function="", cast=""):
    """Clip between constants, which torch's exporter casts, and says from which function it is."""
    ends, nodes = ["low", "high"], []
    if cast:
        more = {"to": 1} if cast == "Cast" else {}
        reads = [[end] if cast == "Cast" else [end, "x"] for end in ends]
        ends = ["low_cast", "high_cast"]
        nodes = [helper.make_node(cast, r, [e], **more) for r, e in zip(reads, ends, strict=True)]
    nodes.append(helper.make_node("Clip", ["x", *ends], ["y"]))
    if function:
        text = f"%f : call_function[target=torch.ops.{function}.default](args = (%x, 0.0, 6.0))"
        nodes[-1].metadata_props.add(key=FUNCTION, value=text)
    tensors = [numpy_helper.from_array(np.float32(low), "low")]
    tensors += [numpy_helper.from_array(np.float32(high), "high")]
    return models.model(nodes, *ENDS, tensors)


@pytest.mark.parametrize("cast", ["", "Cast", "CastLike"])
@pytest.mark.parametrize(
    ("low", "high", "function", "passes"),
    [
        (0, 6, "aten.hardtanh", ACTIVATION),
        (-1, 1, "aten.hardtanh", ACTIVATION),
        (0, 6, "aten.relu6", ACTIVATION),
        (0, 6, "", ACTIVATION),
        (0, 6, "aten.clamp", LIMIT),
        (-1, 1, "aten.clamp", LIMIT),
        (-1, 1, "", LIMIT),
        (0, 1, "", LIMIT),
    ],
)
def test_the_slope_on_ends(cast, low, high, function, passes):
    check(clip(low, high, function, cast=cast), low, high, passes)


def test_ends_as_attributes():
    for low, high, passes in ((0.0, 6.0, ACTIVATION), (-1.0, 1.0, LIMIT)):
        node = helper.make_node("Clip", ["x"], ["y"], min=low, max=high)
        check(models.model([node], *ENDS, opset=9), low, high, passes)


def check(model, low, high, passes):
    wanted = np.float32(np.logical_and(low < POINTS, high > POINTS))
    for end, does_pass in zip((low, high), passes, strict=True):
        wanted[end == POINTS] = does_pass
    made = flow.grad(model, "x", keep_outputs=False)
    session = ort.InferenceSession(made.SerializeToString())
    np.testing.assert_array_equal(session.run(None, {"x": POINTS})[0], wanted)
