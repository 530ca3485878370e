"""One case of the standard: its outputs through our graph, its gradients against differences."""

import zlib
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
from onnxruntime.capi import onnxruntime_pybind11_state as state

from flow2onnx.autodiff import NOT_DIFFERENTIABLE, gradients, has_rule
from flow2onnx.autodiff.registry import SEQUENCE_MAKERS, expansion_for
from flow2onnx.dtypes import by_numpy
from flow2onnx.errors import DTypeError, FlowError, GradientError, ShapeError, UnsupportedError
from flow2onnx.graph import Builder
from flow2onnx.graph.functions import inline_nodes
from flow2onnx.graph.model import model_bytes, model_of
from flow2onnx.graph.types import dims, dtype_of
from tests.onnx_standard.cases import is_float
from tests.onnx_standard.opsets import OpsetError, at_opset

RUNTIME_ERRORS = tuple(
    getattr(state, name)
    for name in ("Fail", "InvalidArgument", "InvalidGraph", "NotImplemented", "RuntimeException")
)
TOLERANCE = {"float64": 1e-6, "float32": 2e-3, "float16": 2e-2, "bfloat16": 5e-2}
# Points beside the recorded one, where that lies on an edge: (factors, addends).
MOVES = (((0.93, 0.99), (0, 0)), ((1.03, 1.09), (0, 0)), ((0.93, 0.99), (0.03, 0.09)))
# In double precision the runtime refuses to run these, computes them in single precision, or runs
# what an older standard made them of.
SINGLE = {"Attention", "GRU", "GroupNormalization", "LSTM", "Shrink"}
# Inputs that say how an operator works, where differences may leave what it takes.
KNOBS = {"Dropout": {1}, "Resize": {1, 2}}
CRASHED = "crashed"
STEPS = {"float64": (1e-6, 1e-5), "float32": (1e-2, 3e-3, 1e-3)}


class SkipError(Exception):
    """Why a case, or its gradient, cannot be tried."""


@dataclass(frozen=True)
class Outcome:
    """The outcome of a case: `reason` is why there is no `error` of its gradient."""

    name: str
    operator: str
    opset: int
    forward: str  # equal, or why it was not tried
    kind: str = ""  # rule, expansion or function body
    error: float | None = None
    precision: str = ""  # of the differences
    moved: bool = False  # differentiated beside the recorded point, which has ties
    reason: str = ""


def outcome(case):
    """Try one case; what nobody expected is an outcome too."""
    head = case.name, case.operator, case.opset
    forward = ""
    try:
        forward = _forward(case)
        return Outcome(*head, forward, kind_of(case.operator), *_gradient(case))
    except SkipError as error:
        return Outcome(*head, forward or str(error), reason=str(error))
    except Exception as error:
        reason = f"{CRASHED}: {type(error).__name__}: {str(error)[:200]}"
        return Outcome(*head, forward or CRASHED, reason=reason)


def kind_of(operator):
    """How gradients pass an operator."""
    if operator in NOT_DIFFERENTIABLE:
        return "not differentiable"
    if has_rule(operator):
        return "rule"
    if operator in SEQUENCE_MAKERS:
        return "its readers"
    return "expansion" if expansion_for(operator) else "function body"


# --- graphs -------------------------------------------------------------------------------------


@dataclass
class Graphed:
    """A case as a graph of ours: the inputs that vary, and the outputs."""

    b: Builder
    inputs: list
    arrays: list
    outputs: list

    @property
    def floats(self):
        return [(x, a) for x, a in zip(self.inputs, self.arrays, strict=True) if is_float(a)]


def graphed(case, arrays, constant=()):
    """The case's graph on these arrays; those at the positions `constant` are constants of it."""
    model = ir.from_proto(at_opset(case.model))
    graph = model.graph
    b = Builder(graph.opset_imports[""])
    given = [v for v in graph.inputs if v.name not in graph.initializers]
    actual, inputs, varied = [], [], []
    for i, (formal, array) in enumerate(zip(given, arrays, strict=True)):
        if i in constant:
            actual.append(b.const(array))
            continue
        value = b.input(formal.name, array.shape, by_numpy(array.dtype))
        actual.append(value)
        inputs.append(value)
        varied.append(array)
    outputs = inline_nodes(b, graph, given, actual, graph.outputs)
    return Graphed(b, inputs, varied, [b.Identity(y) for y in outputs])


def opened(b, outputs, prefix):
    """The graph as a function of arrays; raises SkipError where the runtime has no kernel."""
    for i, y in enumerate(outputs):
        b.output(y, f"{prefix}{i}")
    try:
        session = _session(model_bytes(model_of(b.graph)))
    except RUNTIME_ERRORS as error:
        if "NOT_IMPLEMENTED" in str(error):
            raise SkipError(f"the runtime has {_kernel(str(error))}") from None
        raise
    names = [i.name for i in session.get_inputs()]
    return lambda *arrays: session.run(None, dict(zip(names, arrays, strict=True)))


