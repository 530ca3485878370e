"""Programs and states: double buffering, feeds, results, threads."""

import os
import signal
import threading
from contextlib import ExitStack

import ml_dtypes
import numpy as np
import onnxruntime as ort
import pytest

from flow2onnx_runtime import (
    BundleError,
    FeedError,
    Options,
    Program,
    RunError,
    State,
    StateError,
)
from flow2onnx_runtime import program as program_module
from flow2onnx_runtime.init_model import bind_init_model
from flow2onnx_runtime.interrupts import Interrupts

OPTIONS = Options(intra_op_threads=1)


def fresh_state():
    state = State()
    state.add("w", np.array([[0.5], [-0.25], [1.0]], np.float32))
    state.add("b", np.array([0.125], np.float32))
    state.add("m", np.zeros((3, 1), np.float32))
    state.add("steps", np.array(0, np.int64))
    return state


def batches(count, seed=0):
    rng = np.random.default_rng(seed)
    return [
        (rng.standard_normal((4, 3), np.float32), rng.standard_normal((4, 1), np.float32))
        for _ in range(count)
    ]


def reference(batches, w=None, b=None, m=None):
    w = np.array([[0.5], [-0.25], [1.0]]) if w is None else w
    b, m, losses = np.array([0.125]), np.zeros((3, 1)), []
    for x, y in batches:
        d = x @ w + b - y
        losses.append((d * d).mean())
        g = 2 * d / 4
        m = 0.9 * m + x.T @ g
        w, b = w - 0.1 * m, b - 0.1 * g.sum(axis=0)
    return losses, w, b, m


@pytest.mark.parametrize("level", ["disable", "basic", "extended", "all"])
def test_steps_equal_numpy(step_model, level):
    state = fresh_state()
    program = Program(step_model, state, Options(intra_op_threads=1, optimization=level))
    data = batches(9)
    losses = [program.run(batch)[0] for batch in data]
    expected, w, b, m = reference(data)
    np.testing.assert_allclose(losses, expected, rtol=1e-5)
    np.testing.assert_allclose(state.read("w"), w, rtol=1e-5)
    np.testing.assert_allclose(state.read("b"), b, rtol=1e-5)
    np.testing.assert_allclose(state.read("m"), m, rtol=1e-5)
    assert state.read("steps") == 9


@pytest.fixture
def binding_copies(monkeypatch):
    """A binding that copies inputs when they are bound, as to a device that shares no memory."""
    bind, copies = ort.IOBinding.bind_ortvalue_input, []

    def bind_copy(self, name, value):
        copies.append(value.numpy().copy())  # older bindings hold no reference
        bind(self, name, ort.OrtValue.ortvalue_from_numpy(copies[-1]))

    monkeypatch.setattr(ort.IOBinding, "bind_ortvalue_input", bind_copy)


def test_steps_are_right_where_a_binding_copies(step_model, binding_copies, monkeypatch):
    monkeypatch.setattr(program_module, "_host_inputs", lambda session: frozenset())
    program = Program(step_model, fresh_state(), OPTIONS)
    assert program.copied_inputs == {info.name for info in program.inputs}
    given = batches(4)
    losses, w, _, _ = reference(given)
    found = [program.run([x, y])[0] for x, y in given]
    np.testing.assert_allclose(found, losses, rtol=1e-4)
    np.testing.assert_allclose(program.state.read("w"), w, rtol=1e-4, atol=1e-6)


def test_a_session_on_the_host_copies_no_inputs(step_model):
    assert not Program(step_model, fresh_state(), OPTIONS).copied_inputs


def test_names_are_sorted_into_feeds_results_reads_and_writes(step_model):
    program = Program(step_model, fresh_state(), OPTIONS)
    assert [f.name for f in program.feeds] == ["x", "y"]
    assert [r.name for r in program.results] == ["loss"]
    assert program.reads == program.writes == ("w", "b", "m", "steps")
    assert program.read_mask == program.write_mask == 0b1111
    assert program.feeds[0].shape == (4, 3)
    assert program.results[0].shape == ()


