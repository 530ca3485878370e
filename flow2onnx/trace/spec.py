"""JobSpec: what every API generation makes of a decorated function."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from flow2onnx.config import FunctionConfig
from flow2onnx.dtypes import DType, by_name
from flow2onnx.trace.guessed_release import GuessedRelease
from flow2onnx.trace.releases import is_older
from flow2onnx.typing import AbsentReturn, ParameterSpec, ReturnSpec

__all__ = ["STEP_COUNTER", "JobSpec"]

_STATE = "System-Train-"
STEP_COUNTER = f"{_STATE}TrainStep-"  # begins the name of the state that counts a job's steps


@dataclass(frozen=True, kw_only=True)
class JobSpec:
    """One job: the function, what goes in and out, and in which OneFlow release's meaning.

    `parameters` has one tree for each parameter in `names`. `layer_names` says what a second layer
    without a name does: take a fresh name ("unique") or refuse ("fixed"). A `guess` is there where
    nothing told the release so far.
    """

    name: str
    function: Callable[..., Any]
    kind: Literal["train", "predict"]
    config: FunctionConfig
    release: str
    names: tuple[str, ...] = ()
    parameters: tuple[ParameterSpec, ...] = ()
    returns: ReturnSpec = field(default_factory=AbsentReturn)
    layer_names: Literal["unique", "fixed"] = "unique"
    view: Literal["mirrored", "consistent"] = "consistent"
    source: str | None = None
    guess: GuessedRelease | None = field(default=None, compare=False)

    @property
    def half(self) -> DType | None:
        """The half precision that mixed precision computes in, if the job asks for it."""
        is_mixed = self.config.value("enable_auto_mixed_precision")
        return by_name(self.config.value("runtime.mixed_precision_dtype")) if is_mixed else None

    @property
    def is_quantized(self) -> bool:
        """True if products read the 8-bit rounded values of their operands."""
        return bool(self.config.value("enable_quantization_aware_training"))

    @property
    def step_counter(self) -> str:
        """The state that counts the steps of this train job."""
        return f"{STEP_COUNTER}{self.name}"

    def state_name(self, what: str) -> str:
        """The name of a state tensor that a train job keeps for itself, as OneFlow named them."""
        return f"{_STATE}{what}-{self.name}"

    def is_before(self, release: str) -> bool:
        """True if this job speaks the API of a release before `release`."""
        return is_older(self.release, release)
