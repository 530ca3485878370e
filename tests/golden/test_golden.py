"""Recorded runs of real OneFlow, replayed through the public API.

`corpus/` has one line of `cases.jsonl` for each case, and its arrays in `<id>.npz`; what the fields
mean is in `corpus/README.md`. A case runs when every symbol it needs exists; those that do not
exist yet are listed in `missing.txt`, which has to shrink as they come.
"""

import json
import re
from pathlib import Path

import numpy as np
import pytest

import flow2onnx as flow
import flow2onnx.typing as tp
from flow2onnx.api.surface import NAMES
from flow2onnx.dtypes import by_numpy
from flow2onnx.errors import FlowError
from tests.ops.jobs import define, run

CORPUS = Path(__file__).parent / "corpus"
MISSING = frozenset((CORPUS.parent / "missing.txt").read_text().split())
CASES = [json.loads(line) for line in (CORPUS / "cases.jsonl").read_text().splitlines()]

# cases whose symbols exist, and what these do not do yet
LACKING: dict[str, str] = {}
TOLERANCE = {"float16": (1e-3, 1e-3), "float32": (2e-5, 1e-5), "float64": (1e-9, 1e-9)}
SUMS_MANY = re.compile("conv|norm|moments|variance|std")  # gradients of these get ten times as much
SLOW_START = (2e-4, 2e-4)  # Adam without bias correction divides by almost nothing at first
SIGMAS = 5.0
RATE = 2.0**20  # so large that (before - after) / rate keeps every digit of the gradient


def needs(case):
    """The symbols that a case calls."""
    names = set() if case["op"].startswith(("operator:", "ListNumpy.")) else {case["op"]}
    names.update(_named([case["args"], list(case["kwargs"].values())]))
    if "lr" in case:
        names.add(f"optimizer.{case['lr']['name']}")
    kwargs = case["kwargs"]
    for options in (kwargs, case.get("lr", {}).get("kwargs", {})):
        if "warmup" in options:
            names.add(f"optimizer.warmup.{options['warmup']['name']}")
    names.update(f"optimizer.loss_scale.{k}" for k in kwargs.get("loss_scale_policy", ()))
    names.update(f"optimizer.{o['name']}" for o in kwargs.get("optimizers", ()))
    return names


def _named(content):
    """The functions, initializers and regularizers that an encoded argument mentions."""
    if isinstance(content, list):
        for part in content:
            yield from _named(part)
    elif isinstance(content, dict):
        if "initializer" in content:
            yield content["initializer"]["name"]
        if "regularizer" in content:
            yield f"regularizers.{content['regularizer']['name']}"
        if "fn" in content:
            yield content["fn"]
        for part in content.values():
            yield from _named(part)


def symbol(name):
    found = flow
    for part in name.split("."):
        found = getattr(found, part)
    return found


def decoded(content, blobs):
    """A JSON argument as the Python value it stands for."""
    if isinstance(content, list):
        return [decoded(part, blobs) for part in content]
    if not isinstance(content, dict):
        return content
    if "blob" in content:
        return blobs[content["blob"]]
    if "dtype" in content:
        return symbol(content["dtype"])
    if "fn" in content:
        return symbol(content["fn"])
    if "initializer" in content:
        return symbol(content["initializer"]["name"])(**content["initializer"]["kwargs"])
    if "regularizer" in content:
        made = symbol(f"regularizers.{content['regularizer']['name']}")
        return made(**content["regularizer"]["kwargs"])
    return {k: decoded(v, blobs) for k, v in content.items()}


def called(case, blobs):
    """The result of the call of a case, as a list of (path, blob)."""
    if case["op"].startswith("operator:"):
        result = eval(case["op"].removeprefix("operator:"), {}, dict(blobs))
    else:
        kwargs = {k: decoded(v, blobs) for k, v in case["kwargs"].items()}
        if "output_shape" in kwargs:
            kwargs["output_shape"] = tuple(kwargs["output_shape"])
        if "slice_tup_list" in kwargs:
            kwargs["slice_tup_list"] = [tuple(t) for t in kwargs["slice_tup_list"]]
        result = symbol(case["op"])(*decoded(case["args"], blobs), **kwargs)
    return leaves(result)


def leaves(result, path=""):
    if isinstance(result, dict):
        pairs = result.items()
    elif isinstance(result, list | tuple):
        pairs = enumerate(result)
    else:
        return [(path, result)]
    return [leaf for k, v in pairs for leaf in leaves(v, f"{path}.{k}" if path else str(k))]


