"""Models cut down to some outputs, without a library that parses them."""

import numpy as np
import onnx
import onnx.parser
import onnxruntime as ort
import pytest

from flow2onnx_runtime.errors import BundleError
from flow2onnx_runtime.pruned_model import prune_model, signature_of

MODEL = onnx.parser.parse_model("""
<ir_version: 10, opset_import: ["" : 21]>
g (float[2] x, float[2] w, bool c) => (float[2] y, float[2] z, float[2] a, float[2] p)
<float[2] half = {0.5, 0.5}, float[2] two = {2.0, 2.0}, float[2] unused = {1.0, 1.0}>
{
    h = Mul(x, half)
    y = Add(h, w)
    k = Mul(x, two)
    z = Neg(k)
    a = If(c) <then_branch = t () => (float[2] m) { m = Neg(k) },
               else_branch = e () => (float[2] o) { o = Identity(h) }>
    p = Identity(w)
}
""").SerializeToString()
X, W = np.array([1.0, -3.0], np.float32), np.array([10.0, 20.0], np.float32)


def run(content, arrays):
    session = ort.InferenceSession(content, providers=["CPUExecutionProvider"])
    names = [arg.name for arg in session.get_inputs()]
    found = session.run(None, {name: arrays[name] for name in names})
    return dict(zip((arg.name for arg in session.get_outputs()), found, strict=True))


@pytest.mark.parametrize(
    ("outputs", "inputs", "operators", "constants"),
    [
        (["y"], ("x", "w"), ["Mul", "Add"], ["half"]),
        (["z"], ("x",), ["Mul", "Neg"], ["two"]),
        (["p"], ("w",), ["Identity"], []),
        (["a"], ("x", "c"), ["Mul", "Mul", "If"], ["half", "two"]),
        (["p", "y"], ("x", "w"), ["Mul", "Add", "Identity"], ["half"]),
    ],
)
def test_what_outputs_need_is_left(outputs, inputs, operators, constants):
    content = prune_model(MODEL, outputs)
    model = onnx.load_from_string(content)
    onnx.checker.check_model(model)
    assert signature_of(content).inputs == inputs
    assert set(signature_of(content).outputs) == set(outputs)
    assert [node.op_type for node in model.graph.node] == operators
    assert [tensor.name for tensor in model.graph.initializer] == constants
    arrays = {"x": X, "w": W, "c": np.array(False)}
    whole = run(MODEL, arrays)
    for name, value in run(content, arrays).items():
        np.testing.assert_array_equal(value, whole[name], name)


def test_a_whole_model_stays_as_it_is():
    used = prune_model(MODEL, ["y", "z", "a", "p"])
    assert signature_of(used) == signature_of(MODEL)
    assert prune_model(used, ["y", "z", "a", "p"]) == used


@pytest.mark.parametrize(
    "content", [b"", b"\x08\x0a", b"\xff" * 40, MODEL[:-7], b"\x3a\x81\x00\x08"]
)
def test_what_is_no_model_is_refused(content):
    with pytest.raises(BundleError, match="no ONNX model"):
        prune_model(content, ["y"])
    with pytest.raises(BundleError, match="no ONNX model"):
        signature_of(content)
