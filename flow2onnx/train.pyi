"""`flow.train`.

Written by `python -m tests.stubs` from the names that there are: change those.
"""

from flow2onnx.api.models import CheckPoint as CheckPoint
from flow2onnx.api.models import SimpleCheckPointManager as SimpleCheckPointManager