def test_train_and_predict_share_a_state(step_model, predict_model):
    state = fresh_state()
    train, predict = Program(step_model, state, OPTIONS), Program(predict_model, state, OPTIONS)
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    data = batches(7)
    for done, batch in enumerate(data):
        _, w, b, _ = reference(data[:done])
        np.testing.assert_allclose(predict.run([x])[0], x @ w + b, rtol=1e-4, atol=1e-5)
        train.run(batch)
    assert predict.write_mask == 0


def test_programs_that_update_different_variables(onnx_model):
    state = State()
    state.add("a", np.array([1.0], np.float32))
    state.add("b", np.array([1.0], np.float32))
    one = onnx_model('g (float[1] a, float[1] b) => (float[1] "next/a") { "next/a" = Add(a, b) }')
    two = onnx_model('g (float[1] a, float[1] b) => (float[1] "next/b") { "next/b" = Mul(a, b) }')
    programs = Program(one, state, OPTIONS), Program(two, state, OPTIONS)
    a = b = 1.0
    for turn in (0, 1, 1, 0, 0, 0, 1, 0, 1, 1):
        programs[turn].run([])
        a, b = (a + b, b) if turn == 0 else (a, a * b)
        assert (state.read("a"), state.read("b")) == (np.float32(a), np.float32(b))
    assert all(len(p._lanes) <= 4 for p in programs)


def test_a_run_without_commit_leaves_the_state(step_model):
    state = fresh_state()
    program = Program(step_model, state, OPTIONS)
    (batch,) = batches(1)
    before = state.to_dict()
    first = program.run(batch, commit=False)
    assert state.mask == 0
    assert all(np.array_equal(state.read(n), v) for n, v in before.items())
    assert program.run(batch) == first


def test_a_guard_that_raises_leaves_the_state(step_model):
    state = fresh_state()
    program = Program(step_model, state, OPTIONS)

    def refuse(results):
        raise FloatingPointError(results[0])

    with pytest.raises(FloatingPointError):
        program.run(batches(1)[0], guard=refuse)
    assert state.mask == 0


def test_a_failing_run_leaves_the_state_and_says_so(onnx_model, capfd):
    state = State()
    state.add("v", np.zeros(2, np.float32))
    program = Program(
        onnx_model(
            'g (int64 i, float[2] v) => (float r, float[2] "next/v")'
            '{ r = Gather<axis=0>(v, i)  "next/v" = Add(v, r) }'
        ),
        state,
        OPTIONS,
        name="pick",
    )
    with pytest.raises(RunError, match=r"pick failed: .*\n.*the state is as it was"):
        program.run([np.array(7)])
    assert state.mask == 0
    assert program.run([np.array(1)]) == [np.float32(0)]


def test_results_are_copies(step_model, onnx_model):
    program = Program(step_model, fresh_state(), OPTIONS)
    first, second = batches(2)
    (loss,) = program.run(first)
    value = float(loss)
    for _ in range(4):
        program.run(second)
    assert float(loss) == value
    stateless = Program(onnx_model("g (float[N] x) => (float[N] y) { y = Neg(x) }"))
    (y,) = stateless.run([np.ones(3, np.float32)])
    stateless.run([np.zeros(3, np.float32)])
    assert y.tolist() == [-1, -1, -1]
    assert y.flags.writeable


def test_state_is_read_into_memory_of_the_caller():
    state = fresh_state()
    memory = np.zeros(6, np.float32)
    state.read_into("w", memory[1:4].reshape(3, 1))
    assert memory.tolist() == [0.0, 0.5, -0.25, 1.0, 0.0, 0.0]
    with pytest.raises(StateError, match="no tensor q"):
        state.read_into("q", memory)
    with pytest.raises(TypeError, match="Cannot cast"):
        state.read_into("w", np.zeros((3, 1)))


def test_state_values_are_copies():
    state = fresh_state()
    array = np.ones((3, 1), np.float32)
    state.write("w", array)
    array[:] = 7
    out = state.read("w")
    out[:] = 8
    assert state.read("w").tolist() == [[1], [1], [1]]


