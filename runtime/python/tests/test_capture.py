"""CUDA graphs, as far as a machine without a GPU shows: who runs what, and with which graph."""

from dataclasses import replace

import numpy as np
import pytest

from flow2onnx_runtime import (
    BundleError,
    Options,
    OptionsError,
    Program,
    State,
    assigned_nodes,
    assignment,
    buffers,
    open_session,
    program,
    provider_checks,
    transfers,
)

CAPTURING = Options(
    providers=(("CUDAExecutionProvider", {"enable_cuda_graph": "1"}), "CPUExecutionProvider")
)
ON_CPU = ("CPUExecutionProvider",)
NEG = "g (float[2] x) => (float[2] y) { y = Neg(x) }"
FREE = "g (float[N] x) => (float[N] y) { y = Neg(x) }"
RANDOM = "g (float[2] x) => (float[2] y) { r = RandomNormalLike(x)  y = Add(x, r) }"


@pytest.fixture
def telling():
    """Older runtimes do not tell which provider runs which node, so nothing is captured there."""
    if assignment.capture_fault() is not None:
        pytest.skip(assignment.capture_fault())


@pytest.mark.parametrize("version", ["1.18.0", "1.30.2", "1.31.0"])
def test_a_runtime_that_records_copies_of_host_memory_is_refused(version, monkeypatch):
    monkeypatch.setattr(assignment.ort, "__version__", version)
    assert f"onnxruntime {version} captures copies of host memory" in assignment.capture_fault()


@pytest.mark.parametrize("version", ["1.31.1", "1.32.0", "2.0.0"])
def test_a_later_one_is_not_refused_for_its_version(version, monkeypatch):
    monkeypatch.setattr(assignment.ort, "__version__", version)
    assert "captures copies" not in (assignment.capture_fault() or "")


@pytest.fixture
def as_on_a_gpu(telling, monkeypatch):
    """Sessions open on the CPU, device memory is host memory; all else is as for CUDA."""
    places = []

    def opened(model, options, initializers=None):
        return open_session(model, replace(options, providers=ON_CPU), initializers)

    def host_buffer(place, shape, element):
        places.append(place)
        return buffers.new_buffer(("cpu", 0), shape, element)

    monkeypatch.setattr(assignment, "open_session", opened)
    monkeypatch.setattr(program, "open_session", opened)
    monkeypatch.setattr(program, "new_buffer", host_buffer)
    monkeypatch.setattr(transfers, "new_buffer", host_buffer)
    monkeypatch.setattr(program, "_host_inputs", lambda session: frozenset())
    return places


def graph_of(lane):
    return lane._run_options.get_run_config_entry("gpu_graph_id")


def step_state():
    state = State()
    state.add("w", np.array([[0.5], [-0.25], [1.0]], np.float32))
    state.add("b", np.array([0.125], np.float32))
    state.add("m", np.zeros((3, 1), np.float32))
    state.add("steps", np.array(0, np.int64))
    return state


def test_a_step_alternates_between_two_graphs(as_on_a_gpu, step_model):
    plain, captured = step_state(), step_state()
    data = np.ones((4, 3), np.float32), np.ones((4, 1), np.float32)
    reference = Program(step_model, plain)
    step = Program(step_model, captured, CAPTURING)
    for _ in range(5):
        np.testing.assert_array_equal(step.run(data)[0], reference.run(data)[0])
    assert sorted(map(graph_of, step._lanes.values())) == ["1", "2"]
    assert {name: v.tolist() for name, v in captured.to_dict().items()} == {
        name: v.tolist() for name, v in plain.to_dict().items()
    }


def test_feeds_and_results_lie_in_fixed_device_memory(as_on_a_gpu, step_model):
    step = Program(step_model, step_state(), CAPTURING)
    data = np.ones((4, 3), np.float32), np.ones((4, 1), np.float32)
    for _ in range(4):
        step.run(data)
    # per graph: two feeds and the loss
    assert as_on_a_gpu == [("cuda", 0)] * 6


def test_results_of_a_captured_run_stay_on_the_device(as_on_a_gpu, onnx_model):
    Program(onnx_model(NEG), options=replace(CAPTURING, host_results=True)).run(
        [np.ones(2, np.float32)]
    )
    assert as_on_a_gpu == [("cuda", 0)] * 2


def test_results_of_an_ordinary_run_go_where_they_are_wanted(as_on_a_gpu, onnx_model):
    cuda = Options(providers=("CUDAExecutionProvider",))
    x = [np.ones(2, np.float32)]
    assert Program(onnx_model(NEG), options=cuda).run(x)[0].tolist() == [-1, -1]
    Program(onnx_model(NEG), options=replace(cuda, host_results=True)).run(x)
    assert as_on_a_gpu == [("cuda", 0), ("cuda", 0), ("cpu", 0), ("cuda", 0)]