def _session(content):
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
    return ort.InferenceSession(content, options, ["CPUExecutionProvider"])


def _kernel(text):
    start = text.find("for ") + 4
    operator = text[start:].split("(")[0].split(" ")[0]
    return f"no kernel for {operator}"


# --- forward ------------------------------------------------------------------------------------


def _forward(case):
    if case.foreign_domains:
        raise SkipError(f"of the domain {case.foreign_domains[0]}")
    if not case.has_floats:
        raise SkipError("no real numbers go in")
    if not all(isinstance(x, np.ndarray) for x in (*case.inputs, *case.outputs)):
        raise SkipError("sequences or optionals go in or out")
    if any(x.dtype.name == "bfloat16" for x in (*case.inputs, *case.outputs)):
        raise SkipError("the runtime takes and gives no bfloat16 in arrays")
    try:
        made, _ = _static(case, case.inputs, lambda made: made)
    except (DTypeError, OpsetError, ShapeError, UnsupportedError) as error:
        raise SkipError(str(error).splitlines()[0]) from None
    try:
        function = opened(made.b, made.outputs, "y")
        _check(case, function(*made.arrays))
    except (AssertionError, *RUNTIME_ERRORS):
        _try_alone(case)
        raise
    return "equal"


def _try_alone(case):
    """Say so where the runtime fails at the model as it is recorded."""
    model = at_opset(case.model)
    names = [v.name for v in model.graph.input]
    try:
        session = _session(model.SerializeToString())
        found = session.run(None, dict(zip(names, case.inputs, strict=True)))
    except RUNTIME_ERRORS as error:
        text = str(error).split(" : ", 2)[-1].split("(", 1)[0][:80].strip()
        raise SkipError(f"the runtime does not run it ({type(error).__name__}: {text})") from None
    try:
        _check(case, found)
    except AssertionError:
        raise SkipError("the runtime's own results differ from the recorded ones") from None


def _check(case, found):
    for y, wanted in zip(found, case.outputs, strict=True):
        np.testing.assert_equal(y.shape, wanted.shape)
        if not is_float(wanted):
            np.testing.assert_array_equal(y, wanted)
            continue
        wide = wanted.astype(np.float64)
        size = np.abs(wide[np.isfinite(wide)]).max(initial=1.0)
        rtol = max(case.rtol, 1e-3 if wanted.dtype.itemsize > 2 else 4e-3)
        np.testing.assert_allclose(
            y.astype(np.float64), wide, rtol=rtol, atol=max(case.atol, 2e-6 * size)
        )


def _static(case, arrays, make):
    """`make` of the case's graph, whose inputs become constants where shapes depend on them."""
    fixed = KNOBS.get(case.operator, set()) | {
        i for i, x in enumerate(arrays) if is_float(x) and not np.isfinite(x).all()
    }
    whole = {i for i, x in enumerate(arrays) if not is_float(x)} | fixed
    small = {i for i, x in enumerate(arrays) if i > 0 and x.size <= 16} | whole
    last = None
    for constant in (fixed, whole, small):
        try:
            made = graphed(case, arrays, constant)
            if case.operator not in NOT_DIFFERENTIABLE:
                for y in made.outputs:
                    dims(y)
            return make(made), constant
        except (ShapeError, UnsupportedError, GradientError) as failed:
            last = failed
    raise last


# --- gradient -----------------------------------------------------------------------------------


def _gradient(case):
    if case.operator in NOT_DIFFERENTIABLE:
        raise SkipError(f"not differentiable: {NOT_DIFFERENTIABLE[case.operator]}")
    rng = np.random.default_rng(zlib.crc32(case.name.encode()))
    best = None
    for moved in (None, *MOVES):
        arrays = [_moved(rng, x, moved) if moved and is_float(x) else x for x in case.inputs]
        try:
            error, precision = _difference(case, arrays, rng)
        except SkipError:
            if moved is None:
                raise
            continue  # that way the function ends
        tolerance = TOLERANCE[precision]
        if best is None or error / tolerance < best[0] / TOLERANCE[best[1]]:
            best = error, precision, moved is not None
        if error <= tolerance:
            break
    return best


def _moved(rng, x, move):
    factor, addend = move
    near = x.astype(np.float64) * rng.uniform(*factor, x.shape) + rng.uniform(*addend, x.shape)
    return near.astype(x.dtype)