def test_feeds_of_any_strides(onnx_model):
    for rows in (4, 3000):  # copied in, and bound as they are
        model = onnx_model(f"g (float[{rows},6] x) => (float[{rows},6] y) {{ y = Neg(x) }}")
        program = Program(model, None, OPTIONS)
        x = np.random.default_rng(1).standard_normal((rows, 6), np.float32)
        wide = np.repeat(x, 2, axis=1)
        raw = np.frombuffer(b"\0" + x.tobytes(), np.uint8)[1:].view(np.float32).reshape(rows, 6)
        frozen = x.copy()
        frozen.flags.writeable = False
        for form in (x, np.asfortranarray(x), wide[:, ::2], x[::-1][::-1], raw, frozen):
            np.testing.assert_array_equal(program.run([form])[0], -x)
        np.testing.assert_array_equal(
            program.run([np.broadcast_to(x[:1], x.shape)])[0], -np.broadcast_to(x[:1], x.shape)
        )


def test_an_array_given_again(onnx_model):
    """It stays bound: what it holds by now counts, and whether it has another shape."""
    program = Program(
        onnx_model("g (float[r,c] x) => (float[r,c] y) { y = Neg(x) }"), None, OPTIONS
    )
    x, other = np.zeros((4, 3000), np.float32), np.ones((4, 3000), np.float32)
    strided = np.repeat(other, 2, axis=1)[:, ::2]
    for value in range(3):
        x[:] = value
        np.testing.assert_array_equal(program.run([x])[0], -x)
        np.testing.assert_array_equal(program.run([x])[0], -x)
        strided[:] = value
        np.testing.assert_array_equal(program.run([strided])[0], -strided)
        np.testing.assert_array_equal(program.run([other])[0], -other)
    program.run([x])
    x.resize((3000, 4), refcheck=False)
    np.testing.assert_array_equal(program.run([x])[0], -x)


def test_scalars_and_empty_tensors(onnx_model):
    model = onnx_model(
        "g (float s, float[0,3] e, float[N,2] v) => (float t, float[0,3] f, float[N,2] u)"
        "{ t = Neg(s)  f = Relu(e)  u = Neg(v) }"
    )
    program = Program(model, None, OPTIONS)
    empty = np.zeros((0, 3), np.float32)
    for n in (0, 2, 5, 0):
        t, f, u = program.run([np.float32(2), empty, np.ones((n, 2), np.float32)])
        assert (t.shape, float(t), f.shape, u.shape) == ((), -2, (0, 3), (n, 2))
    state = State()
    state.add("v", np.zeros((0, 4), np.float32))
    grow = onnx_model(
        'g (float[0,4] v) => (float[0,4] "next/v", float[4] r) <int64[1] a = {0}>'
        '{ "next/v" = Neg(v)  r = ReduceSum<keepdims=0>(v, a) }'
    )
    assert Program(grow, state, OPTIONS).run([])[0].tolist() == [0, 0, 0, 0]
    assert state.read("v").shape == (0, 4)


DTYPES = {
    "float": np.float32,
    "double": np.float64,
    "float16": np.float16,
    "int8": np.int8,
    "int32": np.int32,
    "int64": np.int64,
    "uint8": np.uint8,
    "bool": np.bool_,
}


@pytest.mark.parametrize("name", DTYPES)
def test_element_types(onnx_model, name):
    values = np.array([0, 1, 1, 0]).astype(DTYPES[name])
    state = State()
    state.add("v", values)
    model = onnx_model(
        f"g ({name}[4] x, {name}[N] s, {name}[4] v)"
        f' => ({name}[4] y, {name}[N] t, {name}[4] "next/v")'
        '{ y = Identity(v)  t = Identity(s)  "next/v" = Identity(x) }'
    )
    program = Program(model, state, OPTIONS)
    y, t = program.run([~values if name == "bool" else values * 3, values])
    np.testing.assert_array_equal(y, values)
    np.testing.assert_array_equal(t, values)
    assert y.dtype == t.dtype == state.dtype("v") == values.dtype
    assert not np.array_equal(state.read("v"), values)


