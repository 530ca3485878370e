"""A backend named onnxruntime for Triton's Python backend: runs MODEL/VERSION/model.onnx.

It lets a stock tritonserver, which has no backend for ONNX of its own, serve the repositories that
are made for one. ONNX_THREADS in the environment sets the threads of a session.
"""

import json
import os
from pathlib import Path

import numpy as np
import onnxruntime as ort
import triton_python_backend_utils as utils


class TritonPythonModel:
    """One instance of a version of a model."""

    def initialize(self, args):
        config = json.loads(args["model_config"])
        file = config["default_model_filename"] or "model.onnx"
        options = ort.SessionOptions()
        options.intra_op_num_threads = int(os.environ.get("ONNX_THREADS", "0"))
        path = Path(args["model_repository"], args["model_version"], file)
        self._session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        self._inputs = [item.name for item in self._session.get_inputs()]
        self._outputs = [item.name for item in self._session.get_outputs()]
        self._has_batch = config["max_batch_size"] > 0

    def execute(self, requests):
        """An answer to each request; those whose shapes allow it are computed together."""
        feeds = [[_array(request, name) for name in self._inputs] for request in requests]
        shapes = {tuple(array.shape[1:] for array in arrays) for arrays in feeds}
        if len(requests) == 1 or len(shapes) > 1 or not self._has_batch:
            found = [self._attempt(arrays) for arrays in feeds]
        else:
            whole = self._attempt([np.concatenate(c) for c in zip(*feeds, strict=True)])
            found = [whole] * len(feeds)
            if isinstance(whole, list):
                ends = np.cumsum([len(arrays[0]) for arrays in feeds])[:-1]
                found = list(zip(*(np.split(array, ends) for array in whole), strict=True))
        return [self._answer(r, f) for r, f in zip(requests, found, strict=True)]

    def _attempt(self, arrays):
        try:
            return self._session.run(None, dict(zip(self._inputs, arrays, strict=True)))
        except Exception as error:  # onnxruntime's exceptions have no common base
            return utils.TritonError(f"{type(error).__name__}: {error}")

    def _answer(self, request, found):
        if isinstance(found, utils.TritonError):
            return utils.InferenceResponse(error=found)
        wanted = request.requested_output_names()
        arrays = zip(self._outputs, found, strict=True)
        return utils.InferenceResponse([utils.Tensor(n, a) for n, a in arrays if n in wanted])


def _array(request, name):
    return utils.get_input_tensor_by_name(request, name).as_numpy()
