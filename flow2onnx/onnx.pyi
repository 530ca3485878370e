"""`flow.onnx`.

Written by `python -m tests.stubs` from the names that there are: change those.
"""

import builtins as _builtins
import collections.abc as _collections_abc
import flow2onnx.api.job as _flow2onnx_api_job
import os as _os
import typing as _typing

def export(job_func: _flow2onnx_api_job.JobFunction, model_save_dir: _builtins.str | _os.PathLike[_builtins.str], onnx_filename: _builtins.str | _os.PathLike[_builtins.str], continue_on_error: _builtins.bool = False, opset: _builtins.int | None = None, extra_opset: _typing.Any = None, shape_override: _collections_abc.Mapping[_builtins.str, _collections_abc.Sequence[_builtins.int]] | None = None, external_data: _builtins.bool = False) -> None:
    """Write a predict job as ONNX, with weights read from a checkpoint directory.

    The variables become initializers of their names; with `external_data` their values lie in a
    .safetensors file beside the model. Opsets before 18, which programs of the time ask for,
    become 18: reductions have another form before.
    """