def test_bfloat16_travels_as_bits(onnx_model):
    values = np.array([1.5, -2.0, 0.25, 3.0], ml_dtypes.bfloat16)
    state = State()
    state.add("v", values)
    state.add("bits", values.view(np.uint16), "bfloat16")
    assert state.element("v") == state.element("bits") == "bfloat16"
    assert state.dtype("v") == np.uint16
    model = onnx_model(
        "g (bfloat16[4] x, bfloat16[N] s, bfloat16[4] v)"
        ' => (bfloat16[4] y, bfloat16[N] t, bfloat16[4] "next/v")'
        '{ y = Identity(v)  t = Identity(s)  "next/v" = Identity(x) }'
    )
    program = Program(model, state, OPTIONS)
    for n in (4, 0, 2):
        y, t = program.run([values.view(np.uint16), values[:n]])
        assert y.view(ml_dtypes.bfloat16).tolist() == values.tolist()
        assert t.view(ml_dtypes.bfloat16).tolist() == values[:n].tolist()
    large = Program(onnx_model("g (bfloat16[20000] x) => (bfloat16[20000] y) { y = Identity(x) }"))
    x = np.arange(40000, dtype=np.uint16)[::2]
    np.testing.assert_array_equal(large.run([x])[0], x)
    state.write("v", -values)
    assert state.read("v").view(ml_dtypes.bfloat16).tolist() == (-values).tolist()


def test_a_repeated_symbol_has_one_size(onnx_model):
    model = onnx_model("g (float[N,2] a, float[N,2] b) => (float[N,2] c) { c = Add(a, b) }")
    program = Program(model, None, OPTIONS, name="sum.onnx")
    two, three = np.ones((2, 2), np.float32), np.ones((3, 2), np.float32)
    assert program.run([two, two])[0].shape == (2, 2)
    with pytest.raises(
        FeedError, match=r"sum.onnx: b has shape \('N', 2\), got \(3, 2\) where N=2"
    ):
        program.run([two, three])
    with pytest.raises(FeedError, match="a has shape"):
        program.run([np.ones((2, 3), np.float32), two])
    with pytest.raises(FeedError, match="a has shape"):
        program.run([np.ones(2, np.float32), two])


def test_results_of_unknown_rank(onnx_model):
    model = onnx_model("g (float[N] x, int64[M] s) => (float[] y) { y = Reshape(x, s) }")
    program = Program(model, None, OPTIONS)
    x = np.arange(6, dtype=np.float32)
    assert program.run([x, np.array([2, 3])])[0].shape == (2, 3)
    assert program.run([x, np.array([6])])[0].shape == (6,)


def test_wrong_feeds_are_named(step_model):
    program = Program(step_model, fresh_state(), OPTIONS, name="step.onnx")
    x, y = batches(1)[0]
    with pytest.raises(FeedError, match=r"takes 2 arrays, got 1\n.*its inputs are x, y"):
        program.run([x])
    with pytest.raises(FeedError, match=r"step.onnx: x has shape \(4, 3\), got \(3, 4\)"):
        program.run([x.T, y])
    with pytest.raises(FeedError, match=r"y is float32, got float64\n.*astype\('float32'\)"):
        program.run([x, y.astype(np.float64)])
    with pytest.raises(FeedError, match="x is float32, got >f4"):
        program.run([x.astype(">f4"), y])
    with pytest.raises(FeedError, match="x is float32, got object"):
        program.run([None, y])
    for builtin in (TypeError, ValueError, AssertionError):
        with pytest.raises(builtin):
            program.run([])
    assert program.state.mask == 0


def test_arrays_by_name(step_model):
    program = Program(step_model, fresh_state(), OPTIONS, name="step.onnx")
    x, y = batches(1)[0]
    assert [a is b for a, b in zip(program.arrange((x,), {"y": y}), (x, y), strict=True)]
    for arrays, named in (((x,), {"x": x}), ((x,), {}), ((x, y), {"y": y}), ((), {"x": x, "z": y})):
        with pytest.raises(FeedError, match=r"step.onnx"):
            program.arrange(arrays, named)
    assert list(program.by_name(program.run([x, y]))) == ["loss"]


