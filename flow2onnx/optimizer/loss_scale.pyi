"""`flow.optimizer.loss_scale`.

Written by `python -m tests.stubs` from the names that there are: change those.
"""

import builtins as _builtins
import flow2onnx.optim.loss_scale as _flow2onnx_optim_loss_scale

def dynamic_loss_scale(initial_loss_scale: _builtins.float = 1073741824.0, increment_period: _builtins.int = 2000, multiplier: _builtins.float = 2.0) -> _flow2onnx_optim_loss_scale.DynamicScale:
    """Multiply the loss by a factor that finds its own size."""
def static_loss_scale(loss_scale_factor: _builtins.float) -> _flow2onnx_optim_loss_scale.StaticScale:
    """Multiply the loss by `loss_scale_factor` while gradients are computed."""
