"""Products with weights of 4, 8 and 32 bits on ONNX Runtime's kernels, on one thread.

    python -m benchmarks.few_bits [--rows 1,32,256] [--size 2048] [--seconds 0.8]

prints a table: billions of operations a second, of the fastest call. `MatMulNBits` rounds what it
multiplies to 8 bits at `accuracy_level` 4, for which processors have instructions of their own
(VNNI, AMX), and computes in float32 at level 0.
"""

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

from benchmarks.report import Grid

BLOCK = 32  # weights that have one scale
Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Product:
    """A node, its constants, and the element types of what it takes and gives."""

    node: onnx.NodeProto
    constants: dict[str, Array]
    takes: int = TensorProto.FLOAT
    gives: int = TensorProto.FLOAT

    def session(self, rows: int) -> ort.InferenceSession:
        """A session on one thread that multiplies so many rows."""
        values = [numpy_helper.from_array(v, n) for n, v in self.constants.items()]
        x = helper.make_tensor_value_info("x", self.takes, [rows, None])
        y = helper.make_tensor_value_info("y", self.gives, None)
        opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
        model = helper.make_model(
            helper.make_graph([self.node], "product", [x], [y], values), opset_imports=opsets,
            ir_version=10,
        )  # fmt: skip
        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        return ort.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )


def float32(size: int) -> Product:
    """A product in single precision."""
    weight = np.random.default_rng(0).standard_normal((size, size)).astype(np.float32)
    return Product(helper.make_node("MatMul", ["x", "w"], ["y"]), {"w": weight})


def int8(size: int) -> Product:
    """A product of whole numbers of 8 bits."""
    weight = np.random.default_rng(0).integers(-127, 128, (size, size), dtype=np.int8)
    node = helper.make_node("MatMulInteger", ["x", "w"], ["y"])
    return Product(node, {"w": weight}, TensorProto.UINT8, TensorProto.INT32)


def blocks(size: int, bits: int, level: int) -> Product:
    """A product with a weight in blocks of so few bits; `size` is a multiple of `BLOCK`."""
    draw, count = np.random.default_rng(0), size // BLOCK
    weight = draw.integers(0, 256, (size, count, BLOCK * bits // 8), dtype=np.uint8)
    node = helper.make_node(
        "MatMulNBits", ["x", "w", "scales"], ["y"], domain="com.microsoft", K=size, N=size,
        bits=bits, block_size=BLOCK, accuracy_level=level,
    )  # fmt: skip
    scales = draw.random(size * count).astype(np.float32) / 50
    return Product(node, {"w": weight, "scales": scales})


PRODUCTS: dict[str, Callable[[int], Product]] = {
    "float32": float32,
    "8 bits by 8 bits": int8,
    **{f"{bits} bits, level {level}": lambda size, b=bits, n=level: blocks(size, b, n)
       for bits in (4, 8) for level in (0, 4)},
}  # fmt: skip


def rate(product: Product, size: int, rows: int, seconds: float) -> float:
    """Billions of multiplications and additions a second, of the fastest call in that time."""
    session = product.session(rows)
    kind = helper.tensor_dtype_to_np_dtype(product.takes)
    x = np.random.default_rng(1).integers(0, 9, (rows, size)).astype(kind)
    session.run(None, {"x": x})
    fastest, end = float("inf"), time.perf_counter() + seconds
    while (begun := time.perf_counter()) < end:
        session.run(None, {"x": x})
        fastest = min(fastest, time.perf_counter() - begun)
    return 2 * rows * size * size / fastest / 1e9


def table(counts: list[int], size: int, seconds: float) -> Grid:
    """The rates of all products for each number of rows."""
    lines = []
    for name, make in PRODUCTS.items():
        product = make(size)
        rates = (rate(product, size, rows, seconds) for rows in counts)
        lines.append([name, *(f"{found:.0f}" for found in rates)])
    return Grid(f"billions of operations a second, weights {size} by {size}",
                ["rows", *map(str, counts)], lines)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=lambda t: [int(n) for n in t.split(",")],
                        default=[1, 32, 256])  # fmt: skip
    parser.add_argument("--size", type=int, default=2048, help=f"a multiple of {BLOCK}")
    parser.add_argument("--seconds", type=float, default=0.8, help="for each number")
    args = parser.parse_args()
    table(args.rows, args.size, args.seconds).show()


if __name__ == "__main__":
    main()
