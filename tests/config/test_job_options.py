"""From the flags of a job to the options of its session."""

import gc
import logging
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from flow2onnx_runtime import OptionsError, ProviderError
from flow2onnx_runtime.ort_settings import session_keys
from flow2onnx_runtime.providers import PROVIDERS

import flow2onnx as flow
import flow2onnx.typing as tp
from flow2onnx.config import FunctionConfig, Settings
from flow2onnx.engine import options as module
from flow2onnx.engine import placement
from flow2onnx.engine.options import job_options
from flow2onnx.engine.placement import best_device, provider_of
from flow2onnx.errors import ConfigError, FlowError

CPU, CUDA, TENSORRT = (f"{name}ExecutionProvider" for name in ("CPU", "CUDA", "Tensorrt"))


@pytest.fixture(autouse=True)
def fresh():
    """Warnings that are given once are given again."""
    provider_of.cache_clear()
    module._runs_without.cache_clear()
    module._warn_once.cache_clear()


@pytest.fixture
def config() -> FunctionConfig:
    return FunctionConfig()


def options(config, provider=CPU, **more):
    return job_options(config, Settings(), provider, **more)


def given(config, provider=CPU, **more) -> dict[str, dict[str, str]]:
    found = options(config, provider, **more).providers
    return dict((p, {}) if isinstance(p, str) else (p[0], dict(p[1])) for p in found)


# --- providers ------------------------------------------------------------------------------------
def test_the_order_is_tensorrt_cuda_cpu(config):
    assert options(config).provider_names == (CPU,)
    assert options(config, CUDA).provider_names == (CUDA, CPU)
    config.use_tensorrt()
    assert options(config, CUDA).provider_names == (TENSORRT, CUDA, CPU)
    assert options(config, CPU).provider_names == (TENSORRT, CUDA, CPU)


def test_tensorrt_keeps_engines_and_timings_in_the_cache_folder(config, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "/caches")
    config.tensorrt.use_fp16()
    assert given(config)[TENSORRT] == {
        "trt_engine_cache_enable": "True",
        "trt_engine_cache_path": str(Path("/caches/flow2onnx/tensorrt")),
        "trt_timing_cache_enable": "True",
        "trt_timing_cache_path": str(Path("/caches/flow2onnx/tensorrt")),
        "trt_fp16_enable": "True",
    }
    monkeypatch.delenv("XDG_CACHE_HOME")
    home = Path.home() / ".cache" / "flow2onnx" / "tensorrt"
    assert given(config)[TENSORRT]["trt_engine_cache_path"] == str(home)
    config.runtime.tensorrt_cache_path("engines")
    assert given(config)[TENSORRT]["trt_timing_cache_path"] == "engines"


def test_int8_takes_its_table_along(config):
    config.tensorrt.use_int8()
    config.tensorrt.int8_calibration("table.flatbuffers")
    found = given(config)[TENSORRT]
    assert found["trt_int8_enable"] == "True"
    assert found["trt_int8_calibration_table_name"] == "table.flatbuffers"


@pytest.mark.parametrize(
    ("dtype", "option"), [("float16", "trt_fp16_enable"), ("bfloat16", "trt_bf16_enable")]
)
def test_mixed_precision_is_left_to_tensorrt_too(config, dtype, option):
    config.use_tensorrt()
    config.enable_auto_mixed_precision()
    config.runtime.mixed_precision_dtype(dtype)
    assert given(config)[TENSORRT][option] == "True"


def test_a_train_job_runs_on_cuda_and_says_so_once(config, caplog):
    config.use_tensorrt()
    for _ in range(2):
        assert options(config, CUDA, trains=True).provider_names == (CUDA, CPU)
    assert [r.levelno for r in caplog.records if "train jobs run on CUDA" in r.message] == [
        logging.WARNING
    ]


def test_a_numbered_gpu(config):
    assert given(config, CUDA, device_id=2)[CUDA]["device_id"] == "2"
    assert options(config, CUDA, device_id=2).device == ("cuda", 2)
    assert "device_id" not in given(config, CUDA)[CUDA]


def test_the_number_comes_from_the_placement():
    def job(tag, *ids):
        config = FunctionConfig()
        config.default_placement_scope(SimpleNamespace(device_tag=tag, device_ids=ids))
        return SimpleNamespace(config=config)

    bare = SimpleNamespace(config=FunctionConfig())
    assert placement._gpu_number([bare]) == 0
    assert placement._gpu_number([bare, job("cpu", "0:3"), job("gpu", "@0:1-3")]) == 1


