"""flow2onnx_runtime: an exported predict job, without the compiler."""

from flow2onnx_runtime import Options as RuntimeOptions
from flow2onnx_runtime import Predictor

from benchmarks.peers import Data, Options, Step, Values
from benchmarks.workloads import Workload

VERSIONS = ("onnxruntime", "numpy")


def prediction(work: Workload, values: Values, data: Data, options: Options) -> Step:
    """A step runs the file `model`, with native operators in it if the variant says so."""
    opening = RuntimeOptions(intra_op_threads=options.threads, native="native" in options.variant)
    predictor = Predictor(options.model, opening)
    (result,) = (info.name for info in predictor.results)
    return lambda i: predictor(*data[i % len(data)][:-1])[result]
