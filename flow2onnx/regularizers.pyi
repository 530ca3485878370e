"""`flow.regularizers`.

Written by `python -m tests.stubs` from the names that there are: change those.
"""

import builtins as _builtins
import flow2onnx.trace.variables as _flow2onnx_trace_variables

def l1(l: _builtins.float = 0.01) -> _flow2onnx_trace_variables.Regularizer:
    """Adds l sign(w) to the gradient."""
def l1_l2(l1: _builtins.float = 0.01, l2: _builtins.float = 0.01) -> _flow2onnx_trace_variables.Regularizer:
    """Adds l1 sign(w) + l2 w to the gradient."""
def l2(l: _builtins.float = 0.01) -> _flow2onnx_trace_variables.Regularizer:
    """Adds l w to the gradient."""
