"""`flow.optimizer.grad_clipping`.

Written by `python -m tests.stubs` from the names that there are: change those.
"""

import builtins as _builtins
import flow2onnx.optim.clipping as _flow2onnx_optim_clipping

def by_global_norm(clip_norm: _builtins.float) -> _flow2onnx_optim_clipping.GlobalNorm:
    """Clip the joint norm of an optimizer's gradients to `clip_norm`."""
