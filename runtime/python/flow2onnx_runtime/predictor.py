"""Predict with a model file, or with a predict job of a bundle."""

import os
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from flow2onnx_runtime.bundle import Bundle
from flow2onnx_runtime.options import DEFAULT_OPTIONS, Model, Options
from flow2onnx_runtime.program import Program

__all__ = ["Predictor"]


class Predictor:
    """A model that takes arrays, by position or by name, and gives a dict of results.

    `model` is an .onnx file or its bytes, or the folder of a bundle, of which `job` names the
    predict job; it predicts with the weights that the bundle holds. Any number of threads may
    call one predictor at once.
    """

    def __init__(
        self, model: Model, options: Options = DEFAULT_OPTIONS, *, job: str | None = None
    ) -> None:
        self._program = _open(model, options, job)
        self.feeds, self.results = self._program.feeds, self._program.results

    def __call__(self, *arrays: Any, **named_arrays: Any) -> dict[str, NDArray[Any]]:
        """The results by name; raises `FeedError` for arrays that do not fit."""
        given = self._program.arrange(arrays, named_arrays)
        return self._program.by_name(self._program.run(given))


def _open(model: Model, options: Options, job: str | None) -> Program:
    if isinstance(model, bytes) or not os.path.isdir(model):
        return Program(model, None, options)
    bundle = Bundle(Path(model))
    entry = bundle.predict_job(job)
    state = bundle.first_state(options) if entry.reads else None
    return bundle.predict(entry, state, options)
