"""Gradients over sizes known at run time only, for every rule and every axis, as a page.

`python -m tests.autodiff.free_axes` measures again and writes the page.
"""

import re
import zlib
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from flow2onnx.autodiff import gradients
from flow2onnx.dtypes import by_name
from flow2onnx.errors import FlowError
from flow2onnx.graph import Builder
from flow2onnx.graph.types import dtype_of, sizes_of
from flow2onnx.onnx_io.foreign import OLDEST
from flow2onnx.passes import run_passes
from tests.autodiff.cases import CASES
from tests.autodiff.graphs import as_tuple, open_graph

PAGE = Path(__file__).parents[2] / "docs" / "free_axes.md"
TOLERANCE = {"float64": 1e-9, "float32": 2e-4}


@dataclass(frozen=True)
class Outcome:
    """The gradients of a case with some axes free beside those with none.

    `free` are pairs of input and axis. `error` is relative to 1 + the largest element; None where
    the gradient is refused, with the `reason`.
    """

    case: object
    free: frozenset
    dtype: str
    error: float | None = None
    reason: str = ""
    hint: str = ""

    @property
    def is_right(self):
        """True if the gradients are equal, or refused with a way out."""
        if self.error is None:
            return bool(self.reason)
        return self.error <= TOLERANCE[self.dtype]


def every_axis(case):
    """All axes of a case, as pairs of input and axis."""
    return frozenset((i, a) for i, shape in enumerate(case.shapes) for a in range(len(shape)))


def first_input(case):
    """The axes of a case's first input, which is its data; where there are weights they follow."""
    return frozenset((i, a) for i, a in every_axis(case) if i == 0)


def opened(case, dtype, free):
    """Outputs and gradients as a function of points and seeds; None without kernels."""
    b = Builder(case.opset)
    inputs = [
        b.input(f"x{i}", [f"n{i}_{a}" if (i, a) in free else d for a, d in enumerate(s)], dtype)
        for i, s in enumerate(case.shapes)
    ]
    outputs = as_tuple(case.make(b, *inputs))
    seeds = [b.input(f"dy{i}", sizes_of(y), dtype_of(y)) for i, y in enumerate(outputs)]
    found = gradients(b, dict(zip(outputs, seeds, strict=True)), inputs)
    for i, y in enumerate(outputs):
        b.output(y, f"y{i}")
    for i, x in enumerate(inputs):
        b.output(found[x], f"g{i}")
    run_passes(b.graph)
    return open_graph(b)


class Comparison:
    """The gradients of one case with all sizes known, which others are compared with."""

    def __init__(self, case):
        self.case, self.run, self.reason = case, None, ""
        if case.opset < OLDEST:
            self.reason = "opset 9 alone, which is read as Resize"
            return
        for self.dtype in ("float64", "float32"):
            if self.dtype in case.dtypes and self.run is None:
                self.run = opened(case, by_name(self.dtype), frozenset())
                if self.run is not None:
                    break
        if self.run is None:
            self.reason = "no kernel for its element types together"
            return
        rng = np.random.default_rng(zlib.crc32(case.id.encode()))
        self.point = case.draw(rng, self.dtype)
        self.seeds = self._seeds(rng)
        self.wanted = self.run(*self.point, *self.seeds)

    def _seeds(self, rng):
        b = Builder(self.case.opset)
        kind = by_name(self.dtype)
        inputs = [b.input(f"x{i}", s, kind) for i, s in enumerate(self.case.shapes)]
        outputs = as_tuple(self.case.make(b, *inputs))
        return [rng.uniform(0.5, 1.5, sizes_of(y)).astype(dtype_of(y).numpy) for y in outputs]

    def outcome(self, free):
        """The result of the gradients with these axes free."""
        if self.run is None:
            return Outcome(self.case, free, "float32", reason=self.reason, hint="-")
        try:
            run = opened(self.case, by_name(self.dtype), free)
        except FlowError as error:
            return Outcome(self.case, free, self.dtype, reason=error.message, hint=error.hint or "")
        assert run is not None, "kernels that are there for known sizes are there for others"
        made = run(*self.point, *self.seeds)
        worst = 0.0
        for got, want in zip(made, self.wanted, strict=True):
            assert got.shape == want.shape, f"{got.shape} is not {want.shape}"
            wide = np.asarray(want, np.float64)
            gap = np.abs(np.asarray(got, np.float64) - wide).max(initial=0.0)
            worst = max(worst, float(gap / (1 + np.abs(wide).max(initial=0.0))))
        return Outcome(self.case, free, self.dtype, worst)


# --- the page ---------------------------------------------------------------------------------
HEAD = f"""# Gradients over free axes

Written by `python -m tests.autodiff.free_axes`; do not edit.

A size that is known only at run time is computed in the graph, so that a gradient has any batch,
length or height. Each row is an operator with a rule or an expansion of ours, on the cases that its
rule is tested with: all axes of the first input free at once, all axes of all inputs, and every
axis alone. *Equal* gradients are within {TOLERANCE["float64"]:g} of those with all sizes known, in
float32 within {TOLERANCE["float32"]:g}. Where sizes decide on the form of the gradient, as those of
weights do, it is refused and says which size to fix: with `inputs=` for an imported model.

| operator | cases | first input free | all inputs free | one axis free | refused, by input: why |
|---|---|---|---|---|---|
"""


def measure(cases):
    """For each operator the outcomes by kind: ``first``, ``all`` and ``one``."""
    found = defaultdict(lambda: {"first": [], "all": [], "one": []})
    for case in cases:
        compared = Comparison(case)
        kinds = found[case.op_type]
        kinds["first"].append(compared.outcome(first_input(case)))
        kinds["all"].append(compared.outcome(every_axis(case)))
        kinds["one"] += [compared.outcome(frozenset([a])) for a in sorted(every_axis(case))]
    return found


def page(found):
    """The page as text."""
    return HEAD + "".join(_row(op, found[op]) for op in sorted(found))


def _row(op_type, kinds):
    counts = (_count(kinds[k]) for k in ("first", "all", "one"))
    reasons = defaultdict(set)
    for outcome in (o for k in ("first", "one") for o in kinds[k] if o.error is None):
        places = sorted({i for i, _ in outcome.free})
        reasons[re.sub(r"[nx]\d[_\d]*", "…", _short(outcome.reason))].update(places)
    texts = [f"{', '.join(map(str, sorted(v)))}: {k}" for k, v in sorted(reasons.items())]
    return f"| {op_type} | {len(kinds['first'])} | {' | '.join(counts)} | {'; '.join(texts)} |\n"


def _count(outcomes):
    equal = sum(o.error is not None for o in outcomes)
    return "equal" if equal == len(outcomes) else f"{equal} of {len(outcomes)} equal"


def _short(reason):
    text = reason.removeprefix("GradientFunctionNotFound: ")
    return re.sub(r"has a shape known only at run time: \[.*?\]", "has a free size", text)


def main():
    """Measure all cases and write the page; returns how many are wrong."""
    found = measure(CASES)
    PAGE.write_text(page(found), encoding="utf-8")
    every = [o for kinds in found.values() for k in kinds.values() for o in k]
    wrong = [o for o in every if not o.is_right]
    print(f"{len(every)} comparisons, {len(wrong)} wrong")
    for o in wrong:
        print(o.case.id, sorted(o.free), o.error)
    return len(wrong)


if __name__ == "__main__":
    raise SystemExit(main())
