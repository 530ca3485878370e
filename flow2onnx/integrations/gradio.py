"""Gradio: a page that asks a model, made of what the model takes and gives."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from flow2onnx_runtime import FlowError, OptionsError
from flow2onnx_runtime.dtypes import Array

from flow2onnx.integrations import models
from flow2onnx.integrations.models import Source, open_predictor
from flow2onnx.integrations.packages import package

if TYPE_CHECKING:
    from flow2onnx_runtime import TensorInfo

__all__ = ["page"]

_CHANNELS = {1: "L", 3: "RGB"}  # Gradio's names of the modes of a picture


def page(
    source: Source,
    *,
    job: str | None = None,
    labels: Sequence[str] | None = None,
    softmax: bool = True,
    scale: float = 255.0,
    **settings: Any,
) -> Any:
    """An Interface of Gradio over a trainer's or bundle's predict job, or over a model file.

    `page("bundle").launch()` serves it. Each input is asked for one row: as a picture where the
    model takes real numbers of shape (rows, 1 or 3, height, width) or (rows, height, width, 1 or
    3), which are pixels divided by `scale`; as a line of numbers otherwise. With `labels`, one for
    each score of the first result, the answer is bars of their chances: the softmax of the scores,
    or the scores as they are with `softmax=False`. Other results are lists. `settings` are those of
    `gradio.Interface`. Of a trainer the weights are those at this call.
    """
    gradio = package("gradio")
    predictor = open_predictor(source, job)
    if labels is not None:
        _check_labels(predictor.outputs[0], labels)
    asked = [_question(gradio, info, scale) for info in predictor.inputs]
    shown = [gradio.JSON(label=info.name) for info in predictor.outputs]
    if labels is not None:
        shown[0] = gradio.Label(num_top_classes=5, label=predictor.outputs[0].name)

    def answer(*given: Any) -> Any:
        try:
            rows = [read(value) for (_, read), value in zip(asked, given, strict=True)]
            results = list(predictor.many(*rows).values())
        except (FlowError, ValueError) as error:
            raise gradio.Error(str(error)) from error
        answers: list[Any] = [np.asarray(result[0]).tolist() for result in results]
        if labels is not None:
            answers[0] = _chances(np.asarray(results[0][0]).ravel(), labels, softmax)
        return answers[0] if len(answers) == 1 else answers

    given = {"flagging_mode": "never", "api_name": "predict", **settings}
    return gradio.Interface(answer, [component for component, _ in asked], shown, **given)


def _check_labels(scores: "TensorInfo", labels: Sequence[str]) -> None:
    count = scores.shape[-1] if scores.shape else 1
    if isinstance(count, int) and count != len(labels):
        raise OptionsError(f"{len(labels)} labels are given, {scores.name} has {count} scores")


def _chances(scores: Array, labels: Sequence[str], softmax: bool) -> dict[str, float]:
    """The chance of each label."""
    chances = models.softmax(scores) if softmax else scores
    return dict(zip(labels, map(float, chances), strict=True))


def _question(gradio: Any, info: "TensorInfo", scale: float) -> tuple[Any, Callable[[Any], Array]]:
    """The part of the page that asks for one row of an input, and what makes the row of that."""
    sizes = list(info.shape[1:])
    is_real = np.issubdtype(info.dtype, np.floating)
    if is_real and len(sizes) == 3 and all(isinstance(size, int) for size in sizes):
        axis = next((axis for axis in (0, 2) if sizes[axis] in _CHANNELS), None)
        if axis is not None:
            mode = _CHANNELS[int(sizes[axis])]
            component = gradio.Image(type="pil", image_mode=mode, label=info.name)
            return component, lambda picture: _pixels(picture, info, axis, scale)
    text = f"{info.name}: {' x '.join(map(str, sizes)) or 'one'} numbers"
    return gradio.Textbox(label=text, placeholder="0.5, 1, …"), lambda line: _row(line, info)


def _pixels(picture: Any, info: "TensorInfo", channels: int, scale: float) -> Array:
    """A picture as a row of an input, brought to its size."""
    if picture is None:
        raise ValueError(f"{info.name}: give a picture")
    sizes = [int(size) for size in info.shape[1:]]
    height, width = (size for axis, size in enumerate(sizes) if axis != channels)
    pixels = np.asarray(picture.resize((width, height)), np.float32) / scale
    pixels = pixels.reshape(height, width, sizes[channels])
    if channels == 0:
        pixels = pixels.transpose(2, 0, 1)
    return np.ascontiguousarray(pixels[None]).astype(info.dtype)


def _row(line: str, info: "TensorInfo") -> Array:
    """A line of numbers as a row of an input."""
    words = (line or "").replace(",", " ").split()
    shape = models.fit_shape(info.shape[1:], len(words))
    if shape is None:
        wanted = " x ".join(map(str, info.shape[1:])) or "1"
        raise ValueError(f"{info.name}: {len(words)} numbers are given, it takes {wanted}")
    try:
        values = np.array([float(word) for word in words])
    except ValueError:
        raise ValueError(f"{info.name}: numbers, separated by commas, are asked for") from None
    if not np.issubdtype(info.dtype, np.floating) and (values != np.trunc(values)).any():
        raise ValueError(f"{info.name} takes whole numbers")
    return values.astype(info.dtype).reshape(1, *shape)