def recorded(case):
    with np.load(CORPUS / f"{case['id']}.npz") as arrays:
        return dict(arrays)


def part(data, prefix):
    """The arrays whose key starts with `prefix`, by what follows."""
    return {k.removeprefix(prefix): v for k, v in data.items() if k.startswith(prefix)}


def same(found, wanted, scale=1.0, tolerance=None):
    """True if an array is the recorded one; recorded scalars have no dimension here or there."""
    wanted = np.asarray(wanted)
    if wanted.dtype == bool:
        wanted = wanted.astype(np.int8)  # up to 0.6 truths are int8
    if wanted.shape == ():
        wanted = wanted.reshape(1)
    assert found.shape == wanted.shape
    if wanted.dtype.kind != "f":
        # index results were int32 up to 0.4; the corpus has int64
        assert found.dtype == wanted.dtype or (found.dtype, wanted.dtype) == (np.int32, np.int64)
        np.testing.assert_array_equal(found, wanted)
        return
    assert found.dtype == wanted.dtype
    rtol, atol = tolerance or TOLERANCE[wanted.dtype.name]
    np.testing.assert_allclose(found, wanted, rtol * scale, atol * scale)


def variable(name, array):
    kind = by_numpy(array.dtype)
    return flow.get_variable(name, array.shape, kind, flow.zeros_initializer(dtype=kind))


def sgd(rate):
    scheduler = flow.optimizer.PiecewiseConstantScheduler([], [rate])
    return flow.optimizer.SGD(scheduler, momentum=0)


def values():
    return {name: blob.numpy() for name, blob in flow.get_all_variables().items()}


# --- one function for each kind of case -------------------------------------------------------


def op_forward(case, data):
    inputs, variables = part(data, "in:"), part(data, "var:")
    paths = []

    def body(*blobs):
        found = called(case, dict(zip(inputs, blobs, strict=True)))
        paths.extend(path for path, _ in found)
        return [flow.identity(blob) for _, blob in found]

    job = define(body, list(inputs.values()))
    flow.load_variables(variables, ignore_mismatch=False)
    assert set(values()) == set(variables)
    found = run(job, *inputs.values())
    assert paths == case["output_paths"]
    for path, y in zip(paths, found, strict=True):
        same(y, data[f"out:{path}" if path else "out"])


def op_training(case, data):
    inputs, variables, seeds = part(data, "in:"), part(data, "var:"), part(data, "dy")
    varied = {n: inputs[n] for n in case["grad"] if n in inputs}
    fed = {n: a for n, a in inputs.items() if n not in varied}
    start = {f"in_{n}": a for n, a in varied.items()} | variables

    def body(*blobs):
        given = dict(zip([*fed, *(f"dy{i}" for i in seeds)], blobs, strict=True))
        given.update({n: variable(f"in_{n}", a) for n, a in varied.items()})
        found = called(case, given)
        loss = None
        for i in seeds:
            term = flow.math.reduce_sum(found[int(i)][1] * given[f"dy{i}"])
            loss = term if loss is None else loss + term
        sgd(RATE).minimize(loss)
        return [flow.identity(blob) for _, blob in found]

    arrays = [*fed.values(), *(np.reshape(s, s.shape or (1,)) for s in seeds.values())]
    job = define(body, arrays, "train")
    scale = 10.0 if SUMS_MANY.search(case["op"].lower()) else 1.0
    kept = {key.partition("@")[0] for key in part(data, "var_after:")}
    for step in range(case.get("steps", 1)):
        suffix = f"@step{step}" if step else ""
        flow.load_variables({n: a for n, a in start.items() if not step or n not in kept})
        outputs = run(job, *arrays)
        after = values()
        for path, y in zip(case["output_paths"], outputs, strict=True):
            key = (f"train_out:{path}" if path else "train_out") + suffix
            if key in data:
                same(y, data[key])
        for name, was in start.items():
            bare = name.removeprefix("in_") if name not in variables else name
            key = f"grad:{bare}" if name not in variables else f"grad_var:{name}"
            if key + suffix in data:
                wide = was.astype(np.float64) - after[name]
                same((wide / RATE).astype(was.dtype), data[key + suffix], scale)
            if f"var_after:{name}{suffix}" in data:
                same(after[name], data[f"var_after:{name}{suffix}"])


def op(case, data):
    op_forward(case, data)
    if any(key.startswith(("grad:", "grad_var:", "var_after:", "train_out")) for key in data):
        flow.clear_default_session()
        op_training(case, data)


