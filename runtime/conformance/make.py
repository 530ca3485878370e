"""Make the conformance bundles and their traces: python runtime/conformance/make.py [NAME ...].

Needs the compiler; the traces are what the Python runtime computed on the CPU. Everything is drawn
from seeds. Activations have no kinks, so that rounding stays rounding.
"""

import json
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from flow2onnx_runtime import Options, Trainer, save_safetensors

import flow2onnx as flow
import flow2onnx.typing as tp
from flow2onnx.engine.session import SESSION, Session

HERE = Path(__file__).parent
OPTIONS = Options(intra_op_threads=1)
Arrays = dict[str, np.ndarray[Any, Any]]
Action = dict[str, Any]
Normal = flow.random_normal_initializer


@dataclass(frozen=True)
class Case:
    """A bundle to make: jobs, feeds stacked by batch, actions without their outcomes."""

    define: Callable[[], tuple[Any, Any]]
    feeds: Callable[[np.random.Generator], Arrays]
    actions: list[Action]
    tolerance: float = 1e-5
    options: dict[str, Any] = field(default_factory=dict)


def tanh_dense(x: Any, units: int, name: str) -> Any:
    """A dense layer with tanh."""
    return flow.math.tanh(dense(x, units, name))


def dense(x: Any, units: int, name: str) -> Any:
    """A dense layer."""
    return flow.layers.dense(x, units, kernel_initializer=Normal(stddev=0.2), name=name)


def digits(shape: tuple[int, ...]) -> Callable[[np.random.Generator], Arrays]:
    """Ten prototypes with noise, and which it was: learnable, and made of nothing."""

    def feeds(rng: np.random.Generator) -> Arrays:
        labels = rng.integers(0, 10, (BATCHES, BATCH)).astype(np.int32)
        prototypes = rng.standard_normal((10, *shape)).astype(np.float32)
        noise = 0.3 * rng.standard_normal((BATCHES, BATCH, *shape)).astype(np.float32)
        return {"images": prototypes[labels] + noise, "labels": labels}

    return feeds


BATCH, BATCHES = 8, 4


def classifier(
    shape: tuple[int, ...], body: Callable[[Any], Any], minimize: Callable[[Any], None]
) -> tuple[Any, Any]:
    """A train job and a predict job of ten classes."""

    @flow.global_function(type="train")
    def train_job(
        images: tp.Numpy.Placeholder((BATCH, *shape), dtype=flow.float),
        labels: tp.Numpy.Placeholder((BATCH,), dtype=flow.int32),
    ) -> tp.Numpy:
        loss = flow.nn.sparse_softmax_cross_entropy_with_logits(labels, body(images))
        minimize(loss)
        return loss

    @flow.global_function(type="predict")
    def predict_job(
        images: tp.Numpy.Placeholder((BATCH, *shape), dtype=flow.float),
    ) -> tp.Numpy:
        return flow.nn.softmax(body(images))

    return train_job, predict_job


def constant(rate: float) -> Any:
    """The same rate in all steps."""
    return flow.optimizer.PiecewiseConstantScheduler([], [rate])


def mlp() -> tuple[Any, Any]:
    """Two dense layers, momentum, a schedule that changes at step 20."""

    def body(x: Any) -> Any:
        return dense(tanh_dense(x, 16, "hidden"), 10, "output")

    def minimize(loss: Any) -> None:
        rate = flow.optimizer.PiecewiseConstantScheduler([20], [0.1, 0.05])
        flow.optimizer.SGD(rate, momentum=0.9).minimize(loss)

    return classifier((20,), body, minimize)


def lenet() -> tuple[Any, Any]:
    """Convolutions with average pools, a dense layer, plain gradient descent; no dropout."""

    def stage(x: Any, channels: int, index: int) -> Any:
        x = flow.layers.conv2d(
            x, channels, 3, padding="SAME", kernel_initializer=Normal(stddev=0.2),
            name=f"conv{index}", activation=flow.math.tanh,
        )  # fmt: skip
        return flow.nn.avg_pool2d(x, ksize=2, strides=2, padding="VALID", name=f"pool{index}")

    def body(x: Any) -> Any:
        flat = flow.reshape(stage(stage(x, 4, 1), 8, 2), [BATCH, -1])
        return dense(tanh_dense(flat, 16, "dense1"), 10, "dense2")

    def minimize(loss: Any) -> None:
        flow.optimizer.SGD(constant(0.5), momentum=0).minimize(loss)

    return classifier((1, 8, 8), body, minimize)


TOKENS, WIDTH, WORDS = 6, 16, 12


