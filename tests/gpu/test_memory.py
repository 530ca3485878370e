"""Memory of the device: state at its exact size, and what is told where it ends."""

import gc

import numpy as np
import pytest
from flow2onnx_runtime import (
    DeviceError,
    Options,
    OutOfMemoryError,
    Program,
    ProviderError,
    RunError,
    State,
    StateError,
    open_session,
    require_providers,
)
from flow2onnx_runtime.cuda_runtime import device_count, device_name
from flow2onnx_runtime.free_memory import free_bytes
from onnx import parser

import flow2onnx as flow
import flow2onnx.typing as tp
from flow2onnx.errors import NotEnoughMemoryError
from tests.gpu import standin

MIB = 2**20
ON_GPU = Options((("CUDAExecutionProvider", {}), "CPUExecutionProvider"))
ON_SEVENTH = Options((("CUDAExecutionProvider", {"device_id": "7"}), "CPUExecutionProvider"))
# w becomes w + the sum of as many numbers as n says
STEP = """
g (float[4] w, int64[1] n) => (float[4] "next/w", float[1] y) {
  all = ConstantOfShape(n)
  y = ReduceSum<keepdims=1>(all)
  "next/w" = Add(w, y)
}
"""


def model(text):
    header = '<ir_version: 10, opset_import: ["" : 21]> '
    return parser.parse_model(header + text.replace('"', "")).SerializeToString()


def used():
    gc.collect()  # what earlier tests left would be given back at any moment
    return standin.report()["used"]


def test_state_takes_its_own_size():
    state, before = State("cuda"), used()
    for number in range(3):
        state.add(f"w{number}", np.zeros(100 * MIB // 4, np.float32))
    assert used() - before == 300 * MIB


def test_state_that_does_not_fit_is_refused_in_words():
    state = State("cuda")
    state.add("w", np.arange(4, dtype=np.float32))
    standin.resize(used() + 10 * MIB)
    with pytest.raises(OutOfMemoryError, match=r"no memory for a tensor of 4,194,304,000 bytes: "):
        state.reserve("large", (1000 * MIB,), "float32")
    assert issubclass(OutOfMemoryError, MemoryError)
    assert state.read("w").tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("place", [7, 1])
def test_a_device_that_is_not_there(place):
    with pytest.raises(ProviderError, match=f"there is no device cuda:{place}: CUDA shows 1"):
        State("cuda", place).add("w", np.zeros(2, np.float32))


def test_a_session_on_a_device_that_is_not_there():
    content = model("g (float[2] x) => (float[2] y) { y = Neg(x) }")
    for ask in (lambda: open_session(content, ON_SEVENTH), lambda: require_providers(ON_SEVENTH)):
        with pytest.raises(ProviderError) as caught:
            ask()
        assert "there is no GPU 7: CUDA shows this process GPU 0 alone" in str(caught.value)


@pytest.fixture
def step():
    """A step whose memory the number fed decides, and its state."""
    text = STEP.replace('"next/w"', "next_w")
    content = parser.parse_model('<ir_version: 10, opset_import: ["" : 21]> ' + text)
    for node in content.graph.node:
        node.output[:] = ["next/w" if name == "next_w" else name for name in node.output]
    content.graph.output[0].name = "next/w"
    state = State("cuda")
    state.add("w", np.arange(4, dtype=np.float32))
    return Program(content.SerializeToString(), state, ON_GPU, name="step")


def test_a_run_without_memory_keeps_the_state(step):
    step.run([np.array([8])])
    kept = step.state.read("w")
    standin.resize(used() + 10 * MIB)
    with pytest.raises(OutOfMemoryError, match="step failed") as caught:
        step.run([np.array([2**30])])
    assert "the state is as it was" in caught.value.hint
    assert np.array_equal(step.state.read("w"), kept, equal_nan=True)  # no kernel runs here
    step.run([np.array([8])])


def test_a_device_that_stops_says_so(step):
    step.run([np.array([8])])
    standin.stop()
    for ask in (
        lambda: step.run([np.array([8])]),
        lambda: step.state.read("w"),
        lambda: step.state.write("w", np.zeros(4, np.float32)),
        lambda: State("cuda").reserve("v", (1000 * MIB,), "int8"),
    ):
        with pytest.raises(DeviceError, match=r"illegal memory access .*CUDA error 700"):
            ask()
    assert free_bytes(("cuda", 0)) is None
    standin.repair()
    with pytest.raises(StateError, match="neither the old nor the new ones"):
        step.run([np.array([8])])  # what became of the write is not known
    step.state.write("w", np.zeros(4, np.float32))
    step.run([np.array([8])])
    assert issubclass(DeviceError, RunError)


def test_a_session_without_memory_to_open(step):
    standin.resize(used())
    content = model(
        "g (float[2] x) => (float[2] y) { c = Constant<value = float[2] {1,2}>() y = Add(x, c) }"
    )
    with pytest.raises(OutOfMemoryError, match=r"opening the model .* failed"):
        open_session(content, ON_GPU)


def test_free_memory_is_what_cuda_says():
    standin.resize(used() + 10 * MIB)
    assert free_bytes(("cuda", 0)) == 10 * MIB
    assert free_bytes(("cuda", 1)) is None
    assert (device_count(), device_name(0)) == (1, "NVIDIA H200 (stand-in)")
    assert device_name(1) is None


def test_jobs_that_need_more_than_there_is_are_refused_before_they_run():
    standin.resize(used() + 4 * MIB)

    @flow.global_function(type="train")
    def train(x: tp.Numpy.Placeholder((4, 1024))) -> tp.Numpy:
        w = flow.get_variable("w", (1024, 2048), initializer=flow.ones_initializer())
        loss = flow.math.reduce_mean(flow.matmul(x, w))
        flow.optimizer.SGD(flow.optimizer.PiecewiseConstantScheduler([], [0.1])).minimize(loss)
        return loss

    with pytest.raises(NotEnoughMemoryError, match="and there are 4 MiB"):
        train(np.zeros((4, 1024), np.float32))