def scheduler(name, args, kwargs):
    kwargs = dict(kwargs)
    if "warmup" in kwargs:
        made = symbol(f"optimizer.warmup.{kwargs['warmup']['name']}")
        kwargs["warmup"] = made(*kwargs["warmup"]["args"])
    return symbol(f"optimizer.{name}")(*args, **kwargs)


def optimizer_of(name, kwargs, rate):
    kwargs = dict(kwargs)
    if name == "CombinedOptimizer":
        members = [optimizer_of(m["name"], m["kwargs"], rate) for m in kwargs["optimizers"]]
        return flow.optimizer.CombinedOptimizer(members)
    if "grad_clipping" in kwargs:
        norm = kwargs["grad_clipping"]["by_global_norm"]
        kwargs["grad_clipping"] = flow.optimizer.grad_clipping.by_global_norm(norm)
    for policy, value in kwargs.pop("loss_scale_policy", {}).items():
        made = symbol(f"optimizer.loss_scale.{policy}")
        kwargs["loss_scale_policy"] = made(**value) if isinstance(value, dict) else made(value)
    return symbol(f"optimizer.{name}")(scheduler(**rate), **kwargs)


def lr(case, data):
    kind = case["op"].removeprefix("optimizer.")

    def body():
        loss = flow.math.reduce_sum(variable("v", np.zeros(1, np.float32)))
        rate = scheduler(kind, case["args"], case["kwargs"])
        flow.optimizer.SGD(rate, momentum=0).minimize(loss)
        return loss

    job = define(body, [], "train")
    rates = []
    for _ in range(case["steps"]):
        flow.load_variables({"v": np.zeros(1, np.float32)})
        run(job)
        rates.append(-values()["v"].item())
    same(np.asarray(rates, np.float32), data["lr"], tolerance=(2e-5, 1e-7))


def optimizer(case, data):
    start, config = part(data, "var:"), None
    kwargs = dict(case["kwargs"])
    is_legacy = kwargs.pop("legacy", False)
    if is_legacy:
        config = flow.function_config()
        config.train.primary_lr(0.05)
        config.train.model_update_conf({"naive_conf": {}})

    @flow.global_function("train", config)
    def train_job(
        x: tp.Numpy.Placeholder(data["x"][0].shape), t: tp.Numpy.Placeholder(data["t"][0].shape)
    ) -> tp.Numpy:
        w1, b1, w2 = (variable(name, start[name]) for name in ("w1", "b1", "w2"))
        h = flow.math.tanh(flow.nn.bias_add(flow.matmul(x, w1), b1))
        e = flow.math.square(flow.matmul(h, w2) - t)
        by_sample = case["loss"] != "scalar"
        loss = flow.math.reduce_sum(e, axis=1) if by_sample else flow.math.reduce_mean(e)
        both = [loss, flow.math.reduce_sum(flow.math.square(h), axis=1)]
        losses = both if case["loss"] == "two" else loss
        if is_legacy:
            flow.losses.add_loss(losses)
        else:
            name = case["op"].removeprefix("optimizer.")
            optimizer_of(name, kwargs, case["lr"]).minimize(losses)
        return loss

    flow.load_variables(start, ignore_mismatch=False)
    is_slow = "Adam" in case["op"] and not kwargs.get("do_bias_correction")
    tolerance = SLOW_START if is_slow or "Combined" in case["op"] else None
    if "RMSProp" in case["op"]:
        tolerance = (5e-5, 5e-5)
    for step, (x, t) in enumerate(zip(data["x"], data["t"], strict=True)):
        loss = train_job(x, t)
        same(loss, np.reshape(data["loss"][step], loss.shape), tolerance=tolerance)
        now = values()
        for name in start:
            same(now[name], data[f"traj:{name}"][step], tolerance=tolerance)


def initializer(case, data):
    stats, kwargs = case["stats"], dict(case["kwargs"])
    if "shape" in kwargs:
        kwargs["shape"] = tuple(kwargs["shape"])

    def body():
        first = symbol(case["op"])(**kwargs)
        return flow.identity(flow.get_variable("v", tuple(case["shape"]), initializer=first))

    define(body, [])
    v = values()["v"]
    assert v.shape == tuple(case["shape"])
    assert v.dtype == np.float32
    n, std = stats["n"], stats["std"]
    if std == 0:
        np.testing.assert_array_equal(v, np.full_like(v, stats["mean"]))
        return
    error = SIGMAS * (2 / n) ** 0.5  # two draws differ by less
    assert abs(v.mean() - stats["mean"]) <= error * std
    assert abs(v.std() / std - 1) <= error
    shares = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)
    for share, x in zip(shares, stats["quantiles_01_05_25_50_75_95_99"], strict=True):
        assert abs((v <= x).mean() - share) <= error * (share * (1 - share)) ** 0.5
    assert (v < stats["min"]).sum() <= 30
    assert (v > stats["max"]).sum() <= 30


