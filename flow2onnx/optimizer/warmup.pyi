"""`flow.optimizer.warmup`.

Written by `python -m tests.stubs` from the names that there are: change those.
"""

import builtins as _builtins
import flow2onnx.optim.warmup as _flow2onnx_optim_warmup

def constant(steps: _builtins.int, multiplier: _builtins.float) -> _flow2onnx_optim_warmup.Warmup:
    """base_lr * multiplier for the first `steps` steps."""
def linear(steps: _builtins.int, start_multiplier: _builtins.float) -> _flow2onnx_optim_warmup.Warmup:
    """From base_lr * start_multiplier in a straight line to base_lr at step `steps`."""
