"""A repository, as `export_triton` writes it, of jobs that use what the protocol has."""

import functools
from collections.abc import Callable, Collection
from pathlib import Path

from flow2onnx_serve.ports import datatype

import flow2onnx as flow
import flow2onnx.typing as tp
from flow2onnx.api.job import JobFunction
from flow2onnx.engine.session import SESSION, Session
from flow2onnx.export import export_triton
from models import mlp
from tests.serving.models import ELEMENTS, place, types

# all but bfloat16, for which Triton's Python backend has no arrays
TYPES = {name: kind for name, kind in ELEMENTS.items() if name != "bfloat16"}
DIGITS = [f"digit {i}" for i in range(10)]


def digits(scale: float) -> JobFunction:
    @flow.global_function(type="predict")
    def digits(images: tp.Numpy.Placeholder((3, 1, 28, 28), dtype=flow.float)) -> tp.Numpy:
        return scale * mlp.network(images)

    return digits


def small_conv() -> JobFunction:
    @flow.global_function(type="predict")
    def conv(images: tp.Numpy.Placeholder((2, 1, 12, 12), dtype=flow.float)) -> tp.Numpy:
        draw = flow.random_normal_initializer(stddev=0.2)
        x = flow.layers.conv2d(images, 4, 3, padding="SAME", activation=flow.nn.relu, name="conv",
                               kernel_initializer=draw)  # fmt: skip
        x = flow.nn.max_pool2d(x, 2, 2, "VALID")
        x = flow.reshape(x, [x.shape[0], -1])
        return flow.nn.softmax(flow.layers.dense(x, 10, kernel_initializer=draw, name="out"))

    return conv


def pair() -> JobFunction:
    @flow.global_function(type="predict")
    def pair(
        scores: tp.Numpy.Placeholder((2, 5), dtype=flow.float),
        number: tp.Numpy.Placeholder((2, 5), dtype=flow.int64),
    ) -> tuple[tp.Numpy, tp.Numpy, tp.Numpy]:
        whole = flow.cast(number, flow.float)
        return scores * whole, flow.math.argmax(scores), flow.math.greater(scores, whole)

    return pair


def lookup() -> JobFunction:
    @flow.global_function(type="predict")
    def lookup(indices: tp.Numpy.Placeholder((3,), dtype=flow.int32)) -> tp.Numpy:
        table = flow.get_variable("table", (7, 2), flow.float, flow.random_normal_initializer())
        return flow.gather(table, indices)

    return lookup


def kinds() -> JobFunction:
    """An input of each element type, given back."""
    placeholder = tp.Numpy.Placeholder

    @flow.global_function(type="predict")
    def kinds(
        float16: placeholder((2, 3), dtype=flow.float16),
        float64: placeholder((2, 3), dtype=flow.float64),
        int8: placeholder((2, 3), dtype=flow.int8),
        uint8: placeholder((2, 3), dtype=flow.uint8),
        int32: placeholder((2, 3), dtype=flow.int32),
        int64: placeholder((2, 3), dtype=flow.int64),
    ) -> tuple[(tp.Numpy,) * 6]:
        return tuple(flow.identity(x) for x in (float16, float64, int8, uint8, int32, int64))

    return kinds


MODELS = ("conv", "digits", "fixed", "kinds", "lookup", "pair", "types")


def write(repository: Path, names: Collection[str] = MODELS) -> Path:
    """Export those models; `digits` twice, with other values, so that both versions are served."""
    if "conv" in names:
        _export(small_conv, repository, labels=DIGITS)
    if "fixed" in names:
        _export(small_conv, repository, name="fixed", batch=3)
    if "pair" in names:
        _export(pair, repository, max_batch=4)
    if "lookup" in names:
        _export(lookup, repository)
    if "kinds" in names:
        _export(kinds, repository)
    if "types" in names:
        place(repository, "types", types(TYPES), 1, _types_config())
    if "digits" in names:
        for scale in (1.0, 2.0):
            _export(functools.partial(digits, scale), repository, labels=DIGITS)
        _serve_all(repository / "digits" / "config.pbtxt")
    return repository


def _serve_all(config: Path) -> None:
    """Let every version answer, not the newest alone."""
    text = config.read_text()
    latest = "latest {\n    num_versions: 1\n  }"
    assert latest in text, text
    config.write_text(text.replace(latest, "all { }"))


def _types_config() -> str:
    """Types that no job has, bool and unsigned integers among them, in a model of fixed shapes."""
    ports = [f'name: "{{}}{name}" data_type: TYPE_{datatype(name)} dims: [2, 3]'
             for name in TYPES]  # fmt: skip
    lines = [f"input {{ {port.format('')} }}" for port in ports]
    lines += [f"output {{ {port.format('same/')} }}" for port in ports]
    return "\n".join(['backend: "onnxruntime"', *lines])


def _export(job: Callable[[], JobFunction], repository: Path, **options: object) -> None:
    token = SESSION.set(Session())
    try:
        report = export_triton(job(), repository, **options)
    finally:
        SESSION.reset(token)
    assert report.ok, str(report)
