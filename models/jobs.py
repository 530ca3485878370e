"""The jobs that a factory returns."""

from dataclasses import dataclass

from flow2onnx.api.job import JobFunction


@dataclass(frozen=True)
class Jobs:
    """The jobs of a network, which share its variables."""

    train: JobFunction
    evaluate: JobFunction
    predict: JobFunction
