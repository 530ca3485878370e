"""flow2onnx: OneFlow job functions on the stock ONNX Runtime.

`import flow2onnx as flow` gives the job-function API; a decorated job is traced to standard ONNX
nodes, differentiated, and run or exported. Editors and type checkers read ``__init__.pyi``, which
`python -m tests.stubs` writes from the same names.
"""

import sys as _sys

from flow2onnx.api import modules as _modules
from flow2onnx.api import surface as _surface

__version__ = "0.1.0"
__all__ = _surface.top_level_names()

_surface.publish(_sys.modules[__name__])
_modules.publish_source(_sys.modules[__name__])
_modules.refuse_unknown(_sys.modules[__name__])


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
