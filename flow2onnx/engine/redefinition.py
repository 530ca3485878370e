"""Jobs of a running session that are defined again, as cells of a notebook are run again."""

import sys
from collections.abc import Callable, Mapping

from flow2onnx_runtime import State
from flow2onnx_runtime.dtypes import Array

from flow2onnx.compile import CompiledJob
from flow2onnx.engine.variables import merge_variables
from flow2onnx.errors import VariableError
from flow2onnx.trace.spec import JobSpec
from flow2onnx.trace.variables import Variable

__all__ = ["compile_together", "is_interactive", "keep_values"]


def is_interactive() -> bool:
    """True in a notebook or at a prompt, where a program is written while it runs."""
    return hasattr(sys, "ps1")


def compile_together(
    specs: Mapping[str, JobSpec], compile_spec: Callable[[JobSpec], CompiledJob]
) -> tuple[dict[str, CompiledJob], dict[str, Exception]]:
    """The jobs that can be compiled and fit each other, and why the others cannot.

    Where two mean different variables by one name, the one that was defined later stays. If no job
    can be compiled, the error of the last one is raised.
    """
    found: dict[str, CompiledJob] = {}
    aside: dict[str, Exception] = {}
    for name in reversed(list(specs)):
        try:
            job = compile_spec(specs[name])
            merge_variables([*found.values(), job])
        except VariableError as error:
            error.hint = f"define {name} again, as other jobs were defined after it"
            aside[name] = error
        except Exception as error:  # the body is the user's, and may raise anything
            aside[name] = error
        else:
            found[name] = job
    if not found:
        raise aside[list(specs)[-1]]
    return {name: found[name] for name in specs if name in found}, aside


def keep_values(
    before: Mapping[str, Array],
    known: Mapping[str, Variable],
    state: State,
    variables: Mapping[str, Variable],
) -> str:
    """Give variables the values that they had; what is said of those whose shape is another now.

    `before` has the values as they lay in memory, and `known` the variables that they were of.
    """
    changed = []
    for name, variable in variables.items():
        old = known.get(name)
        if old is None or name not in before:
            continue
        if (old.shape, old.dtype, old.parts) == (variable.shape, variable.dtype, variable.parts):
            state.write(name, before[name])
        elif variable.role == "variable":
            changed.append(
                f"{name} is {variable.dtype.name} {variable.shape} now, it was {old.dtype.name} "
                f"{old.shape}, and begins anew with {variable.initializer}"
            )
    return "; ".join(changed)