def test_a_prediction_without_state_has_one_graph_for_each_caller_at_once(as_on_a_gpu, onnx_model):
    predict = Program(onnx_model(NEG), options=CAPTURING)
    for value in (1, 2, 3):
        assert predict.run([np.full(2, value, np.float32)])[0].tolist() == [-value, -value]
    (lane,) = predict._idle
    assert graph_of(lane) == "1"


def test_shapes_that_vary_cannot_be_captured(as_on_a_gpu, onnx_model):
    with pytest.raises(OptionsError, match=r"the shape of x varies, \('N',\)") as caught:
        Program(onnx_model(FREE), options=CAPTURING)
    assert "enable_cuda_graph" in caught.value.hint


def test_random_operators_cannot_be_captured(as_on_a_gpu, onnx_model):
    with pytest.raises(OptionsError, match=r"repeat the random numbers of RandomNormalLike"):
        Program(onnx_model(RANDOM), options=CAPTURING)


def test_nodes_that_cuda_does_not_run_are_named(as_on_a_gpu, onnx_model, monkeypatch):
    opened = assignment.open_session

    def refusing(model, options, initializers=None):
        if options.captures:
            raise BundleError("not all nodes are on CUDA")
        return opened(model, options, initializers)

    monkeypatch.setattr(assignment, "open_session", refusing)
    with pytest.raises(OptionsError, match="CUDA does not run Neg") as caught:
        Program(onnx_model(NEG), options=CAPTURING)
    assert isinstance(caught.value.__cause__, BundleError)


def test_a_model_that_does_not_open_for_another_reason_says_that(as_on_a_gpu):
    with pytest.raises(BundleError, match="cannot be opened"):
        Program(b"nonsense", options=CAPTURING)


def test_a_runtime_that_does_not_tell_its_operators(as_on_a_gpu, onnx_model, monkeypatch):
    monkeypatch.setattr(assignment, "nodes_of", lambda session: None)
    with pytest.raises(OptionsError, match="does not tell which operators"):
        Program(onnx_model(NEG), options=CAPTURING)
    assert assigned_nodes(onnx_model(NEG)) is None


def test_a_runtime_that_captures_copies_of_the_host(onnx_model, monkeypatch):
    monkeypatch.setattr(assignment.ort, "__version__", "1.31.0")
    with pytest.raises(OptionsError, match=r"onnxruntime 1\.31\.0 captures copies") as caught:
        Program(onnx_model(NEG), options=CAPTURING)
    assert "1.31.1 does not" in caught.value.message


def test_who_runs_what(telling, onnx_model):
    (node,) = assigned_nodes(onnx_model(NEG)) or ()
    assert (node.provider, node.op_type) == ("CPUExecutionProvider", "Neg")
    assert assignment.nodes_of(object()) is None


def test_an_older_runtime_is_not_asked(onnx_model, monkeypatch):
    monkeypatch.setattr(assignment, "session_keys", frozenset)
    assert assignment.recording(Options()) == Options()
    assert assigned_nodes(onnx_model(NEG)) is None


def test_runs_without_entries_have_no_options(onnx_model):
    assert Program(onnx_model(NEG)).lane_options() is None
    shrinking = Options(run_entries={"memory.enable_memory_arena_shrinkage": "cpu:0"})
    run = Program(onnx_model(NEG), options=shrinking)
    assert run.run([np.ones(2, np.float32)])[0].tolist() == [-1, -1]
    entries = run.lane_options()
    assert entries.get_run_config_entry("memory.enable_memory_arena_shrinkage") == "cpu:0"


def test_which_options_capture():
    assert CAPTURING.captures
    assert not replace(CAPTURING, providers=("CUDAExecutionProvider",)).captures
    assert not Options().captures
    assert assignment._without_capture(CAPTURING).providers == (
        ("CUDAExecutionProvider", {}),
        "CPUExecutionProvider",
    )


@pytest.mark.gpu
def test_captured_steps_on_cuda_equal_ordinary_ones(step_model):
    data = np.ones((4, 3), np.float32), np.ones((4, 1), np.float32)
    losses, states = [], []
    for chosen in (replace(CAPTURING, providers=("CUDAExecutionProvider", *ON_CPU)), CAPTURING):
        state = State(*chosen.device)
        for name in (source := step_state()):
            state.add(name, source.read(name))
        step = Program(step_model, state, chosen)
        losses.append([step.run(data)[0].item() for _ in range(6)])
        states.append(state.to_dict())
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-5)
    for name, value in states[0].items():
        np.testing.assert_allclose(states[1][name], value, rtol=1e-5)


def test_a_missing_library_is_named(monkeypatch, tmp_path):
    (tmp_path / "libonnxruntime_providers_cuda.so").write_bytes(b"no library")
    monkeypatch.setattr(provider_checks._capi, "__path__", [str(tmp_path)])
    monkeypatch.setattr(
        provider_checks.ort, "get_available_providers", lambda: ["CUDAExecutionProvider"]
    )
    said = provider_checks.why_unusable("CUDAExecutionProvider")
    assert "needs an NVIDIA driver, CUDA and cuDNN 9" in said
    assert "loading it says: " in said
    assert "libonnxruntime_providers_cuda.so" in said
