"""The result of a call without annotation: a future, and in it local blobs."""

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

import numpy as np
from flow2onnx_runtime.dtypes import Array
from numpy.lib.mixins import NDArrayOperatorsMixin

from flow2onnx.errors import ArgumentError, JobError
from flow2onnx.source import user_frame
from flow2onnx.typing import TreeDef, unflatten, whole

if TYPE_CHECKING:
    from flow2onnx.engine import Session

__all__ = ["FutureResult", "LocalBlob", "check_callback", "deliver", "local_blobs"]

_log = logging.getLogger("flow2onnx.callback")


class LocalBlob(NDArrayOperatorsMixin):
    """A result on the host. Everything an array can do, it can do; `numpy()` gives the array."""

    def __init__(
        self, array: Array, is_dynamic: bool = False, pieces: Sequence[Array] = ()
    ) -> None:
        self._array, self.is_dynamic = array, is_dynamic
        self._pieces = list(pieces) or [array]

    def numpy(self, parallel_id: int | None = None) -> Array:
        """The array, or the piece of one device."""
        return self._array if parallel_id is None else self._pieces[parallel_id]

    def ndarray(self) -> Array:
        """The array, under the name of the first releases."""
        return self._array

    def numpy_list(self) -> list[Array]:
        """One array for each device."""
        return list(self._pieces)

    def ndarray_list(self) -> list[Array]:
        """One array for each device, under the name of the first releases."""
        return list(self._pieces)

    def parallel_num(self) -> int:
        """The number of devices."""
        return len(self._pieces)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        # numpy 1 passes no `copy`, numpy 2 False to forbid one
        if copy:
            return np.array(self._array, dtype=dtype)
        array = np.asarray(self._array, dtype=dtype)
        if copy is False and array is not self._array:
            raise ValueError(f"a result of {self._array.dtype} is {dtype} only as a copy")
        return array

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if "out" in kwargs:  # as in `blob += 1`
            kwargs["out"] = tuple(map(_plain, kwargs["out"]))
        return getattr(ufunc, method)(*map(_plain, inputs), **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # of a half-made blob, as when it is unpickled
            raise AttributeError(name)
        return getattr(self._array, name)

    def __getitem__(self, index: Any) -> Any:
        return self._array[index]

    def __setitem__(self, index: Any, value: Any) -> None:
        self._array[index] = value

    def __len__(self) -> int:
        return len(self._array)

    def __contains__(self, item: Any) -> bool:
        return item in self._array

    def __iter__(self) -> Any:
        return iter(self._array)

    def __float__(self) -> float:
        return float(self._array.item())

    def __int__(self) -> int:
        return int(self._array.item())

    def __index__(self) -> int:
        return self._array.__index__()

    def __bool__(self) -> bool:
        return bool(self._array)

    def __format__(self, spec: str) -> str:
        return format(self._array.item() if spec else self._array, spec)

    def __repr__(self) -> str:
        return repr(self._array)

    def __str__(self) -> str:
        return str(self._array)


def _plain(x: Any) -> Any:
    return x._array if isinstance(x, LocalBlob) else x


def local_blobs(tree: TreeDef, arrays: list[Array], pieces: int = 1) -> Any:
    """The structure a body returned, with local blobs as its leaves.

    The `pieces` of one result stand together in `arrays`.
    """
    apart = [arrays[i : i + pieces] for i in range(0, len(arrays), pieces)]
    return unflatten(tree, [LocalBlob(whole(group), pieces=group) for group in apart])


class FutureResult:
    """The result of a call under way. It is delivered once."""

    def __init__(self, session: "Session", future: "Future[Any]", job: str) -> None:
        self._session, self._future, self._job = session, future, job
        self._delivered = False

    def get(self) -> Any:
        """Wait for the result."""
        self._take()
        return self._session.wait(self._future)

    def async_get(self, callback: Callable[[Any], Any]) -> None:
        """Let `callback` have the result on a worker thread, in the order of the calls."""
        check_callback(callback, self._job)
        self._take()
        deliver(self._session, self._future, callback)

    def _take(self) -> None:
        if self._delivered:
            raise JobError(
                "this result was delivered already",
                job=self._job,
                source=user_frame(),
                hint="keep what .get() returned",
            )
        self._delivered = True


def deliver(session: "Session", future: "Future[Any]", callback: Callable[[Any], Any]) -> None:
    """Queue `callback` behind the run; exceptions of its own are logged and stop nothing.

    After a run that failed it is not called: the failure comes up at the next call or `sync`.
    """
    check_callback(callback)

    def call() -> None:
        if future.exception() is not None:
            return
        try:
            callback(future.result())
        except BaseException:  # a callback's failure must not stop the jobs
            _log.exception("a callback failed")

    session.later(call)


def check_callback(callback: object, job: str | None = None) -> None:
    """Raise at once where the callback could only fail on another thread."""
    if not callable(callback):
        raise ArgumentError(
            f"a callback is a function of one argument, got {callback!r}",
            job=job,
            source=user_frame(),
            hint="pass the function itself, without calling it",
        )
