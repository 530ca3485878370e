"""Feeds on their way to the device: pinned, on a stream of their own, while a step runs."""

import threading
import time

import numpy as np
import pytest
from flow2onnx_runtime import Options, OptionsError, Program, State
from flow2onnx_runtime.device_feeds import FeedBuffers
from onnx import parser

import flow2onnx as flow
import flow2onnx.typing as tp
from flow2onnx.data.ofrecord import OFRecordWriter
from flow2onnx.errors import FlowError
from tests.gpu import standin

CUDA = ("CUDAExecutionProvider", {})
CAPTURING = ("CUDAExecutionProvider", {"enable_cuda_graph": "1"})
CPU = "CPUExecutionProvider"
# On CUDA a reshape of what is fed is a copy, which the stand-in makes.
FIXED = "g (float[4,3] x, int64[2] i) => (float[3,4] y, int64[2,1] j)"
FREE = "g (float[N,3] x, int64[2] i) => (float[3,N] y, int64[2,1] j)"


def copying(signature):
    """A model whose results are its feeds in other shapes."""
    shapes = "s = Constant<value = int64[2] {3,-1}>() t = Constant<value = int64[2] {2,1}>()"
    body = f"{{ {shapes} y = Reshape(x, s) j = Reshape(i, t) }}"
    text = f'<ir_version: 10, opset_import: ["" : 21]> {signature} {body}'
    return parser.parse_model(text).SerializeToString()


def batch(number, rows=4):
    x = np.arange(3 * rows, dtype=np.float32).reshape(rows, 3) + 100 * number
    return [x, np.array([number, -number])]


def assert_run(program, given, expected):
    made = program.run(given)
    for got, fed in zip(made, expected, strict=True):
        assert np.array_equal(got, fed.reshape(got.shape))


@pytest.mark.parametrize("provider", [CUDA, CAPTURING], ids=["launched", "captured"])
@pytest.mark.parametrize("is_ahead", [False, True])
def test_all_bytes_of_feeds_are_pinned_and_on_a_stream_beside(provider, is_ahead):
    program = Program(copying(FIXED), options=Options((provider, CPU)))
    stage = FeedBuffers(program, 2)
    for number in range(4):
        given = batch(number)
        assert_run(program, stage.put(given) if is_ahead else given, given)
    standin.reset()
    given = batch(9)
    program.run(stage.put(given) if is_ahead else given)
    copies = standin.report()["to_device"]
    size = sum(a.nbytes for a in given)
    assert (copies["bytes"], copies["pinned"], copies["beside"]) == (size, size, size)
    assert not standin.report()["violations"]


@pytest.mark.parametrize("provider", [CUDA, CAPTURING], ids=["launched", "captured"])
def test_feeds_may_change_once_they_are_put(provider):
    program = Program(copying(FIXED), options=Options((provider, CPU)))
    stage = FeedBuffers(program, 3)
    given = [batch(number) for number in range(3)]
    kept = [[a.copy() for a in arrays] for arrays in given]
    feeds = [stage.put(arrays) for arrays in given]
    for arrays in given:
        for array in arrays:
            array[...] = -1
    for laid, expected in zip(feeds, kept, strict=True):
        assert_run(program, laid, expected)


def test_a_set_that_was_never_run_is_filled_again():
    program = Program(copying(FIXED), options=Options((CUDA, CPU)))
    stage = FeedBuffers(program, 1)
    stage.put(batch(1))
    assert_run(program, stage.put(batch(2)), batch(2))


def test_feeds_of_shapes_that_vary_and_of_strides():
    program = Program(copying(FREE), options=Options((CUDA, CPU)))
    stage = FeedBuffers(program, 1)
    for rows in (4, 64, 0, 2):
        x, i = batch(rows, rows)
        strided = np.asfortranarray(np.repeat(x, 2, axis=0))[::2]
        assert_run(program, [strided, i], [x, i])
        assert_run(program, stage.put([strided, i]), [x, i])


def test_one_wait_for_all_feeds_of_a_run():
    program = Program(copying(FIXED), options=Options((CUDA, CPU)))
    program.run(batch(0))
    waits = []
    for given in (batch(1), FeedBuffers(program, 1).put(batch(2))):
        standin.reset()
        program.run(given)
        waits.append(standin.report()["waits"])
    assert waits[0] == waits[1]


