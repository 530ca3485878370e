"""Jobs and checks that the tests of the API share."""

import contextlib
import linecache
import os
import re
import sys
from collections.abc import Iterator

import numpy as np
import pytest

import flow2onnx as flow
import flow2onnx.typing as tp
from flow2onnx.errors import FlowError


def f32(*values):
    return np.array(values, np.float32)


def rate(value):
    return flow.optimizer.PiecewiseConstantScheduler([], [value])


def sgd(value, momentum=0, **options):
    return flow.optimizer.SGD(rate(value), momentum=momentum, **options)


def variable(name="w", shape=(2,), value=1.0, **options):
    return flow.get_variable(name, shape, initializer=flow.constant_initializer(value), **options)


def doubling_job():
    """A predict job without variables."""

    @flow.global_function()
    def double(x: tp.Numpy.Placeholder((2,))) -> tp.Numpy:
        return x * 2

    return double


def values(*names):
    found = flow.get_all_variables()
    return [found[name].numpy() for name in names]


@contextlib.contextmanager
def raises(
    kind: type[FlowError],
    builtin: type[Exception],
    text: str = "",
    *,
    at: str | None = None,
    job: str | None = None,
    has_hint: bool = True,
) -> Iterator[pytest.ExceptionInfo[FlowError]]:
    """`pytest.raises`, and the error is the builtin too, says what to do and where it happened.

    `at` is a piece of the line of the calling file that the error has to point at.
    """
    caller = sys._getframe(2).f_code.co_filename
    with pytest.raises(kind, match=re.escape(text) if text else None) as info:
        yield info
    error = info.value
    assert isinstance(error, builtin), f"{type(error)} is no {builtin}"
    assert error.hint or not has_hint, f"no hint: {error}"
    if job is not None:
        assert error.job == job, f"job {error.job}"
        assert f"in job {job}" in str(error)
    if at is not None:
        assert error.source, f"no place: {error}"
        name, _, line = error.source.rpartition(":")
        assert os.path.basename(name) == os.path.basename(caller), error.source
        assert error.source in str(error)
        assert at in linecache.getline(caller, int(line)), f"{error.source} is not {at!r}"
