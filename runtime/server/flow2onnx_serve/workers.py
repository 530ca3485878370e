"""Processes beside the server, which read and write what would keep its event loop from others.

Parsing holds Python's lock from beginning to end, so a thread would not do.
"""

import asyncio
import os
import pickle
import struct
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from flow2onnx_serve.errors import RequestError

__all__ = ["Workers", "read_message", "write_message"]

_IDLE = 20.0  # seconds without a call after which a process ends
_COUNT, _SIZE = struct.Struct("<I"), struct.Struct("<Q")
_PIECE = 1 << 20  # bytes that are written at once

Result = TypeVar("Result")


class Workers:
    """Calls functions in `count` processes, each of which may allocate `memory` bytes for it.

    A process begins with a call and ends when it has been idle, or when nobody waits for its call.
    """

    def __init__(self, count: int, memory: int) -> None:
        self._memory = memory
        self._turns = asyncio.Semaphore(count)
        self._threads = ThreadPoolExecutor(count, thread_name_prefix="worker")
        self._idle: list[tuple[_Process, asyncio.TimerHandle]] = []

    async def call(self, function: Callable[..., Result], *arguments: object) -> Result:
        """The result of the function, which a module holds by its name; raises `RequestError`."""
        loop = asyncio.get_running_loop()
        async with self._turns:
            process = self._next()
            try:
                answer = await loop.run_in_executor(
                    self._threads, process.call, function, arguments
                )
            except BaseException:  # it failed, or nobody waits
                process.kill()
                raise
            timer = loop.call_later(_IDLE, self._expire, process)
            self._idle.append((process, timer))
        if isinstance(answer, RequestError):
            raise answer
        found: Result = answer
        return found

    def close(self) -> None:
        """End the processes."""
        for process, timer in self._idle:
            timer.cancel()
            self._end(process)
        self._idle.clear()
        self._threads.shutdown(wait=False)

    def _next(self) -> "_Process":
        if not self._idle:
            return _Process(self._memory)
        process, timer = self._idle.pop()
        timer.cancel()
        return process

    def _expire(self, process: "_Process") -> None:
        self._idle = [pair for pair in self._idle if pair[0] is not process]
        self._end(process)

    def _end(self, process: "_Process") -> None:
        process.kill()
        self._threads.submit(process.wait)


class _Process:
    """One process, which makes one call at a time; `kill` may come from another thread."""

    def __init__(self, memory: int) -> None:
        self._memory = memory
        self._child: subprocess.Popen[bytes] | None = None
        self._is_over = False

    def call(self, function: Callable[..., object], arguments: tuple[object, ...]) -> Any:
        """The answer, which may be an error; waits for it without a limit."""
        if self._child is None:
            self._child = _start(self._memory)
        if self._is_over:
            self.kill()
        stdin, stdout = self._child.stdin, self._child.stdout
        assert stdin is not None, "they are pipes"
        assert stdout is not None, "they are pipes"
        try:
            write_message(stdin, (function, arguments))
            return read_message(stdout)
        except (EOFError, OSError, ValueError, pickle.UnpicklingError) as error:
            self.kill()
            self.wait()
            raise RequestError("the process that reads large requests ended", 500) from error

    def kill(self) -> None:
        """End it at once."""
        self._is_over = True
        if self._child is not None:
            self._child.kill()

    def wait(self) -> None:
        """Wait until it has ended, which takes a while where it had much memory."""
        if (child := self._child) is not None:
            child.wait()
            for pipe in (child.stdin, child.stdout):
                assert pipe is not None, "they are pipes"
                pipe.close()


def _start(memory: int) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "flow2onnx_serve.worker", str(memory)]
    paths = os.pathsep.join(path for path in sys.path if path)
    # one thread: what it computes is not worth more
    environment = {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0,
        env=os.environ | environment, start_new_session=True,
    )  # fmt: skip


def write_message(file: Any, value: object) -> None:
    """Write a value so that `read_message` finds it: its arrays and buffers as they lie."""
    buffers: list[pickle.PickleBuffer] = []
    parts = [memoryview(pickle.dumps(value, 5, buffer_callback=buffers.append))]
    parts += [buffer.raw() for buffer in buffers]
    sizes = b"".join(_SIZE.pack(len(part)) for part in parts)
    for part in (memoryview(_COUNT.pack(len(parts)) + sizes), *parts):
        at = 0
        while at < len(part):
            at += file.write(part[at : at + _PIECE])


def read_message(file: Any) -> Any:
    """The next value; raises EOFError where there is none."""
    (count,) = _COUNT.unpack(_read(file, _COUNT.size))
    sizes = [_SIZE.unpack(_read(file, _SIZE.size))[0] for _ in range(count)]
    head, *buffers = (_read(file, size) for size in sizes)
    return pickle.loads(head, buffers=buffers)


def _read(file: Any, size: int) -> bytearray:
    found = bytearray(size)
    view, at = memoryview(found), 0
    while at < size:
        got = file.readinto(view[at : at + _PIECE])
        if not got:
            raise EOFError
        at += got
    return found
