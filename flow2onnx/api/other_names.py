"""Names of torch, Keras and TensorFlow for things that have another name below `flow`."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from flow2onnx_runtime.spelling import near_names

__all__ = ["ELSEWHERE", "nearest_names"]

_HOST = "numpy.random on the host, and a placeholder for it; initializers draw weights"
_PLAIN_LOOP = "a Python loop of known length in the job, flow.where for a choice"
_POOLED = "flow.math.reduce_mean(x, [2, 3])"
_NAMED = "flow.optimizer.named('{}')"

# By the name in small letters.
ELSEWHERE: Mapping[str, str] = MappingProxyType({
    **{n: _NAMED.format(n) for n in ("adadelta", "adagrad", "adamax", "lion", "muon", "nadam",
                                     "radam")},
    **dict.fromkeys(("batchnorm1d", "batchnorm2d", "batchnorm3d", "batchnorm"),
                    "flow.layers.batch_normalization(x, axis=1)"),
    **dict.fromkeys(("adaptiveavgpool2d", "globalaveragepooling2d"), _POOLED),
    **dict.fromkeys(("rand", "randn", "randint", "random_normal", "random_uniform"), _HOST),
    **dict.fromkeys(("cond", "while_loop", "scan", "switch"), _PLAIN_LOOP),
    **dict.fromkeys(("tensor", "as_tensor", "from_numpy", "convert_to_tensor"),
                    "a parameter of the job, or flow.constant(values) for what never changes"),
    **dict.fromkeys(("parameter", "variable"), "flow.get_variable(name, shape, initializer=…)"),
    **dict.fromkeys(("cat", "concatenate"), "flow.concat([x, y], axis)"),
    **dict.fromkeys(("mm", "bmm", "dot", "einsum"), "flow.matmul(x, y), with flow.transpose"),
    **dict.fromkeys(("manual_seed", "set_seed", "seed"), "flow.config.random_seed(n)"),
    **dict.fromkeys(("device", "cuda"), 'flow.scope.placement("gpu", "0:0")'),
    **dict.fromkeys(("lambdalr", "steplr", "multisteplr", "lr_scheduler"),
                    "the rate as a function of the step: flow.optimizer.SGD(lambda step: …)"),
    **dict.fromkeys(("split", "chunk"), "x[:, :n] and x[:, n:]"),
    **dict.fromkeys(("maximum", "max"), "flow.math.maximum(x, y), flow.math.reduce_max(x)"),
    **dict.fromkeys(("minimum", "min"), "flow.math.minimum(x, y), flow.math.reduce_min(x)"),
    "all": "flow.math.reduce_all(x)",
    "any": "flow.math.reduce_any(x)",
    "attention": "flow.matmul, flow.nn.softmax and flow.matmul again",
    "bool": "flow.int8, in which comparisons give 0 and 1",
    "clip_grad_norm_": "grad_clipping=flow.optimizer.grad_clipping.by_global_norm(1.0)",
    "compile": "a job, which is compiled at its first call",
    "cosineannealinglr": "flow.optimizer.CosineScheduler(rate, steps)",
    "crossentropyloss": "flow.losses.cross_entropy",
    "cumsum": "x @ numpy.triu(numpy.ones((n, n), 'float32'))",
    "div": "flow.math.divide(x, y), or x / y",
    "embedding": "flow.gather(flow.get_variable('table', (rows, width), initializer=…), ids)",
    "functional": "flow.nn and flow.math",
    "half": "flow.float16",
    "input": "tp.Numpy.Placeholder(shape), a parameter's annotation",
    "keras": "flow.layers and flow.nn",
    "layernorm": "flow.layers.layer_norm(x)",
    "linear": "flow.layers.dense(x, units)",
    "load_state_dict": "flow.load_variables(values)",
    "long": "flow.int64",
    "mean": "flow.math.reduce_mean(x)",
    "mul": "flow.math.multiply(x, y), or x * y",
    "multiheadattention": "flow.matmul, flow.nn.softmax and flow.matmul again",
    "neg": "-x",
    "nllloss": "flow.losses.nll",
    "no_grad": 'a job of type="predict"; flow.get_variable(…, trainable=False)',
    "norm": "flow.math.reduce_euclidean_norm(x)",
    "permute": "flow.transpose(x, perm)",
    "placeholder": "tp.Numpy.Placeholder(shape), a parameter's annotation",
    "prod": "flow.math.reduce_prod(x)",
    "reducelronplateau": "the callback ReduceOnPlateau of a bundle's fit",
    "relu_": "flow.nn.relu(x)",
    "sequential": "one call after another in the body of the job",
    "session": "a job, which is called like a function",
    "state_dict": "flow.get_all_variables()",
    "std": "flow.math.reduce_std(x)",
    "sub": "flow.math.subtract(x, y), or x - y",
    "sum": "flow.math.reduce_sum(x)",
    "unsqueeze": "flow.expand_dims(x, axis)",
    "var": "flow.math.reduce_variance(x)",
    "view": "flow.reshape(x, shape)",
})  # fmt: skip


def nearest_names(symbol: str, known: Iterable[str]) -> list[str]:
    """Two of the dotted names of `known` that end like `symbol`, or are spelt so at their end.

    Those of the same namespace come first.
    """
    namespace, _, last = symbol.rpartition(".")
    ends: dict[str, list[str]] = {}
    for name in sorted(known):
        ends.setdefault(name.rpartition(".")[2], []).append(name)
    near = [last] if last in ends else near_names(last, ends)
    found = [name for end in near for name in ends[end]]
    return sorted(found, key=lambda name: name.rpartition(".")[0] != namespace)[:2]
