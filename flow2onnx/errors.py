"""The exception tree. Each class is also the builtin that OneFlow raised at the same place."""

from flow2onnx_runtime.errors import (
    BundleError,
    FlowError,
    NonFiniteError,
    ProviderError,
    StateError,
    UnsupportedError,
)
from flow2onnx_runtime.spelling import spelling_hint

__all__ = [
    "AnnotationError",
    "ArgumentError",
    "BundleError",
    "CallError",
    "CheckpointError",
    "ConfigError",
    "ContextError",
    "DTypeError",
    "DataError",
    "FlowError",
    "GradientError",
    "IndexRangeError",
    "JobError",
    "NoAttributeError",
    "NonFiniteError",
    "NotEnoughMemoryError",
    "ProviderError",
    "ScriptError",
    "ShapeError",
    "StateError",
    "TracingError",
    "UnknownShapeError",
    "UnsupportedError",
    "VariableError",
    "spelling_hint",
]


class JobError(FlowError, AssertionError):
    """A job function that cannot be made into a job."""


class AnnotationError(JobError, NotImplementedError):
    """A parameter or return annotation that is no placeholder or result type."""


class ContextError(JobError, NotImplementedError):
    """Something in the wrong phase: an operator outside a job, a job after the session began."""


class TracingError(JobError, TypeError):
    """The data of a blob asked for while its job is traced, when there is none yet."""


class NoAttributeError(FlowError, AttributeError):
    """An attribute that a blob, or a namespace of names, does not have."""


class VariableError(JobError, ValueError):
    """A variable asked for twice with different meanings, or without what it needs."""


class GradientError(JobError, NotImplementedError):
    """A loss that cannot be differentiated with respect to what is to be trained."""


class CallError(FlowError, TypeError):
    """A job called in a way no job can be called, such as with keyword arguments."""


class ArgumentError(FlowError, ValueError, AssertionError):
    """An argument whose value, count or kind is wrong."""


class IndexRangeError(ArgumentError, IndexError):
    """A position outside an axis."""


class ShapeError(ArgumentError):
    """Shapes that do not fit each other or what was declared."""


class UnknownShapeError(ShapeError):
    """A shape known at run time only where one has to be known before."""


class DTypeError(FlowError, TypeError, AssertionError):
    """Element types that do not fit each other or what was declared."""


class ConfigError(FlowError, AssertionError, ValueError):
    """An unknown setting, or a value that a setting does not take."""


class DataError(FlowError, ValueError):
    """Data that cannot be read or decoded; `place` names the file, the record and the byte."""

    def __init__(self, message: str, *, place: str | None = None, hint: str | None = None) -> None:
        super().__init__(f"{place}: {message}" if place else message, hint=hint)
        self.place = place

    def at(self, place: str) -> "DataError":
        """This error with the place filled in if it did not know; returns itself."""
        if self.place is None:
            self.place, self.message = place, f"{place}: {self.message}"
        return self


class CheckpointError(FlowError, AssertionError, RuntimeError):
    """A checkpoint that is missing, half-written, corrupt or of another model."""


class NotEnoughMemoryError(FlowError, MemoryError):
    """Jobs that need more memory than there is, told before the first step."""


class ScriptError(FlowError, OSError):
    """A script, or a job in a script, that is not there."""