def dropout(case, data):
    x, rate = data["in:x"], case["kwargs"]["rate"]

    def train(blob):
        y = flow.nn.dropout(blob + variable("v", np.zeros_like(x)), **case["kwargs"])
        sgd(0.0).minimize(flow.math.reduce_sum(y))
        return y

    job = define(train, [x], "train")
    first, second = (run(job, x)[0] for _ in range(2))
    assert (first != second).any() == case["stats"]["two_calls_differ"]
    for y in (first, second):
        error = SIGMAS * (rate * (1 - rate) / x.size) ** 0.5
        assert abs((y == 0).mean() - rate) <= error
        kept = y != 0
        same(y[kept], x[kept] * np.float32(case["stats"]["scale_of_kept"]))
    flow.clear_default_session()
    (y,) = run(define(lambda blob: flow.nn.dropout(blob, **case["kwargs"]), [x]), x)
    same(y, data["out:predict"])


def dynamic(case, data):
    w = data["var:w"]
    config = flow.function_config()
    config.default_logical_view(flow.scope.mirrored_view())

    @flow.global_function("predict", config)
    def job(x: tp.ListNumpy.Placeholder(tuple(case["declared"]))) -> tp.ListNumpy:
        return flow.math.relu(flow.matmul(x, variable("w", w)))

    flow.load_variables({"w": w})
    (y,) = job([data["in:x"]])
    same(y, data["out"])


KINDS = {
    "op": op,
    "lr": lr,
    "optimizer": optimizer,
    "initializer": initializer,
    "dropout": dropout,
    "dynamic": dynamic,
}


@pytest.mark.parametrize(
    "case", [c for c in CASES if not needs(c) & MISSING], ids=lambda case: case["id"]
)
def test_case(case):
    if case["id"] in LACKING:
        with pytest.raises(FlowError, match=LACKING[case["id"]]):
            KINDS[case["kind"]](case, recorded(case))
    else:
        KINDS[case["kind"]](case, recorded(case))


def test_every_case_that_lacks_something_is_there():
    assert set(LACKING) <= {case["id"] for case in CASES}


def test_what_is_missing_is_listed():
    wanted = set().union(*(needs(case) for case in CASES))
    assert wanted - set(NAMES) == MISSING


def test_seed_mlp():
    data = recorded({"id": "seed_mlp"})
    draws = np.random.RandomState(1234)
    start = {
        "hidden-weight": draws.normal(0, 0.05, (512, 784)).astype(np.float32),
        "hidden-bias": np.zeros(512, np.float32),
        "output-weight": draws.normal(0, 0.05, (10, 512)).astype(np.float32),
        "output-bias": np.zeros(10, np.float32),
    }
    images = [draws.rand(100, 1, 28, 28).astype(np.float32) for _ in range(5)]
    labels = [draws.randint(0, 10, (100,)).astype(np.int32) for _ in range(5)]

    def network(x):
        x = flow.reshape(x, [100, -1])
        x = flow.layers.dense(x, 512, activation=flow.nn.relu, name="hidden")
        return flow.layers.dense(x, 10, name="output")

    image, label = tp.Numpy.Placeholder((100, 1, 28, 28)), tp.Numpy.Placeholder((100,), flow.int32)

    @flow.global_function("train")
    def train_job(x: image, z: label) -> tp.Numpy:
        loss = flow.nn.sparse_softmax_cross_entropy_with_logits(z, network(x))
        sgd(0.1).minimize(loss)
        return loss

    @flow.global_function()
    def predict_job(x: image) -> tp.Numpy:
        return network(x)

    flow.load_variables(start, ignore_mismatch=False)
    same(predict_job(images[0]), data["predict_before"], tolerance=(2e-4, 2e-4))
    losses = [train_job(images[s % 5], labels[s % 5]) for s in range(30)]
    np.testing.assert_allclose(losses[:5], data["loss"][:5], rtol=1e-5)
    same(np.stack(losses), data["loss"], tolerance=(2e-4, 2e-4))
    same(predict_job(images[0]), data["predict_after"], tolerance=(2e-4, 2e-4))
    for name, value in values().items():
        if name in start:
            wanted = data[f"final:{name}"]
            same(value[: len(wanted)], wanted, tolerance=(2e-4, 2e-4))
