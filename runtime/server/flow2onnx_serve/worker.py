"""The program of a process beside the server: makes the calls that come by stdin, one by one."""

import os
import sys
from typing import Any

from flow2onnx_runtime import FlowError
from flow2onnx_runtime.allocator import prepare_allocator, trim_memory

# the encodings for themselves: what they need is not to count as memory of a call
from flow2onnx_serve import grpc_encoding, http_encoding  # noqa: F401
from flow2onnx_serve.errors import RequestError
from flow2onnx_serve.memory import limit_memory
from flow2onnx_serve.workers import read_message, write_message

__all__ = ["main"]

_NICE = 5  # by how much others go before it


def main() -> None:
    """Answer on stdout until stdin ends; the argument is the memory that calls may take."""
    calls = os.fdopen(os.dup(0), "rb", 0)
    answers = os.fdopen(os.dup(1), "wb", 0)
    os.dup2(2, 1)  # whatever is printed is no answer
    if hasattr(os, "nice"):
        os.nice(_NICE)
    prepare_allocator()
    limit_memory(int(sys.argv[1]))
    while True:
        try:
            call = read_message(calls)
        except EOFError:
            return
        write_message(answers, _answer(*call))
        del call
        trim_memory()


def _answer(function: Any, arguments: tuple[Any, ...]) -> Any:
    try:
        return function(*arguments)
    except RequestError as error:
        return error
    except FlowError as error:
        return RequestError(error.message, hint=error.hint)
    except MemoryError:
        return RequestError("it takes too much memory", 413, hint="send or ask for less at once")
    except Exception as error:  # a fault of ours: an answer all the same
        return RequestError(f"internal error: {type(error).__name__}", 500)


if __name__ == "__main__":
    main()
