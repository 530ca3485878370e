"""The ONNX project's own node tests: models of one operator with recorded inputs and outputs."""

import warnings
from dataclasses import dataclass
from functools import cache

import numpy as np
import onnx

from tests.onnx_standard.opsets import at_opset


@dataclass(frozen=True)
class StandardCase:
    """One test: its model, and one set of inputs and outputs."""

    name: str
    operator: str
    model: onnx.ModelProto
    inputs: tuple
    outputs: tuple
    rtol: float
    atol: float

    @property
    def opset(self):
        return max((o.version for o in self.model.opset_import if not o.domain), default=0)

    @property
    def foreign_domains(self):
        """The domains of its nodes but the standard's."""
        return sorted({n.domain for n in self.model.graph.node} - {"", "ai.onnx"})

    @property
    def has_floats(self):
        """True if any input or initializer is of real numbers."""
        return any(is_float(x) for x in self.inputs)


def is_float(x):
    return isinstance(x, np.ndarray) and (x.dtype.kind == "f" or x.dtype.name in ("bfloat16",))


@cache
def standard_cases():
    """All cases by name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some cases overflow on purpose while they are made
        from onnx.backend.test.loader import load_model_tests

        found = load_model_tests(kind="node")
    names = {t.name: t for t in found}
    return {
        t.name: StandardCase(
            t.name,
            _operator(t, names),
            t.model,
            *(tuple(_array(x) for x in part) for part in t.data_sets[0]),
            t.rtol,
            t.atol,
        )
        for t in found
    }


def _array(x):
    if isinstance(x, onnx.TensorProto):
        return onnx.numpy_helper.to_array(x)
    return np.asarray(x) if isinstance(x, np.generic) else x


def _operator(test, tests):
    """The operator a test is about: of an expanded one, that of the test it was made from."""
    base = test.name.split("_expanded")[0]
    model = tests[base].model if base in tests else test.model
    kinds = [n.op_type for n in model.graph.node]
    return kinds[0] if len(set(kinds)) == 1 else max(kinds, key=kinds.count)


__all__ = ["StandardCase", "at_opset", "is_float", "standard_cases"]
