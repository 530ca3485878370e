"""Bare onnxruntime: a model file run with arrays."""

import onnxruntime as ort

from benchmarks.peers import Data, Options, Step, Values
from benchmarks.workloads import Workload

VERSIONS = ("onnxruntime", "numpy")


def prediction(work: Workload, values: Values, data: Data, options: Options) -> Step:
    """A step runs the file `model`."""
    settings = ort.SessionOptions()
    settings.intra_op_num_threads = options.threads
    session = ort.InferenceSession(options.model, settings, providers=["CPUExecutionProvider"])
    names = [i.name for i in session.get_inputs()]
    feeds = [dict(zip(names, batch, strict=False)) for batch in data]
    return lambda i: session.run(None, feeds[i % len(feeds)])[0]
