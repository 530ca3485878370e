"""Models from elsewhere, as `flow2onnx info` describes and as `make_trainable` reads them."""

from collections.abc import Iterator

from onnx import parser

from flow2onnx.onnx_io.foreign import foreign_model
from flow2onnx.onnx_io.read import open_model
from tests.fuzz.target import scratch
from tests.imported import models

LONGEST = 4096
TOKENS = (b"Gemm", b"Conv", b"Loop", b"If", b"Constant", b"Reshape", b"ai.onnx",
          b"com.microsoft", b"location", b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
          b"\x10\x07", b"\x08\x0a", b"Expand", b"ConstantOfShape", b"Scan", b"Split")  # fmt: skip
OPSET = '<ir_version: 10, opset_import: ["" : 21{}]>'
TEXTS = (
    OPSET.format("")
    + "g (float[2,3] x) => (float[2,3] y) { w = Constant<value = float[3] {1.0, 2.0, 3.0}>() "
    "s = Mul(x, w) y = Relu(s) }",
    OPSET.format(', "f" : 1')
    + 'g (float[2,3] x) => (float[2,3] y) { y = f.twice(x) } <domain: "f", opset_import: ["" : 21]>'
    " twice (a) => (b) { b = Add(a, a) }",
    OPSET.format("")
    + "g (float[2,3] x, bool c) => (float[2,3] y) { y = If (c) <then_branch = t () => "
    "(float[2,3] a) { a = Neg(x) }, else_branch = e () => (float[2,3] b) { b = Abs(x) }> }",
    OPSET.format("")
    + "g (float[n,3] x) => (float[m,k] y) <int64[2] s = {3, -1}> { y = Reshape(x, s) }",
)  # fmt: skip


def seeds() -> Iterator[bytes]:
    """A perceptron, a convolution, and models with a constant, a function, branches, free sizes."""
    yield models.perceptron(4).SerializeToString()
    yield models.convolutional(4).SerializeToString()
    for text in TEXTS:
        yield parser.parse_model(text).SerializeToString()


def run(data: bytes) -> None:
    """Describe a model, and bring it into the form that jobs are made of."""
    path = scratch() / "model.onnx"
    path.write_bytes(data)
    stored = open_model(path)
    stored.summary()
    stored.foreign_operators()
    foreign = foreign_model(path, skips_foreign=True)
    assert foreign.outputs