def test_a_stream_of_the_caller(config):
    config.runtime.user_compute_stream(140_000_000)
    found = given(config, CUDA)[CUDA]
    assert found["user_compute_stream"] == "140000000"
    assert found["has_user_compute_stream"] == "1"


def test_results_come_to_the_host_with_the_run_unless_told_otherwise(config):
    assert options(config, CUDA).host_results is True
    config.allow_cpu_return_op(False)
    assert options(config, CUDA).host_results is False


def test_capture(config):
    assert not options(config, CUDA).captures
    config.runtime.enable_cuda_graph()
    assert options(config, CUDA).captures
    assert not options(config, CPU).captures


def test_a_step_is_optimised_less_unless_told_otherwise(config):
    assert options(config, trains=True).optimization == "extended"
    assert options(config).optimization == "all"
    config.runtime.graph_optimization_level("all")
    assert options(config, trains=True).optimization == "all"


@pytest.mark.parametrize("by", ["flow.config", "job"])
def test_a_profile_is_written_when_the_session_ends(by, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = flow.function_config()
    if by == "job":
        config.runtime.enable_profiling()
        config.runtime.profile_file_prefix("trace")
    else:
        flow.config.collect_act_event()

    @flow.global_function(type="predict", function_config=config)
    def job(x: tp.Numpy.Placeholder((2,))) -> tp.Numpy:
        return flow.math.relu(x)

    job(np.ones(2, np.float32))
    job.explain()  # opens a session that writes none
    del job
    flow.clear_default_session()
    gc.collect()
    (file,) = tmp_path.glob("*.json")
    assert file.name.startswith("trace" if by == "job" else "flow2onnx")
    assert "Relu" in file.read_text()


def test_a_prefix_alone_writes_no_profile(config):
    config.runtime.profile_file_prefix("trace")
    assert options(config).profile is None
    config.runtime.enable_profiling()
    assert options(config).profile == "trace"


def test_settings_for_cuda_say_once_that_the_job_runs_without(config, caplog):
    config.runtime.enable_cuda_graph()
    config.runtime.use_tf32(False)
    config.cudnn_buf_limit_mbyte(512)
    caplog.clear()
    options(config, CUDA)
    assert not caplog.records
    for _ in range(2):
        options(config, CPU)
    (record,) = caplog.records
    assert record.message.startswith("runtime.enable_cuda_graph, runtime.use_tf32: no effect")


# --- placement -----------------------------------------------------------------------------------
def test_placement_on_what_is_not_there(caplog, monkeypatch):
    import onnxruntime

    monkeypatch.setattr(placement, "usable_providers", lambda: (CPU,))
    if CUDA not in onnxruntime.get_available_providers():
        assert provider_of("gpu") == CPU
        assert "CPU build" in caplog.text
    assert provider_of("gpu", "strict") == CUDA
    caplog.clear()
    for _ in range(2):
        assert provider_of("gpu", "best effort") == CPU
    assert len(caplog.records) == 1
    assert "CUDAExecutionProvider cannot be used" in caplog.text


def gpu_job(placement=None, **flags):
    config = flow.function_config()
    config.default_placement_scope(flow.scope.placement("gpu", "0:0"))
    if placement:
        config.runtime.placement(placement)
    for name, value in flags.items():
        getattr(config, name)(value)

    @flow.global_function(type="predict", function_config=config)
    def job(x: tp.Numpy.Placeholder((2,))) -> tp.Numpy:
        return x * 2

    return job


@pytest.mark.skipif(best_device() == "gpu", reason="this machine has a usable GPU")
def test_strict_placement_is_an_error_that_names_what_to_install():
    job = gpu_job("strict")
    with pytest.raises(ProviderError, match=r"CUDAExecutionProvider was asked for") as caught:
        job(np.ones(2, np.float32))
    assert "onnxruntime-gpu" in caught.value.hint


@pytest.mark.skipif(best_device() == "gpu", reason="this machine has a usable GPU")
def test_best_effort_runs_on_what_there_is(caplog):
    assert gpu_job("best effort", use_tensorrt=True)(np.ones(2, np.float32)).tolist() == [2, 2]
    warnings = [r.message for r in caplog.records if "cannot be used" in r.message]
    assert len(warnings) == 2
    assert "CUDAExecutionProvider" in warnings[0]
    assert "TensorrtExecutionProvider" in warnings[1]


@pytest.mark.skipif(best_device() == "gpu", reason="this machine has a usable GPU")
def test_tensorrt_that_is_not_there_is_an_error():
    with pytest.raises(ProviderError, match="TensorrtExecutionProvider was asked for"):
        gpu_job(use_tensorrt=True)(np.ones(2, np.float32))


# --- the runtime's own names ---------------------------------------------------------------------
def test_entries_and_options_by_the_runtimes_names(config):
    config.runtime.session_entry("session.disable_prepacking", "1")
    config.runtime.session_entry("session.set_denormal_as_zero", "0")
    config.runtime.run_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
    config.runtime.provider_option("cuda", "sdpa_kernel", "0")
    found = options(config, CUDA)
    assert found.session_entries == {
        "session.disable_prepacking": "1",
        "session.set_denormal_as_zero": "0",
    }
    assert found.run_entries == {"memory.enable_memory_arena_shrinkage": "cpu:0"}
    assert given(config, CUDA)[CUDA]["sdpa_kernel"] == "0"


def test_threads_stop_spinning_between_calls_if_asked_for(config):
    config.runtime.force_spinning_stop()
    assert options(config).session_entries == {"session.force_spinning_stop": "1"}

    @flow.global_function(type="predict", function_config=config)
    def job(x: tp.Numpy.Placeholder((2,))) -> tp.Numpy:
        return x * 2

    assert job(np.ones(2, np.float32)).tolist() == [2, 2]
    (flag,) = job.explain().flags
    assert flag.outcome == "session option session.force_spinning_stop = 1"


BETWEEN_CALLS = {"session.force_spinning_stop": "1"}


def test_idle_threads_of_several_jobs_sleep_between_calls():
    @flow.global_function(type="predict")
    def first(x: tp.Numpy.Placeholder((2,))) -> tp.Numpy:
        return x * 2

    @flow.global_function(type="predict")
    def second(x: tp.Numpy.Placeholder((2,))) -> tp.Numpy:
        return x * 3

    assert [j(np.ones(2, np.float32))[0] for j in (first, second)] == [2, 3]
    for job in (first, second):
        assert job.session.opening(job.__name__).options.session_entries == BETWEEN_CALLS


def test_idle_threads_of_another_shape_sleep_between_calls():
    @flow.global_function(type="predict")
    def job(x: tp.ListNumpy.Placeholder((4,))) -> tp.ListNumpy:
        return x * 2

    job([np.ones(4, np.float32)])
    job([np.ones(2, np.float32)])
    found = [e.opening.options.session_entries for e in job.session._executables.values()]
    assert found == [{}, BETWEEN_CALLS]


ASLEEP = {"session.intra_op.allow_spinning": "0", "session.inter_op.allow_spinning": "0"}


@pytest.mark.parametrize(("threads", "given"), [(2, {}), (3, ASLEEP)])
def test_idle_threads_without_a_processor_sleep(config, monkeypatch, threads, given):
    monkeypatch.setattr(module, "usable_processors", lambda: 2)
    config.runtime.intra_op_num_threads(threads)
    assert options(config).session_entries == given
    assert options(config, takes_turns=True).session_entries == (given or BETWEEN_CALLS)
    settings = Settings()
    settings.set("compute_thread_pool_size", threads)
    assert job_options(FunctionConfig(), settings, CPU).session_entries == given


def test_a_flag_lets_threads_without_a_processor_wait(config, monkeypatch):
    monkeypatch.setattr(module, "usable_processors", lambda: 2)
    config.runtime.intra_op_num_threads(3)
    config.runtime.allow_spinning(True)
    assert set(options(config).session_entries.values()) == {"1"}


@pytest.mark.parametrize(("call", "given"), [
    (lambda c: c.runtime.allow_spinning(True),
     {"session.intra_op.allow_spinning": "1", "session.inter_op.allow_spinning": "1"}),
    (lambda c: c.runtime.force_spinning_stop(), {"session.force_spinning_stop": "1"}),
    (lambda c: c.runtime.session_entry("session.intra_op.allow_spinning", "1"),
     {"session.intra_op.allow_spinning": "1"}),
])  # fmt: skip
def test_flags_about_spinning_win_over_the_number_of_jobs(config, call, given):
    call(config)
    assert options(config, takes_turns=True).session_entries == given


def test_an_option_by_name_wins_over_a_default_and_not_over_a_flag(config):
    config.runtime.provider_option("cuda", "cudnn_conv_algo_search", "DEFAULT")
    assert given(config, CUDA)[CUDA]["cudnn_conv_algo_search"] == "DEFAULT"
    config.cudnn_conv_heuristic_search_algo(True)
    with pytest.raises(OptionsError, match="'DEFAULT', and as 'HEURISTIC' by a flag"):
        options(config, CUDA)


@pytest.mark.parametrize(
    ("call", "arguments", "message", "hint"),
    [
        ("session_entry", ("session.disable_prepackin", "1"), "not one the runtime knows",
         "session.disable_prepacking"),
        ("session_entry", ("session.disable_prepacking", "yes"), "takes '0' or '1', got 'yes'", ""),
        ("session_entry", ("session.intra_op_num_threads", "2"), "option intra_op_threads", ""),
        ("run_entry", ("gpu_graph_id", "3"), "set by the program itself", "enable_cuda_graph"),
        ("run_entry", ("memory.arena", "cpu:0"), "does not exist", "shrinkage"),
        ("run_entry", ("memory.enable_memory_arena_shrinkage", "disk"), "takes devices", ""),
        ("provider_option", ("cuda", "prefer_nhcw", "1"), "does not exist", "prefer_nhwc"),
        ("provider_option", ("cuda", "gpu_mem_limit", "1e9"), "takes a whole number", ""),
        ("provider_option", ("tensorrt", "trt_fp16", "1"), "does not exist", "trt_fp16_enable"),
    ],
)  # fmt: skip
def test_what_the_runtime_does_not_know_is_refused_where_it_was_set(
    config, call, arguments, message, hint
):
    getattr(config.runtime, call)(*arguments)
    with pytest.raises(OptionsError, match=message) as caught:
        options(config, CUDA)
    assert hint in (caught.value.hint or "")
    assert "test_job_options.py:" in caught.value.source


def test_a_provider_is_cuda_or_tensorrt(config):
    with pytest.raises(ConfigError, match=r"'cudaa.use_tf32' does not begin with") as caught:
        config.runtime.provider_option("cudaa", "use_tf32", "0")
    assert caught.value.hint == "did you mean cuda?"


def test_the_runtime_does_know_its_keys():
    assert {"session.disable_prepacking", "session.intra_op.allow_spinning"} <= session_keys()
    assert {"use_tf32", "prefer_nhwc", "enable_cuda_graph", "user_compute_stream"} <= set(
        PROVIDERS["cuda"].options
    )
    assert "trt_timing_cache_path" in PROVIDERS["tensorrt"].options


# --- what only a job shows -----------------------------------------------------------------------
def test_double_precision_convolution_on_the_cpu_names_operator_and_flag():
    config = flow.function_config()
    config.default_data_type(flow.float64)

    @flow.global_function(type="predict", function_config=config)
    def job(x: tp.Numpy.Placeholder((1, 1, 4, 4), dtype=flow.float64)) -> tp.Numpy:
        return flow.layers.conv2d(x, 2, 3, name="conv")

    if best_device() == "gpu":
        pytest.skip("this machine has a usable GPU")
    with pytest.raises(FlowError, match="no kernel for Conv on float64") as caught:
        job(np.ones((1, 1, 4, 4)))
    assert "default_data_type at flow.float32" in caught.value.hint
    assert "test_job_options.py:" in caught.value.source


def test_contradictions_stop_the_first_call():
    config = flow.function_config()
    config.tensorrt.use_int8()

    @flow.global_function(type="predict", function_config=config)
    def job(x: tp.Numpy.Placeholder((2,))) -> tp.Numpy:
        return x * 2

    with pytest.raises(ConfigError, match=r"tensorrt.use_int8\(True\): int8 needs the ranges"):
        job(np.ones(2, np.float32))


def test_run_entries_and_session_entries_leave_the_numbers_alone():
    config = flow.function_config()
    config.runtime.run_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
    config.runtime.session_entry("session.disable_prepacking", "1")
    config.enable_inplace(False)
    config.runtime.enable_cpu_mem_arena(True)

    @flow.global_function(type="predict", function_config=config)
    def job(x: tp.Numpy.Placeholder((2,))) -> tp.Numpy:
        return x * 2

    assert job(np.ones(2, np.float32)).tolist() == [2, 2]