def test_wrong_state_values_are_named():
    state = fresh_state()
    with pytest.raises(StateError, match=r"state w has shape \(3, 1\), the given value \(3,\)"):
        state.write("w", np.zeros(3, np.float32))
    with pytest.raises(StateError, match="state w is float32, the given value float64"):
        state.write("w", np.zeros((3, 1)))
    with pytest.raises(StateError, match=r"no tensor q\n.*it has w, b, m, steps"):
        state.read("q")
    with pytest.raises(StateError, match="w is there already"):
        state.add("w", np.zeros(1, np.float32))
    with pytest.raises(StateError, match="state s has element type <U1"):
        state.add("s", np.array(["x"]))
    with pytest.raises(StateError, match="float32 values cannot be bfloat16"):
        state.add("s", np.zeros(2, np.float32), "bfloat16")


def test_from_dict_is_all_or_nothing():
    state = fresh_state()
    good = state.to_dict()
    changed = {name: value + 1 for name, value in good.items()}
    for bad in (
        {k: v for k, v in changed.items() if k != "m"},
        changed | {"extra": np.zeros(1)},
        changed | {"steps": np.zeros(2, np.int64)},
        changed | {"m": np.zeros((3, 1))},
    ):
        with pytest.raises(StateError):
            state.from_dict(bad)
        assert all(np.array_equal(state.read(n), v) for n, v in good.items())
    state.from_dict(changed)
    assert all(np.array_equal(state.read(n), v) for n, v in changed.items())


@pytest.mark.skipif(os.name != "posix", reason="needs signals")
@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("is_within_a_loop", [False, True])
def test_no_ctrl_c_leaves_a_state_in_part(monkeypatch, is_within_a_loop):
    """Two of them, one within the copying of each tensor; a loop takes the second for urgent."""
    state = fresh_state()
    changed = {name: value + 1 for name, value in state.to_dict().items()}
    kind = type(state._slots["w"].buffer(False))
    write = kind.write

    def interrupted(buffer, array):
        signal.raise_signal(signal.SIGINT)
        write(buffer, array)

    monkeypatch.setattr(kind, "write", interrupted)
    with ExitStack() as around:
        around.enter_context(pytest.raises(KeyboardInterrupt))
        if is_within_a_loop:
            around.enter_context(around.enter_context(Interrupts()).held())
        state.from_dict(changed)
    assert all(np.array_equal(state.read(n), v) for n, v in changed.items())


def test_a_copy_that_fails_leaves_no_mixture(monkeypatch):
    state = fresh_state()
    changed = {name: value + 1 for name, value in state.to_dict().items()}
    kind = type(state._slots["w"].buffer(False))

    def fail(buffer, array):
        raise RunError("the device is gone")

    with monkeypatch.context() as patch:
        patch.setattr(kind, "write", fail)
        with pytest.raises(RunError, match="gone"):
            state.write_all({"w": changed["w"], "b": changed["b"]})
    assert state.read("steps") == 0
    with pytest.raises(StateError, match="w were being changed when that failed"):
        state.read("w")
    state.from_dict(changed)
    assert all(np.array_equal(state.read(n), v) for n, v in changed.items())


def test_an_init_model_gives_values_to_tensors_of_its_shapes_alone(onnx_model):
    model = onnx_model("init () => (float[2] w) { w = Constant<value = float[2] {3, 4}>() }")
    state = State()
    state.add("w", np.zeros(2, np.float32))
    bind_init_model(state, model, [("w", (2,), "float32")], OPTIONS)()
    np.testing.assert_array_equal(state.read("w"), [3, 4])
    for shape, dtype in (((3,), np.float32), ((2,), np.float16)):
        other = State()
        other.add("w", np.zeros(shape, dtype))
        with pytest.raises(
            StateError, match=r"w is to be float32 \(2,\), and the state's is float"
        ):
            bind_init_model(other, model, [("w", (2,), "float32")], OPTIONS)


