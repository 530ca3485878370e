"""Opening sessions: options, providers, models that cannot be opened; and what has kernels."""

import subprocess
import sys

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from flow2onnx_runtime import (
    BundleError,
    Options,
    OptionsError,
    ProviderError,
    allocator,
    kernels,
    open_session,
    registry,
    usable_providers,
)
from flow2onnx_runtime import options as module
from flow2onnx_runtime.providers import CPU, PROVIDERS

NEG = "g (float[2] x) => (float[2] y) { y = Neg(x) }"


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"optimization": "most"}, "optimization is 'most'.*\n.*disable, basic, extended"),
        ({"log_level": "loud"}, "log_level is 'loud'"),
        ({"intra_op_threads": 0}, "intra_op_threads is 0"),
        ({"inter_op_threads": "2"}, "inter_op_threads is '2'"),
        ({"providers": ()}, r"providers is \(\)"),
        ({"providers": "CPUExecutionProvider"}, "give a tuple"),
        ({"providers": (3,)}, "provider 3 is neither"),
        ({"providers": (("CPUExecutionProvider", {"a": 1}),)}, "options are a mapping of str"),
        ({"session_entries": {"session.x": 1}}, "session entry 'session.x': 1"),
        ({"session_entries": {"plain": "1"}}, "keys are dotted names"),
    ],
)
def test_wrong_options_are_named(wrong, says):
    with pytest.raises(OptionsError, match=says):
        Options(**wrong)


def test_a_session_opens_with_every_option(onnx_model):
    options = Options(
        intra_op_threads=1,
        inter_op_threads=1,
        memory_pattern=True,
        deterministic=True,
        session_entries={"session.intra_op.allow_spinning": "0"},
    )
    assert open_session(onnx_model(NEG), options).get_providers() == ["CPUExecutionProvider"]


def test_a_misspelt_provider():
    with pytest.raises(ProviderError, match=r"CUDAExecutorProvider .*\n.*CUDAExecutionProvider?"):
        open_session(b"", Options(providers=("CUDAExecutorProvider",)))
    with pytest.raises(ProviderError, match=r"Q was asked for.*\n.*providers are "):
        open_session(b"", Options(providers=("Q",)))


def test_a_provider_of_another_wheel(onnx_model):
    options = Options(providers=("DmlExecutionProvider", "CPUExecutionProvider"))
    with pytest.raises(ProviderError, match=r"usable here: .*CPUExec.*\n.*onnxruntime-directml"):
        open_session(onnx_model(NEG), options)
    lax = Options(providers=options.providers, strict=False)
    with pytest.warns(RuntimeWarning, match="DmlExecutionProvider was asked for"):
        session = open_session(onnx_model(NEG), lax)
    assert session.get_providers() == ["CPUExecutionProvider"]


def test_a_provider_that_is_compiled_in_and_does_not_work(onnx_model, monkeypatch):
    # The GPU wheel on a machine without a GPU: the name is listed, the session lacks it.
    monkeypatch.setattr(
        module.ort,
        "get_available_providers",
        lambda: ["XnnpackExecutionProvider", "CPUExecutionProvider"],
    )
    options = Options(providers=("XnnpackExecutionProvider",))
    with (
        pytest.raises(ProviderError, match=r"XnnpackExecutionProvider .*"),
        pytest.warns(UserWarning, match="not in available"),
    ):
        open_session(onnx_model(NEG), options)
    with pytest.warns(UserWarning, match="not in available"):
        assert usable_providers() == ("CPUExecutionProvider",)


