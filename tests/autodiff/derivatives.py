"""Forward mode and second order of every gradient rule, as a page of the docs.

`python -m tests.autodiff.derivatives` measures again and writes the page.
"""

import math
import zlib
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from flow2onnx.autodiff import gradients, tangents
from flow2onnx.dtypes import by_name
from flow2onnx.errors import FlowError
from flow2onnx.graph import Builder
from flow2onnx.graph.types import dims, dtype_of
from flow2onnx.onnx_io.foreign import OLDEST
from flow2onnx.passes import run_passes
from tests.autodiff.cases import CASES
from tests.autodiff.graphs import as_tuple, open_graph

# Points where the first derivative jumps: a difference of it says nothing.
EDGES = {
    *(f"{op}-{note}" for op in ("Max", "Min") for note in ("same", "first", "both", "ones")),
    "LpPool-p1",
}
# The runtime computes a power of doubles in single precision where the base is one number.
ROUGH = {"Pow-of-number"}
OLD = "opset 9 alone, which is read as Resize"
PAGE = Path(__file__).parents[2] / "docs" / "derivatives.md"
TOLERANCE = {"float64": 1e-5, "float32": 2e-2}


@dataclass(frozen=True)
class Outcome:
    """The result of a case: errors relative to 1 + the size, None where not measured and why."""

    case: object
    dtype: str
    forward: float | None = None
    second: float | None = None
    reason: str = ""

    @property
    def is_right(self):
        """True if nothing that was measured is wrong."""
        found = [e for e in (self.forward, self.second) if e is not None]
        return all(e <= self.allowed for e in found)

    @property
    def allowed(self):
        """The largest error that is not wrong."""
        return TOLERANCE["float32" if self.case.id in ROUGH else self.dtype]


def derivatives(case, dtype):
    """Gradients, forward mode and Hessian products of a case: a function of points, directions.

    It gives, one after the other, the gradients, the derivatives of the outputs, and the product
    of the Hessian with the directions. None without kernels.
    """
    b = Builder(case.opset)
    points = [b.input(f"x{i}", s, dtype) for i, s in enumerate(case.shapes)]
    along = [b.input(f"t{i}", s, dtype) for i, s in enumerate(case.shapes)]
    outputs = as_tuple(case.make(b, *points))
    seeds = [b.const(weights(dims(y)), dtype_of(y)) for y in outputs]
    found = gradients(b, dict(zip(outputs, seeds, strict=True)), points)
    forward = tangents(b, dict(zip(points, along, strict=True)), list(outputs))
    total = None
    for x, t in zip(points, along, strict=True):
        part = b.ReduceSum(b.Mul(found[x], t), keepdims=0)
        total = part if total is None else b.Add(total, part)
    second = gradients(b, {total: b.const(np.ones(()), dtype)}, points)
    for i, x in enumerate(points):
        b.output(found[x], f"g{i}")
    for i, y in enumerate(outputs):
        b.output(forward.get(y, _zeros(b, y)), f"j{i}")
    for i, x in enumerate(points):
        b.output(second.get(x, _zeros(b, x)), f"h{i}")
    run_passes(b.graph)
    return open_graph(b), [dims(y) for y in outputs]


def _zeros(b, like):
    return b.ConstantOfShape(
        np.asarray(dims(like), np.int64), value=np.zeros(1, dtype_of(like).numpy)
    )


def weights(shape):
    """Weights of the elements of an output, all different."""
    return np.cos(np.arange(int(np.prod(shape)), dtype=float)).reshape(shape) + 1.5


def outcome(case):
    """The outcome of a case in the widest element type that the runtime runs it in."""
    if case.opset < OLDEST:
        return Outcome(case, "float64", reason=OLD)
    reason = "no kernel for its element types together"
    for dtype in ("float64", "float32"):
        if dtype not in case.dtypes:
            continue
        try:
            run, shapes = derivatives(case, by_name(dtype))
        except FlowError as error:
            return Outcome(case, dtype, reason=str(error))
        if run is not None:
            return _outcome(case, dtype, run, shapes)
    return Outcome(case, "float32", reason=reason)


