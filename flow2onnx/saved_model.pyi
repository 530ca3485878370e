"""`flow.saved_model`.

Written by `python -m tests.stubs` from the names that there are: change those.
"""

from flow2onnx.api.saved_model import GraphBuilder as GraphBuilder
from flow2onnx.api.saved_model import ModelBuilder as ModelBuilder
from flow2onnx.api.saved_model import SignatureBuilder as SignatureBuilder
