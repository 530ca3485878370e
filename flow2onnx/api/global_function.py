"""`flow.global_function`: releases 0.1.0 to 0.4.0, by keyword and in the older positional form."""

import inspect
import sys
import warnings
from collections.abc import Callable
from typing import Any, Literal

from flow2onnx.api.hints import hints_of
from flow2onnx.api.job import JobFunction, define
from flow2onnx.api.session import current_session
from flow2onnx.api.tensor_def import defaults_of, uses_tensor_defs
from flow2onnx.config import FunctionConfig
from flow2onnx.errors import AnnotationError, ArgumentError, FlowError, JobError
from flow2onnx.source import place, user_frame
from flow2onnx.trace.guessed_release import GuessedRelease
from flow2onnx.trace.releases import GENERATIONS
from flow2onnx.trace.spec import JobSpec
from flow2onnx.typing import ParameterSpec, ReturnSpec, parse_parameter, parse_return

__all__ = ["global_function", "spec_of"]

Decorator = Callable[[Callable[..., Any]], JobFunction]


def global_function(
    type: str | FunctionConfig = "predict", function_config: FunctionConfig | None = None
) -> Decorator:
    """Make a function a job: ``type="train"`` or ``"predict"``, under a configuration.

    With a configuration as the only argument, as up to 0.1.5, the job trains if some
    ``config.train`` setting was made.
    """
    if isinstance(type, FunctionConfig):
        warnings.warn(
            "flow.global_function(func_config) is deprecated: use "
            "flow.global_function(type=..., function_config=...)",
            DeprecationWarning,
            stacklevel=2,
        )
        config = type
        return lambda function: define(spec_of(function, config, "b"))
    if type not in ("train", "predict"):
        hint = 'write @flow.global_function(type="train") or (type="predict")'
        raise ArgumentError(f"type is {type!r}", source=user_frame(), hint=hint)
    given = FunctionConfig() if function_config is None else function_config
    if not isinstance(given, FunctionConfig):
        raise ArgumentError(
            f"function_config is {given!r}", source=user_frame(), hint="use flow.function_config()"
        )
    given.mark(type)
    return lambda function: define(spec_of(function, given, "c"))


def spec_of(function: Callable[..., Any], config: FunctionConfig, generation: str) -> JobSpec:
    """The job spec of a decorated function and its configuration, by the rules of a generation."""
    if not callable(function) or not hasattr(function, "__name__"):
        raise ArgumentError(
            f"a job is a function, got {function!r}",
            source=user_frame(),
            hint="decorate a def, whose name becomes the name of the job",
        )
    source = _source(function)
    try:
        signature = inspect.signature(function)
        names, parameters, returns = _interface(function, signature)
    except FlowError as error:
        raise error.located(function.__name__, None, source) from None
    is_early = generation in ("a", "b")
    return JobSpec(
        name=function.__name__,
        function=function,
        kind="train" if config.is_train else "predict",
        config=config.copy(),
        names=names,
        parameters=parameters,
        returns=returns,
        release=current_session().release or GENERATIONS[generation],
        layer_names="unique" if is_early else "fixed",
        view=_view(config, is_early),
        source=source,
        guess=_guess(generation),
    )


def _guess(generation: str) -> GuessedRelease | None:
    """The guess shared by jobs of OneFlow's programs whose decorator does not tell the release."""
    session = current_session()
    is_told = generation == "a" or session.release or not _is_for_oneflow()
    return None if is_told else session.guess


def _is_for_oneflow() -> bool:
    """True in a program that imports our `oneflow`, in a form of more than the last releases."""
    is_ours = type(sys.modules.get("oneflow")).__module__.startswith("flow2onnx.")
    return is_ours and "oneflow.compatible" not in sys.modules


def _view(config: FunctionConfig, is_early: bool) -> Literal["mirrored", "consistent"]:
    chosen = config.value("default_logical_view")
    is_mirrored = is_early if chosen is None else chosen.view == "mirrored"
    return "mirrored" if is_mirrored else "consistent"


def _interface(
    function: Callable[..., Any], signature: inspect.Signature
) -> tuple[tuple[str, ...], tuple[ParameterSpec, ...], ReturnSpec]:
    parameters = list(signature.parameters.values())
    hints = hints_of(function, signature)
    returns = parse_return(hints.get("return", inspect.Signature.empty))
    for p in parameters:
        if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD, p.KEYWORD_ONLY):
            raise JobError(
                "no parameters like *args or **kwargs supported", hint=f"{p.name} is one: name it"
            )
    names = tuple(p.name for p in parameters)
    if uses_tensor_defs(parameters, hints) and not current_session().demands_annotations:
        return names, defaults_of(parameters), returns
    missing = [p.name for p in parameters if p.name not in hints]
    if missing:
        raise AnnotationError(
            "All parameters of global function should be annotated",
            hint=f"annotate {', '.join(missing)} with tp.Numpy.Placeholder(shape)",
        )
    if "return" not in hints and current_session().demands_annotations:
        raise AnnotationError(
            "the result of global function should be annotated",
            hint="annotate it, as in -> tp.Numpy, or leave flow.experimental.enable_typing_check",
        )
    return names, tuple(parse_parameter(hints[n]) for n in names), returns


def _source(function: Callable[..., Any]) -> str | None:
    code = getattr(function, "__code__", None)
    return None if code is None else place(code.co_filename, code.co_firstlineno)