def test_models_that_cannot_be_opened(onnx_model, tmp_path):
    good = onnx_model(NEG)
    for bad in (b"", b"abc", good[: len(good) // 2], good[:-3]):
        with pytest.raises(BundleError, match=rf"the model \({len(bad)} bytes\) cannot be opened"):
            open_session(bad)
    with pytest.raises(BundleError, match=r"none.onnx is not there"):
        open_session(tmp_path / "none.onnx")
    (tmp_path / "bad.onnx").write_bytes(b"nonsense")
    with pytest.raises(BundleError, match=r"bad.onnx cannot be opened"):
        open_session(str(tmp_path / "bad.onnx"))
    (tmp_path / "good.onnx").write_bytes(good)
    assert open_session(tmp_path / "good.onnx").get_inputs()[0].name == "x"


def test_devices():
    assert Options().device == ("cpu", 0)
    assert Options(providers=("CUDAExecutionProvider",)).device == ("cuda", 0)
    assert Options(providers=(("CUDAExecutionProvider", {"device_id": "2"}),)).device == ("cuda", 2)


def test_the_cpu_is_usable():
    assert "CPUExecutionProvider" in usable_providers()


def test_kernels_by_type():
    table = kernels()
    assert table is kernels("CPUExecutionProvider")
    assert table.supports("Relu", 21, {"T": "float32"})
    assert table.supports("Relu", 21, {"T": "tensor(float)"})
    assert not table.supports("Conv", 21, {"T": "float64"})
    assert not table.supports("OneHot", 21, {"T1": "int32", "T2": "int32", "T3": "int32"})
    assert table.supports("OneHot", 21, {"T1": "int64", "T3": "float32"})
    assert table.supports("Relu", 21, domain="ai.onnx")
    assert not table.supports("Relu", 0)
    assert frozenset({"tensor(float)"}) in [t["T"] for t in table.types("Gemm", 21)]


def test_operators_without_kernels():
    table = kernels()
    assert table.knows("Mish", 18)
    assert not table.knows("Mish", 17)
    assert not table.has("Mish")
    assert "SoftmaxCrossEntropyLoss" in table.without_kernel()
    assert not table.knows("Invented", 21)
    assert not table.supports("Invented", 21)


def test_a_provider_that_is_not_there_has_no_kernels():
    assert not kernels("NoSuchProvider").has("Relu")


def test_kernel_versions_follow_the_operator():
    table = kernels()
    assert table.since_version("Relu", 13) == 13
    assert table.since_version("Relu", 21) == 14


def test_errors_and_files_load_without_numpy_and_onnxruntime():
    code = (
        "import sys, flow2onnx_runtime, flow2onnx_runtime.errors, flow2onnx_runtime.files\n"
        "assert flow2onnx_runtime.BundleError and 'Trainer' in dir(flow2onnx_runtime)\n"
        "assert not {'numpy', 'onnxruntime'} & set(sys.modules)\n"
        "for name in flow2onnx_runtime.__all__: getattr(flow2onnx_runtime, name)\n"
        "assert not {'onnx', 'safetensors', 'ml_dtypes'} & set(sys.modules), 'too much'\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_missing_onnxruntime_is_explained():
    code = (
        "import sys; sys.modules['onnxruntime'] = None\n"
        "import flow2onnx_runtime\n"
        "try: flow2onnx_runtime.Trainer\n"
        "except ModuleNotFoundError as error: print(error)\n"
    )
    said = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert "pip install 'flow2onnx-runtime[cpu]'" in said.stdout


def test_no_module_hides_a_public_name():
    import flow2onnx_runtime

    assert not set(flow2onnx_runtime._HOMES) & set(flow2onnx_runtime.__all__)
    names = (name for names in flow2onnx_runtime._HOMES.values() for name in names)
    assert sorted(names) == sorted(flow2onnx_runtime.__all__)


def test_an_unknown_name():
    import flow2onnx_runtime

    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = flow2onnx_runtime.Nothing


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"session_entries": {"session.disable_prepackin": "1"}}, "did you mean session.disable"),
        ({"session_entries": {"session.disable_prepacking": "on"}}, "takes '0' or '1', got 'on'"),
        ({"session_entries": {"session.enable_profiling": "1"}}, "is the option profile"),
        ({"run_entries": {"gpu_graph_id": "1"}}, "is set by the program itself"),
        ({"run_entries": {"plain": 1}}, "run entry 'plain': 1"),
        ({"run_entries": {"x": "1"}}, "there are memory.enable_memory_arena"),
        ({"run_entries": {"disable_synchronize_execution_providers": "1"}}, "before they are comp"),
        ({"providers": (("CUDAExecutionProvider", {"use_tf23": "1"}),)}, "mean use_tf32"),
        ({"providers": (("CUDAExecutionProvider", {"use_tf32": "yes"}),)}, "takes '0' or '1'"),
        ({"providers": (("CUDAExecutionProvider", {"gpu_mem_limit": "1e9"}),)}, "a whole number"),
        ({"providers": (("CPUExecutionProvider", {"use_arena": "1"}),)}, "there are none"),
    ],
)
def test_names_and_values_that_the_runtime_would_take_unchecked(wrong, says):
    with pytest.raises(OptionsError, match=says):
        Options(**wrong)


def test_options_of_providers_that_nothing_is_known_of_are_left_alone():
    Options(providers=(("QNNExecutionProvider", {"backend_path": "libQnnHtp.so"}),))


def test_memory_and_profile_reach_the_session(onnx_model, tmp_path):
    options = Options(
        memory_reuse=False, cpu_arena=False, parallel=True, profile=str(tmp_path / "trace")
    )
    session = open_session(onnx_model(NEG), options)
    held = session.get_session_options()
    assert (held.enable_mem_reuse, held.enable_cpu_mem_arena) == (False, False)
    assert held.execution_mode == module.ort.ExecutionMode.ORT_PARALLEL
    assert session.end_profiling().startswith(str(tmp_path / "trace"))