def test_a_state_describes_itself():
    state = fresh_state()
    assert state.names() == tuple(state) == ("w", "b", "m", "steps")
    assert len(state) == 4
    assert "w" in state
    assert "q" not in state
    assert (state.shape("w"), state.dtype("steps")) == ((3, 1), np.int64)
    assert state.nbytes() == 12 + 4 + 12 + 8
    assert state.bit("m") == 4
    assert state.current("w").data_ptr() != state.other("w").data_ptr()
    assert state.nbytes() == 2 * 12 + 4 + 12 + 8, "the second buffer comes when it is needed"


def test_a_model_and_a_state_that_disagree(step_model, onnx_model):
    state = State()
    state.add("w", np.zeros((3, 2), np.float32))
    with pytest.raises(
        StateError, match=r"w is float32 \(3, 1\), the state's w is float32 \(3, 2\)"
    ):
        Program(step_model, state, OPTIONS)
    state = State()
    state.add("v", np.zeros(2, np.float32))
    model = onnx_model('g (float[2] v) => (double[2] "next/v") { "next/v" = Cast<to=11>(v) }')
    with pytest.raises(StateError, match="next/v is float64"):
        Program(model, state, OPTIONS)


def test_values_that_are_no_number_tensors(onnx_model):
    for kind in ("string[2]", "seq(float[2])"):
        model = onnx_model(f"g ({kind} x) => ({kind} y) {{ y = Identity(x) }}")
        with pytest.raises(BundleError, match="only tensors of numbers"):
            Program(model, None, OPTIONS)


def test_threads_share_a_stateless_program(onnx_model):
    program = Program(onnx_model("g (float[N] x) => (float[N] y) { y = Neg(x) }"), None, OPTIONS)
    wrong = []

    def work(number):
        x = np.full(number + 1, number, np.float32)
        for _ in range(200):
            if not np.array_equal(program.run([x])[0], -x):
                wrong.append(number)

    run_threads(work, 6)
    assert not wrong
    assert len(program._idle) <= 6


def test_threads_train_and_read_one_state(onnx_model):
    state = State()
    state.add("a", np.zeros(1000, np.float32))
    state.add("b", np.zeros(1000, np.float32))
    program = Program(
        onnx_model(
            'g (float[1000] a, float[1000] b) => (float[1000] "next/a", float[1000] "next/b")'
            ' <float one = {1}> { "next/a" = Add(a, one)  "next/b" = Add(b, one) }'
        ),
        state,
        OPTIONS,
    )
    torn = []

    def work(number):
        for _ in range(100):
            program.run([])
            values = state.to_dict()
            if len({*values["a"].tolist(), *values["b"].tolist()}) != 1:
                torn.append(number)

    run_threads(work, 4)
    assert not torn
    assert state.read("a")[0] == 400


def run_threads(work, count):
    threads = [threading.Thread(target=work, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@pytest.mark.gpu
def test_steps_on_cuda_equal_numpy(step_model):
    exact = ("CUDAExecutionProvider", {"use_tf32": "0"})  # TF32 keeps three digits
    options = Options(providers=(exact, "CPUExecutionProvider"))
    state = State(*options.device)
    for name in (source := fresh_state()):
        state.add(name, source.read(name))
    program = Program(step_model, state, options)
    data = batches(9)
    losses = [program.run(batch)[0] for batch in data]
    expected, w, _, _ = reference(data)
    np.testing.assert_allclose(losses, expected, rtol=1e-4)
    np.testing.assert_allclose(state.read("w"), w, rtol=1e-4)


@pytest.mark.gpu
def test_bfloat16_state_on_cuda():
    state = State("cuda")
    values = np.array([1.5, -2.0], ml_dtypes.bfloat16)
    state.add("v", values)
    assert state.read("v").view(ml_dtypes.bfloat16).tolist() == values.tolist()