def test_the_feeds_of_a_queued_call_are_copied_before_its_turn():
    @flow.global_function()
    def twice(x: tp.Numpy.Placeholder((4, 3))) -> tp.Callback[tp.Numpy]:
        return flow.reshape(x, (3, 4))

    began, may_end, seen = threading.Event(), threading.Event(), []

    def hold(value):
        began.set()
        assert may_end.wait(60)
        seen.append(value)

    first, second = batch(1)[0], batch(2)[0]
    twice(first)(hold)
    assert began.wait(60)
    standin.reset()
    twice(second)(seen.append)
    copies = standin.report()["to_device"]
    assert (copies["bytes"], copies["pinned"]) == (second.nbytes, second.nbytes)
    may_end.set()
    flow.sync_default_session()
    assert [value.ravel()[0] for value in seen] == [100, 200]


def test_a_call_of_wrong_shape_fails_in_its_turn():
    @flow.global_function()
    def job(x: tp.Numpy.Placeholder((4, 3))) -> tp.Callback[tp.Numpy]:
        return flow.reshape(x, (3, 4))

    def call():
        job(np.zeros((4, 4), np.float32))(print)
        flow.sync_default_session()

    with pytest.raises(FlowError):
        call()


@pytest.fixture
def reading(tmp_path):
    """A job that reads records, and the batches that it gives."""
    rows = np.arange(36, dtype=np.float32).reshape(12, 3)
    with OFRecordWriter(tmp_path / "part-0") as writer:
        for row in rows:
            writer.write({"x": row})

    @flow.global_function()
    def job() -> tp.Numpy:
        read = flow.data.ofrecord_reader(str(tmp_path), batch_size=4)
        return flow.reshape(flow.data.OFRecordRawDecoder(read, "x", (3,), flow.float), (3, 4))

    return job, rows.reshape(3, 3, 4)


def wait_for_bytes(count):
    """Wait until so many bytes are on the device since it was last counted anew."""
    deadline = time.monotonic() + 60
    while standin.report()["to_device"]["bytes"] < count:
        assert time.monotonic() < deadline, "nothing was copied ahead"
        time.sleep(0.01)


def test_a_batch_that_is_read_is_on_the_device_before_its_call(reading):
    job, batches = reading
    size = batches[0].nbytes
    assert np.array_equal(job(), batches[0])
    wait_for_bytes(2 * size)  # its own, and the one behind it
    for batch in [*batches[1:], batches[0]]:
        standin.reset()
        assert np.array_equal(job(), batch)
        wait_for_bytes(size)
        copies = standin.report()["to_device"]
        assert (copies["bytes"], copies["pinned"], copies["beside"]) == (size, size, size)
        assert not standin.report()["violations"]


def test_what_a_reader_fails_with_is_the_error_of_its_call(tmp_path):
    with OFRecordWriter(tmp_path / "part-0") as writer:
        for size in (3, 3, 2, 3):
            writer.write({"x": np.zeros(size, np.float32)})

    @flow.global_function()
    def job() -> tp.Numpy:
        read = flow.data.ofrecord_reader(str(tmp_path), batch_size=2)
        return flow.reshape(flow.data.OFRecordRawDecoder(read, "x", (3,), flow.float), (3, 2))

    assert job().shape == (3, 2)
    for _ in range(2):
        with pytest.raises(FlowError, match="x"):
            job()


BY_SHAPE = """
g (float[2] x, int64[1] n) => (float[M] y, float[2] z) {
  y = ConstantOfShape(n)
  z = Identity(x)
}
"""


def test_what_the_host_reads_is_seen_to_change():
    content = parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]> {BY_SHAPE}')
    program = Program(content.SerializeToString(), options=Options((CUDA, CPU)))
    assert program.host_inputs == {"n"}
    stage = FeedBuffers(program, 2)
    for size in (3, 5, 2):
        given = [np.array([size, -size], np.float32), np.array([size])]
        for feeds in (given, stage.put(given)):
            y, z = program.run(feeds)
            assert (y.shape, z.tolist()) == ((size,), [size, -size])


def test_state_that_the_host_reads_is_seen_to_change():
    text = "g (int64[1] n) => (int64[1] next_n, float[M] y) { y = ConstantOfShape(n) "
    text += "next_n = Reshape(n, k) k = Constant<value = int64[1] {1}>() }"
    content = parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]> {text}')
    content.graph.output[0].name = content.graph.node[1].output[0] = "next/n"
    state = State("cuda")
    state.add("n", np.array([3]))
    program = Program(content.SerializeToString(), state, Options((CUDA, CPU)))
    for size in (3, 5, 2):
        state.write("n", np.array([size]))
        assert [program.run([])[0].shape for _ in range(3)] == [(size,)] * 3


def test_what_the_host_reads_is_not_captured():
    text = "g (float[2] x, int64[1] n) => (float[2] y) { y = Reshape(x, n) }"
    content = parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]> {text}')
    with pytest.raises(OptionsError, match="the host reads n, which a replay would not see"):
        Program(content.SerializeToString(), options=Options((CAPTURING, CPU)))