def test_ranks_of_a_machine_open_sessions_of_their_share_of_its_processors(onnx_model, monkeypatch):
    model = onnx_model(NEG)
    for name, value in {"WORLD_SIZE": "999", "RANK": "0"}.items():
        monkeypatch.setenv(name, value)
    sessions = open_session(model), open_session(model, Options(intra_op_threads=2))
    assert [s.get_session_options().intra_op_num_threads for s in sessions] == [1, 2]


def test_providers_are_required_before_memory_is_taken():
    module.require_providers(Options())
    with pytest.raises(ProviderError, match=r"DmlExecution.* asked for.*\n.*onnxruntime-directml"):
        module.require_providers(Options(providers=("DmlExecutionProvider",)))


@pytest.fixture
def unasked(monkeypatch):
    """A runtime that would crash if it were asked: the GPU wheel where TensorRT is missing."""
    caches = (registry._can_be_asked, registry._definitions, registry._table)
    for cache in caches:
        cache.cache_clear()
    monkeypatch.setattr(registry, "has_library", lambda name: name == "CPUExecutionProvider")
    monkeypatch.setattr(registry, "usable_providers", tuple)
    monkeypatch.setattr(registry, "installed_definitions", lambda: pytest.fail("asked"))
    yield
    for cache in caches:
        cache.cache_clear()


def test_a_runtime_that_would_crash_has_the_recorded_kernels(unasked):
    table = kernels("CUDAExecutionProvider", "CPUExecutionProvider")
    assert table.is_known
    assert table.supports("Conv", 21, {"T": "float64"})
    assert not table.supports("MaxPool", 22, {"T": "bfloat16"})
    assert not kernels("CUDAExecutionProvider").has("Unique")
    assert table.has("Unique")


def test_of_a_provider_without_records_all_that_is_defined_counts(unasked):
    table = kernels("DmlExecutionProvider")
    assert not table.is_known
    assert table.has("Conv")
    assert table.supports("Conv", 21, {"T": "float64"})
    assert not table.supports("Invented", 21)
    assert not table.has("Invented")


def test_a_build_that_the_question_for_kernels_crashes_is_not_asked(monkeypatch):
    names = [PROVIDERS["openvino"].name, CPU.name]
    monkeypatch.setattr(registry.ort, "get_available_providers", lambda: names)
    monkeypatch.setattr(registry, "has_library", lambda name: name != CPU.name)
    monkeypatch.setattr(registry, "usable_providers", lambda: tuple(names))
    assert not registry._can_be_asked.__wrapped__()


def test_kernels_of_several_providers():
    assert kernels("NoSuchProvider", "CPUExecutionProvider").has("Relu")


GROWTH = """
import sys
from flow2onnx_runtime import open_session, Options

def resident():
    status = open("/proc/self/status").read()
    return int(next(s for s in status.splitlines() if s.startswith("VmRSS")).split()[1]) << 10

open_session(sys.argv[2], Options(intra_op_threads=1))
before = resident()
session = open_session(sys.argv[1], Options(intra_op_threads=1))
print(resident() - before)
"""


@pytest.mark.skipif(allocator._libc() is None, reason="needs glibc")
def test_a_session_keeps_its_weights_once(tmp_path):
    """Other copies of weights of 38 MB came and went: the message's, and one in another layout."""
    layers, channels = 16, 256
    draw = np.random.default_rng(0)
    weights = [
        numpy_helper.from_array(
            draw.standard_normal((channels, channels, 3, 3)).astype(np.float32), f"w{i}"
        )
        for i in range(layers)
    ]
    nodes = [
        helper.make_node("Conv", [f"x{i}", f"w{i}"], [f"x{i + 1}"], pads=[1] * 4)
        for i in range(layers)
    ]
    ends = [
        helper.make_tensor_value_info(n, TensorProto.FLOAT, (1, channels, 8, 8))
        for n in ("x0", f"x{layers}")
    ]
    for name, count in (("large", layers), ("small", 1)):
        graph = helper.make_graph(nodes[:count], "g", ends[:1], ends[1:], weights[:count])
        graph.output[0].name = f"x{count}"
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
        (tmp_path / name).write_bytes(made.SerializeToString())
    done = subprocess.run(
        [sys.executable, "-c", GROWTH, tmp_path / "large", tmp_path / "small"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert int(done.stdout) < 1.6 * sum(len(w.raw_data) for w in weights)
