"""Predict with a model file, or with a predict job of a bundle."""

import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flow2onnx_runtime.bundle import Bundle
from flow2onnx_runtime.errors import FeedError
from flow2onnx_runtime.options import DEFAULT_OPTIONS, Model, Options
from flow2onnx_runtime.program import Program

__all__ = ["Predictor"]

_BATCH = 256  # rows at a time where the model takes any number


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

    def many(
        self, *arrays: Any, batch: int | None = None, **named_arrays: Any
    ) -> dict[str, NDArray[Any]]:
        """The results for any number of rows, computed in batches of the model's size.

        Rows are along the first axis of every input and result. The last batch is filled up with
        its last row, whose results are left out. `batch` chooses the size where the model leaves
        it open, 256 unless given; rows must not influence each other.
        """
        given = [np.asarray(a) for a in self._program.arrange(arrays, named_arrays)]
        rows = self._rows(given)
        size = self._batch_size(batch)
        parts = []
        for start in range(0, rows, size):
            count = min(size, rows - start)
            chosen = np.minimum(np.arange(start, start + size), rows - 1)
            found = self._program.run([array[chosen] for array in given])
            parts.append([self._part(value, size)[:count] for value in found])
        whole = [np.concatenate(column) for column in zip(*parts, strict=True)]
        return self._program.by_name(whole)

    def _rows(self, given: list[NDArray[Any]]) -> int:
        counts = {array.shape[0] if array.ndim else 0 for array in given}
        if len(counts) != 1 or 0 in counts:
            raise FeedError(
                f"{self._program.name}: arrays of {[a.shape for a in given]} have no common rows",
                hint="give arrays with the same number of rows, at least one, along the first axis",
            )
        return counts.pop()

    def _batch_size(self, batch: int | None) -> int:
        fixed = {feed.shape[0] for feed in self.feeds if feed.shape}
        sizes = {size for size in fixed if isinstance(size, int)}
        if len(sizes) > 1 or (batch is not None and (batch < 1 or sizes - {batch})):
            raise FeedError(
                f"{self._program.name} takes batches of {sorted(sizes) or 'any size'}, "
                f"batch is {batch}",
                hint="leave batch out",
            )
        return sizes.pop() if sizes else batch or _BATCH

    def _part(self, value: NDArray[Any], size: int) -> NDArray[Any]:
        if value.ndim == 0 or value.shape[0] != size:
            raise FeedError(
                f"{self._program.name}: a result of shape {value.shape} for {size} rows "
                "is not one of rows",
                hint="call the predictor batch by batch",
            )
        return value


def _open(model: Model, options: Options, job: str | None) -> Program:
    if isinstance(model, bytes) or not os.path.isdir(model):
        return Program(model, None, options)
    bundle = Bundle(Path(model))
    entry = bundle.predict_job(job)
    state = bundle.first_state(options) if entry.reads else None
    return bundle.predict(entry, state, options)