def _difference(case, arrays, rng):
    seeds = [
        np.asarray(rng.uniform(0.5, 1.5, y.shape) * np.isfinite(y.astype(float)), y.dtype)
        if is_float(y)
        else None
        for y in case.outputs
    ]
    if not any(s is not None for s in seeds):
        raise SkipError("no real numbers come out")
    arrays, (found, floats, constant) = _in_double(case, arrays, seeds)
    for g, x in zip(found, floats, strict=True):
        assert (g.shape, g.dtype) == (x.shape, x.dtype), f"{g.shape} {g.dtype}"
    function, wide, start = _wide(case, arrays, constant)
    worst = 0.0
    own = {x.dtype.name for x in floats}
    precision = max((*own, wide), key=lambda k: TOLERANCE[k])
    for i, g in enumerate(found):
        direction = rng.choice([-1, 1], g.shape) * rng.uniform(0.5, 1, g.shape)
        part = g.astype(np.float64) * direction
        scale = 1 + float(np.abs(part).sum())
        got = float(part.sum())
        errors = [
            abs(got - _slope(function, start, i, direction, seeds, step)) / scale
            for step in STEPS[wide]
        ]
        if not np.isfinite(got):
            _explain(case, arrays, constant)
            errors = [np.inf]
        worst = max(worst, np.nanmin([*errors, np.inf]))
    return float(worst), precision


def _in_double(case, arrays, seeds):
    """The point and the gradients there: in float64 where that runs, else as recorded."""
    if case.operator not in SINGLE:
        wide = [x.astype(np.float64) if is_float(x) else x for x in arrays]
        try:
            return wide, _differentiated(case, wide, seeds)
        except (SkipError, FlowError, *RUNTIME_ERRORS):
            pass  # no kernels, or the model names another type: tried as it is recorded
    return arrays, _differentiated(case, arrays, seeds)


def _explain(case, arrays, constant):
    """Say so where the forward graph itself passes through what is not a number."""
    made = graphed(case, arrays, constant)
    reals = [v for n in made.b.nodes for v in n.outputs if v.dtype in (1, 10, 11)]
    found = opened(made.b, [made.b.Identity(v) for v in reals], "v")(*made.arrays)
    if any(np.isnan(y).any() for y in found):
        raise SkipError("not a number on the way to the outputs, so that no gradient is one")


def _differentiated(case, arrays, seeds):
    """The gradients at `arrays`, for the inputs that vary."""

    def make(made):
        given, inputs = {}, []
        for i, (y, s) in enumerate(zip(made.outputs, seeds, strict=True)):
            if s is not None:
                given[y] = made.b.input(f"seed{i}", dims(y), dtype_of(y))
                inputs.append(s.astype(dtype_of(y).numpy))
        wrt = [x for x, _ in made.floats]
        grads = gradients(made.b, given, wrt)
        return made, [x for x in wrt if x in grads], grads, inputs

    try:
        (made, wrt, grads, extra), constant = _static(case, arrays, make)
    except GradientError as error:
        raise SkipError(f"no gradient: {error.message}") from None
    if not wrt:
        raise SkipError("nothing that varies reaches the outputs")
    zero = [
        made.b.const(np.zeros(a.shape, a.dtype)) if x not in grads else grads[x]
        for x, a in made.floats
    ]
    function = opened(made.b, zero, "dx")
    return function(*made.arrays, *extra), [a for _, a in made.floats], constant


def _wide(case, arrays, constant):
    """The forward function in the widest precision that runs, and its point."""
    for kind in ("float32",) if case.operator in SINGLE else ("float64", "float32"):
        wide = [x.astype(kind) if is_float(x) else x for x in arrays]
        try:
            made = graphed(case, wide, constant)
            if any(v.dtype == ir.DataType.FLOAT for n in made.b.nodes for v in n.outputs):
                kind = "float32"  # the model says so itself somewhere
            function = opened(made.b, made.outputs, "y")
            return function, kind, made.arrays
        except (SkipError, FlowError):
            continue
        except Exception as error:
            if kind == "float32" or "Type Error" not in str(error):
                raise
    raise SkipError("no kernel in float32 or float64")


def _slope(function, point, which, direction, seeds, step):
    positions = [i for i, x in enumerate(point) if is_float(x)]

    def total(size):
        moved = list(point)
        i = positions[which]
        moved[i] = np.asarray(point[i] + size * direction, point[i].dtype)
        with np.errstate(invalid="ignore"):  # infinite results have seed 0
            return sum(
                float((y.astype(np.float64) * s.astype(np.float64))[s != 0].sum())
                for y, s in zip(function(*moved), seeds, strict=True)
                if s is not None
            )

    return (total(step) - total(-step)) / (2 * step)
