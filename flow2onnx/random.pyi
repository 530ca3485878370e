"""`flow.random`.

Written by `python -m tests.stubs` from the names that there are: change those.
"""

import builtins as _builtins
import flow2onnx.dtypes as _flow2onnx_dtypes
import flow2onnx.trace.blob as _flow2onnx_trace_blob
import numpy.typing as _numpy_typing
import typing as _typing

def CoinFlip(batch_size: _builtins.int = 1, seed: _builtins.int | None = None, probability: _builtins.float = 0.5, name: _builtins.str | None = 'CoinFlip') -> _flow2onnx_trace_blob.Blob:
    """1 with `probability` for each sample, else 0, int8."""
def bernoulli(x: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], seed: _builtins.int | None = None, dtype: _flow2onnx_dtypes.DType | None = None, name: _builtins.str | None = 'Bernoulli') -> _flow2onnx_trace_blob.Blob:
    """1 with the probability that each element of `x` is, else 0."""
def coin_flip(batch_size: _builtins.int = 1, seed: _builtins.int | None = None, probability: _builtins.float = 0.5, name: _builtins.str | None = 'CoinFlip') -> _flow2onnx_trace_blob.Blob:
    """1 with `probability` for each sample, else 0, int8."""
def gen_seed(seed: _builtins.int | None = None) -> _builtins.tuple[_builtins.int, _builtins.bool]:
    """A seed, and whether it is one: -1 and False in a mirrored view that is given none."""
def generate_random_batch_permutation_indices(value: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], seed: _builtins.int | None = None, name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """The numbers of the samples of `value` in random order, int32."""
def shuffle(value: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], seed: _builtins.int | None = None, name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """The samples of `value` in random order."""
