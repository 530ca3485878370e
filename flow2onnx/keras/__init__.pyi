"""`flow.keras`.

Written by `python -m tests.stubs` from the names that there are: change those.
"""

from flow2onnx.keras import activations as activations
from flow2onnx.keras import maths as maths
