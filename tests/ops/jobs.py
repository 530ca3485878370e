"""Jobs made on the spot: a body, arrays in, arrays out."""

from flow2onnx_runtime import open_session
from flow2onnx_runtime.errors import BundleError

import flow2onnx as flow
import flow2onnx.typing as tp
from flow2onnx.compile import Target, compile_job
from flow2onnx.dtypes import by_numpy
from flow2onnx.engine.session import current_session
from flow2onnx.graph.model import model_bytes
from flow2onnx.trace.context import current_job


def define(body, arrays, kind="predict"):
    """A job without return annotation: `body` on placeholders like `arrays`."""
    names = ", ".join(f"x{i}" for i in range(len(arrays)))
    namespace = {"body": body}
    exec(f"def job({names}): return body({names})", namespace)
    function = namespace["job"]
    function.__annotations__ = {
        f"x{i}": tp.Numpy.Placeholder(a.shape, dtype=by_numpy(a.dtype))
        for i, a in enumerate(arrays)
    }
    return flow.global_function(type=kind)(function)


def run(job, *arrays):
    """The outputs of a job as a list of arrays."""
    found = job(*arrays).get()
    return [r.numpy() for r in (found if isinstance(found, list | tuple) else [found])]


def predict(body, *arrays):
    """The outputs of `body` in a predict job, in a fresh session."""
    flow.clear_default_session()
    return run(define(body, arrays), *arrays)


def opens(body, arrays):
    """True if the runtime opens the model of a predict job, whatever our own check says of it."""
    flow.clear_default_session()
    define(body, arrays)
    compiled = compile_job(current_session().spec("job"), None, Target(kernels=None))
    try:
        open_session(model_bytes(compiled.model))
    except BundleError as error:
        if "NOT_IMPLEMENTED" not in str(error):
            raise
        return False
    return True


def watched_gradients(call, arrays, varied, seeds, owned=None):
    """The gradients of the sum of every output times its seed, by name.

    ``in0``, ``in1``, … are the inputs `varied`, which are variables of a real train job; the
    others are fed. `owned` are values for the variables that `call` itself makes.
    """
    flow.clear_default_session()
    fed = [i for i in range(len(arrays)) if i not in varied]
    seen = {}

    def body(*blobs):
        given = dict(zip(fed, blobs, strict=False))
        for i in varied:
            a = arrays[i]
            given[i] = flow.get_variable(
                f"in{i}", a.shape, by_numpy(a.dtype), flow.zeros_initializer()
            )
        outputs = call(*(given[i] for i in range(len(arrays))))
        outputs = outputs if isinstance(outputs, list | tuple) else [outputs]
        loss = None
        for y, seed in zip(outputs, blobs[len(fed) :], strict=True):
            term = flow.math.reduce_sum(y * seed)
            loss = term if loss is None else loss + term
        still = flow.optimizer.PiecewiseConstantScheduler([], [0.0])
        flow.optimizer.SGD(still, momentum=0).minimize(loss)
        for name, blob in current_job("test").user_variables.items():
            flow.watch_diff(blob, _keeper(seen, name))
        return loss

    given = [*(arrays[i] for i in fed), *seeds]
    job = define(body, given, "train")
    flow.load_variables({f"in{i}": arrays[i] for i in varied} | (owned or {}), False)
    job(*given).get()
    return seen


def _keeper(seen, name):
    def keep(g):
        seen[name] = g.numpy()

    return keep
