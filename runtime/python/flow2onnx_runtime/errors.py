"""The exception tree of flow2onnx: its root, and the errors of whoever runs a bundle."""

from collections.abc import Callable

from flow2onnx_runtime.tracebacks import is_traceback_full, short_traceback

__all__ = [
    "BundleError",
    "DeadlineError",
    "DeviceError",
    "FeedError",
    "FlowError",
    "NonFiniteError",
    "OptionsError",
    "OutOfMemoryError",
    "ProviderError",
    "RunError",
    "StateError",
    "UnsupportedError",
]


class FlowError(Exception):
    """Root of everything flow2onnx raises on purpose.

    `hint` says what to do; `job`, `op` and `source` (``file.py:line``) say where in the user's
    program it happened and are filled in by whoever knows them.
    """

    def __init__(
        self,
        message: str,
        *,
        hint: str | None = None,
        job: str | None = None,
        op: str | None = None,
        source: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message, self.hint, self.job, self.op, self.source = message, hint, job, op, source

    def located(self, job: str | None, op: str | None, source: str | None) -> "FlowError":
        """This error with the places filled in that it did not know; returns itself."""
        self.job, self.op, self.source = self.job or job, self.op or op, self.source or source
        return self

    @property
    def _render_traceback_(self) -> Callable[[], list[str]]:
        """The lines that IPython shows in place of all frames, unless these are asked for."""
        if is_traceback_full():
            raise AttributeError("all frames are asked for")
        return lambda: short_traceback(self)

    def __str__(self) -> str:
        head = f"{self.op}: {self.message}" if self.op else self.message
        place = ", ".join(p for p in (self.job and f"in job {self.job}", self.source) if p)
        tail = "   — ".join(p for p in (place, self.hint) if p)
        return f"{head}\n  {tail}" if tail else head


class BundleError(FlowError, ValueError):
    """A bundle, model or state file that is not what the contract asks for."""


class StateError(FlowError, AssertionError, ValueError):
    """A value that does not fit the state: unknown name, other shape, other dtype."""


class FeedError(FlowError, AssertionError, TypeError, ValueError):
    """An array given to a model that does not fit the model's input: count, name, shape, dtype."""


class RunError(FlowError, RuntimeError):
    """A model that the runtime opened but could not run on these values; the state is unchanged."""


class DeadlineError(RunError, TimeoutError):
    """A run that was ended because it took longer than it might."""


class OutOfMemoryError(RunError, MemoryError):
    """A run or a tensor for which its device has no memory left; the state is unchanged."""


class DeviceError(RunError):
    """A device that has stopped: nothing on it can be read any more, its state included."""


class OptionsError(FlowError, ValueError):
    """A session option whose name or value the runtime does not take."""


class ProviderError(FlowError, RuntimeError):
    """An execution provider that cannot be used on this machine."""


class NonFiniteError(FlowError, FloatingPointError):
    """A loss that is NaN or infinite while the stop switch is on."""


class UnsupportedError(FlowError, NotImplementedError):
    """Something that cannot be had here; the message names the nearest thing that works."""