def _outcome(case, dtype, run, shapes):
    rng = np.random.default_rng(zlib.crc32(case.id.encode()))
    point = case.draw(rng, dtype)
    along = [
        np.asarray(rng.choice([-1, 1], x.shape) * rng.uniform(0.5, 1, x.shape), dtype)
        for x in point
    ]
    n, m = len(point), len(shapes)
    made = run(*point, *along)
    back = sum(_dot(g, t) for g, t in zip(made[:n], along, strict=True))
    ahead = sum(_dot(weights(s), j) for s, j in zip(shapes, made[n : n + m], strict=True))
    size = sum(np.abs(_wide(g) * _wide(t)).sum() for g, t in zip(made[:n], along, strict=True))
    forward = abs(back - ahead) / (1 + size)
    if case.id in EDGES:
        return Outcome(case, dtype, forward, reason="second order of one case: it lies on an edge")
    step = 1e-5 if dtype == "float64" else case.step / 4
    up, down = (
        run(*(np.asarray(x + s * t, dtype) for x, t in zip(point, along, strict=True)), *along)[:n]
        for s in (step, -step)
    )
    second = max(
        float(np.abs((_wide(p) - _wide(q)) / (2 * step) - _wide(h)).max(initial=0.0))
        / (1 + float(np.abs(h).max(initial=0.0)))
        for p, q, h in zip(up, down, made[n + m :], strict=True)
    )
    return Outcome(case, dtype, forward, second)


def _wide(x):
    return np.asarray(x, np.float64)


def _dot(x, y):
    return float((_wide(x) * _wide(y)).sum())


# --- the page ---------------------------------------------------------------------------------
HEAD = f"""# Forward mode and second order

Written by `python -m tests.autodiff.derivatives`; do not edit.

`flow.jvp` transposes what a walk back emits, and `flow.hvp` walks back twice: both need a rule for
every operator that rules emit, and there is one. Each row is an operator with a rule or an
expansion of ours, measured on the cases that its rule is tested with. *Forward* compares J v with
the gradients: u · J v and (uᵀ J) · v are one number. *Second* compares the Hessian's product with
the difference of the gradients along v. Errors are relative to 1 + the size; in float64, where the
runtime has the kernels, at most {TOLERANCE["float64"]:g} is allowed, in float32
{TOLERANCE["float32"]:g}, mostly the error of the difference itself. Operators without a row have no
gradient, or the one of the function body that the standard gives them ([gradients](gradients.md)).

| operator | cases | element type | forward | second | not measured, and why |
|---|---|---|---|---|---|
"""


def page(outcomes):
    """The page as text."""
    by_operator = defaultdict(list)
    for found in outcomes:
        by_operator[found.case.op_type].append(found)
    return HEAD + "".join(_row(op, by_operator[op]) for op in sorted(by_operator))


def _row(op_type, outcomes):
    types = " ".join(sorted({o.dtype for o in outcomes if o.forward is not None}))
    reasons = "; ".join(sorted({o.reason for o in outcomes if o.reason}))
    worst = (_worst([getattr(o, k) for o in outcomes]) for k in ("forward", "second"))
    return f"| {op_type} | {len(outcomes)} | {types} | {' | '.join(worst)} | {reasons} |\n"


def _worst(errors):
    """The power of ten that is not exceeded, which no machine's rounding moves."""
    known = [e for e in errors if e is not None]
    if not known:
        return ""
    return f"1e{math.ceil(math.log10(max(*known, 1e-12)))}"


def main():
    """Measure all cases and write the page; returns how many are wrong."""
    outcomes = [outcome(case) for case in CASES]
    PAGE.write_text(page(outcomes), encoding="utf-8")
    wrong = [o for o in outcomes if not o.is_right]
    print(f"{len(outcomes)} cases, {len(wrong)} wrong")
    for o in wrong:
        print(o.case.id, o.dtype, o.forward, o.second)
    return len(wrong)


if __name__ == "__main__":
    raise SystemExit(main())