def transformer() -> tuple[Any, Any]:
    """One block of attention and a two-layer perceptron with GELU, layer norms, Adam."""

    def rows(x: Any, units: int, name: str) -> Any:
        flat = flow.reshape(x, [-1, int(x.shape[-1])])
        return flow.reshape(dense(flat, units, name), [*x.shape[:-1], units])

    def body(words: Any) -> Any:
        table = flow.get_variable("embedding", (WORDS, WIDTH), flow.float, Normal(stddev=0.3))
        places = flow.get_variable("places", (1, TOKENS, WIDTH), flow.float, Normal(stddev=0.3))
        x = flow.math.add(flow.gather(table, words), places)
        y = flow.layers.layer_norm(x, begin_norm_axis=-1, begin_params_axis=-1, name="norm1")
        q, k, v = (rows(y, WIDTH, name) for name in ("query", "key", "value"))
        scores = flow.matmul(q, k, transpose_b=True) * (WIDTH**-0.5)
        x = x + rows(flow.matmul(flow.nn.softmax(scores), v), WIDTH, "mixed")
        y = flow.layers.layer_norm(x, begin_norm_axis=-1, begin_params_axis=-1, name="norm2")
        x = x + rows(flow.math.gelu(rows(y, 2 * WIDTH, "wide")), WIDTH, "narrow")
        return rows(x, WORDS, "words")

    @flow.global_function(type="train")
    def train_job(
        words: tp.Numpy.Placeholder((BATCH, TOKENS), dtype=flow.int32),
        following: tp.Numpy.Placeholder((BATCH, TOKENS), dtype=flow.int32),
    ) -> tp.Numpy:
        loss = flow.nn.sparse_softmax_cross_entropy_with_logits(following, body(words))
        flow.optimizer.Adam(constant(0.01), do_bias_correction=True, epsilon=1e-3).minimize(loss)
        return flow.math.reduce_mean(loss)

    @flow.global_function(type="predict")
    def predict_job(
        words: tp.Numpy.Placeholder((BATCH, TOKENS), dtype=flow.int32),
    ) -> tp.Numpy:
        return body(words)

    return train_job, predict_job


def sentences(rng: np.random.Generator) -> Arrays:
    """Words of which each decides the next."""
    follows = rng.permutation(WORDS)
    words = [rng.integers(0, WORDS, (BATCHES, BATCH))]
    for _ in range(TOKENS):
        words.append(follows[words[-1]])
    line = np.stack(words, -1).astype(np.int32)
    return {
        "words": np.ascontiguousarray(line[..., :-1]),
        "following": np.ascontiguousarray(line[..., 1:]),
    }


def mixed() -> tuple[Any, Any]:
    """The products in float16, the variables and sums in float32, a loss scale."""

    def half(x: Any, units: int, name: str) -> Any:
        shape = (int(x.shape[1]), units)
        weight = flow.get_variable(f"{name}-weight", shape, flow.float, Normal(stddev=0.2))
        product = flow.matmul(flow.cast(x, flow.float16), flow.cast(weight, flow.float16))
        bias = flow.get_variable(f"{name}-bias", (units,), flow.float, flow.zeros_initializer())
        return flow.nn.bias_add(flow.cast(product, flow.float), bias)

    def body(x: Any) -> Any:
        return half(flow.math.tanh(half(x, 16, "hidden")), 10, "output")

    def minimize(loss: Any) -> None:
        flow.optimizer.SGD(constant(0.1), 128.0, momentum=0.9).minimize(loss)

    return classifier((20,), body, minimize)


# What the tensors of `named` are trained by, each by another rule.
RULES = {
    "input-scale": "lars", "input-shift": "lion",
    "hidden-weight": "muon", "hidden-bias": "nadam",
    "hidden-scale": "adagrad(lr_decay=0.1)", "hidden-shift": "adadelta",
    "middle-weight": "adamw(amsgrad=True)", "middle-bias": "radam",
    "middle-scale": "lamb", "middle-shift": "sgd(momentum=0.5, dampening=0.5)",
    "output-weight": "adam", "output-bias": "sgd(momentum=0.9, nesterov=True)",
    "output-scale": "adamax", "output-shift": "rmsprop(centered=True, momentum=0.5)",
}  # fmt: skip


def named() -> tuple[Any, Any]:
    """Every optimizer by name on a tensor of its own; a schedule, clipping, averages of weights."""

    def tuned(x: Any, name: str) -> Any:
        start = {"scale": flow.ones_initializer(), "shift": flow.zeros_initializer()}
        scale, shift = (
            flow.get_variable(f"{name}-{what}", x.shape[1:], flow.float, initializer)
            for what, initializer in start.items()
        )
        return x * scale + shift

    def body(x: Any) -> Any:
        x = tuned(x, "input")
        for name in ("hidden", "middle"):
            x = tuned(tanh_dense(x, 16, name), name)
        return tuned(dense(x, 10, "output"), "output")

    def minimize(loss: Any) -> None:
        groups = {name: {"optimizer": rule} for name, rule in RULES.items()}
        flow.optimizer.named(
            "adamw", 0.05, schedule="one_cycle(total_steps=60)", groups=groups, clip_value=0.5,
            clip_norm=1.0, ema=0.9,
        ).minimize(loss)  # fmt: skip

    return classifier((20,), body, minimize)


