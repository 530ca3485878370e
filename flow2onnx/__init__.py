"""flow2onnx: OneFlow job functions on the stock ONNX Runtime.

`import flow2onnx as flow` gives the job-function API; a decorated job is traced to standard ONNX
nodes, differentiated, and run or exported.
"""

import sys as _sys
from typing import TYPE_CHECKING as _TYPE_CHECKING

from flow2onnx.api import modules as _modules
from flow2onnx.api import surface as _surface

if _TYPE_CHECKING:  # what editors and type checkers know by its signature; the rest is anything
    from typing import Any as _Any

    from flow2onnx.engine import accelerate as accelerate
    from flow2onnx.imported import from_training_info as from_training_info
    from flow2onnx.imported import grad as grad
    from flow2onnx.imported import hvp as hvp
    from flow2onnx.imported import jacobian as jacobian
    from flow2onnx.imported import jvp as jvp
    from flow2onnx.imported import lora as lora
    from flow2onnx.imported import make_trainable as make_trainable
    from flow2onnx.imported import vjp as vjp

    def __getattr__(name: str) -> _Any: ...
else:
    __getattr__ = _surface.import_named


__version__ = "0.1.0"
__all__ = _surface.top_level_names()

_surface.publish(_sys.modules[__name__])
_modules.publish_source(_sys.modules[__name__])


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
