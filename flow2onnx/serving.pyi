"""`flow.serving`.

Written by `python -m tests.stubs` from the names that there are: change those.
"""

from flow2onnx.api.serving import InferenceSession as InferenceSession
from flow2onnx.api.serving import ModelVersionPolicy as ModelVersionPolicy
from flow2onnx.api.serving import SessionOption as SessionOption
