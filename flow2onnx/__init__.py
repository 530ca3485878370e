"""flow2onnx: OneFlow job functions on the stock ONNX Runtime.

`import flow2onnx as flow` gives the job-function API; a decorated job is traced to standard ONNX
nodes, differentiated, and run or exported.
"""

import sys

from flow2onnx.api.surface import NAMES, publish

__version__ = "0.1.0"
__all__ = sorted({name.partition(".")[0] for name in NAMES})

publish(sys.modules[__name__])
