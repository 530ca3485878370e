"""Calls that need more memory than there is: they fail, and the process goes on."""

import json
import subprocess
import sys

import pytest
from flow2onnx_native.library import NativeLibrary

# Each task has a channel, and asks for 64 times 2^20 floats to keep of it: 256 MiB.
CALL = """
import json, resource, sys
import numpy as np
from flow2onnx_native.abi import ChannelsHead, ChannelsOperand
from flow2onnx_native.library import NativeLibrary
from onnx import TensorProto
from tests.native.one_node import outcome

FLOAT = TensorProto.FLOAT
path, tasks = json.loads(sys.argv[1])
side = 1 << 20
x = np.linspace(-1, 1, tasks * side, dtype=np.float32).reshape(tasks, side)

def call(kept):
    operand = ChannelsOperand(kind=0, cell=0, element=FLOAT)
    plan = [*ChannelsHead(1, tasks, side, places=2, cells=1, kept=kept, inputs=1, outputs=1,
                          constants=0, stages=1), *operand, *operand, 2, tasks, side]
    plan += [0, 1, 0, 0, 0, 1, 0, 1, 0, 0, 1, 0, 1, 0, 0, 0, 0]
    return outcome(NativeLibrary(path, ()), tasks, "FusedChannels", {"x": x}, plan=plan)

assert np.array_equal(call(0), x), "there is memory yet"
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (128 << 20), resource.RLIM_INFINITY))
print(call(64))
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits are those of Linux")
@pytest.mark.parametrize("tasks", [1, 4])
def test_tasks_without_memory(tasks: int, library: NativeLibrary) -> None:
    arguments = [sys.executable, "-c", CALL, json.dumps([library.path, tasks])]
    made = subprocess.run(arguments, capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    assert "a task has no memory to work in" in made.stdout


# A channel of 2^28 positions in phases of 1,024: lists of all parts would take 1.6 GB.
OPENED = """
import resource
import numpy as np
from flow2onnx_native.library import open_library
from tests.native.one_node import outcome

library = open_library()
length, stride = 1 << 28, 1 << 10
shape = [1, 1, 1, 1, length, 1, 1, 1, 1, 1, 1, length // stride, 1, 1, stride, *[1] * 3, *[0] * 6,
         1, 1, 1]
x = np.ones(1, np.float32)
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 30), resource.RLIM_INFINITY))
print(outcome(library, 1, "ConvInputGradient", {"a": x, "b": x}, shape=shape, method=3))
"""


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits are those of Linux")
def test_a_kernel_of_many_parts_is_made_without_much_memory(convolving: NativeLibrary) -> None:
    made = subprocess.run([sys.executable, "-c", OPENED], capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    assert "ConvInputGradient: " in made.stdout, "the tensors are too small for it"
    assert "bad_alloc" not in made.stdout