def steps(count: int, first: int = 0) -> list[Action]:
    """Steps on one batch after the other."""
    return [{"do": "step", "batch": i % BATCHES} for i in range(first, first + count)]


def sums(batches: int) -> list[Action]:
    """One step by the mean gradients of the first batches."""
    return [*({"do": "accumulate", "batch": i} for i in range(batches)), {"do": "update"}]


CASES = {
    "mlp": Case(
        mlp,
        digits((20,)),
        [
            *steps(30), {"do": "evaluate", "batch": 1}, {"do": "predict", "batch": 2},
            {"do": "rate", "value": 0.02}, *steps(10), {"do": "rate", "value": None}, *steps(5),
            *sums(3), *sums(2), {"do": "freeze", "names": ["hidden-weight", "hidden-bias"]},
            *steps(5), {"do": "freeze", "names": []}, *steps(5),
            {"do": "save"}, *steps(3), {"do": "load"}, *steps(10),
        ],
        options={"accumulate": True},
    ),
    "lenet": Case(lenet, digits((1, 8, 8)), [*steps(60), {"do": "predict", "batch": 0}]),
    "transformer": Case(transformer, sentences, [*steps(60), {"do": "predict", "batch": 0}]),
    "mixed": Case(
        mixed, digits((20,)), [*steps(40), {"do": "predict", "batch": 0}], tolerance=1e-5
    ),
    "named": Case(
        named,
        digits((20,)),
        [*steps(50), {"do": "save"}, *steps(3), {"do": "load"}, *steps(5),
         {"do": "rate", "value": 0.005}, *steps(5), {"do": "predict", "batch": 0}],
    ),
}  # fmt: skip


def make(name: str, case: Case) -> None:
    """Write bundle, feeds, trace and final state of one case."""
    folder = HERE / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    feeds = case.feeds(np.random.default_rng(sum(name.encode())))
    save_safetensors(folder / "feeds.safetensors", feeds)
    export(case, folder / "bundle")
    trainer = Trainer(folder / "bundle", OPTIONS)
    trace = [outcome(trainer, dict(action), feeds, folder) for action in case.actions]
    trainer.save(folder / "state.safetensors")
    content = {"format": "flow2onnx-trace", "version": 1, "tolerance": case.tolerance}
    lines = ",\n".join(json.dumps(action) for action in trace)
    head = json.dumps(content).removesuffix("}")
    (folder / "trace.json").write_text(f'{head}, "actions": [\n{lines}\n]}}\n')


def export(case: Case, target: Path) -> None:
    """The bundle, from a session of its own."""
    own = Session()
    token = SESSION.set(own)
    try:
        train_job, predict_job = case.define()
        report = train_job.export(target, predict=predict_job, on_device=True, **case.options)
        report.raise_if_failed()
    finally:
        own.close()
        SESSION.reset(token)


def outcome(trainer: Trainer, action: Action, feeds: Arrays, folder: Path) -> Action:
    """Do one action; the action with what came of it."""
    given = {n: v[action["batch"]] for n, v in feeds.items()} if "batch" in action else {}
    kind = action["do"]
    if kind in ("step", "evaluate", "accumulate"):
        results = getattr(trainer, kind)(**given)
    elif kind == "predict":
        names = {f.name for f in trainer.manifest.predict[0].feeds}
        results = trainer.predict(**{n: v for n, v in given.items() if n in names})
    else:
        settle(trainer, action, folder / "between.safetensors")
        return action
    return action | {"results": {n: shown(v) for n, v in results.items()}}


def settle(trainer: Trainer, action: Action, saved: Path) -> None:
    """Do an action that has no results."""
    if action["do"] == "update":
        trainer.update()
    elif action["do"] == "rate":
        trainer.learning_rate = action["value"]
    elif action["do"] == "freeze":
        trainer.freeze(*action["names"])
    elif action["do"] == "save":
        trainer.save(saved)
    else:
        assert action["do"] == "load", f"unknown action {action}"
        trainer.load(saved)
        saved.unlink()


def shown(values: np.ndarray[Any, Any]) -> list[float]:
    """The elements in C order, at most sixteen, to nine digits."""
    return [float(f"{v:.9g}") for v in values.ravel()[:16]]


if __name__ == "__main__":
    for chosen in sys.argv[1:] or CASES:
        make(chosen, CASES[chosen])
        size = sum(p.stat().st_size for p in (HERE / chosen).rglob("*") if p.is_file())
        print(f"{chosen}: {size} bytes")
