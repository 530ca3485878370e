"""Effects of the flags that the compiler and the engine read themselves: one test a row."""

from collections.abc import Callable
from contextlib import chdir
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from flow2onnx_runtime import OptionsError, usable_providers
from flow2onnx_runtime.providers import CPU, PROVIDERS

import flow2onnx as flow
import flow2onnx.typing as tp
from flow2onnx.config import CONFIG, ENV, FLAGS, FunctionConfig, Settings
from flow2onnx.config.effects import TRACE
from flow2onnx.engine.options import job_options
from flow2onnx.engine.placement import best_device, common_provider, provider_of
from flow2onnx.engine.session import current_session
from flow2onnx.errors import ConfigError, FlowError, ProviderError
from flow2onnx.graph.types import constant_of
from flow2onnx.trace.initializers import Constant, TruncatedNormal, Uniform, VarianceScaling

EFFECTS: dict[str, Callable[[], None]] = {}
# Rows with more to them than one test: the file about them.
ELSEWHERE = {
    "enable_auto_mixed_precision": "passes/test_mixed_precision.py",
    "runtime.mixed_precision_dtype": "passes/test_mixed_precision.py",
    "indexed_slices_optimizer_conf": "optim/test_indexed_slices.py",
    "all_reduce_group_min_mbyte": "optim/test_exchange.py",
    "all_reduce_group_num": "optim/test_exchange.py",
    "all_reduce_group_size_warmup": "optim/test_exchange.py",
    "enable_all_reduce_group": "optim/test_exchange.py",
    "optimizer_placement_optimization_mode": "optim/test_exchange.py",
    "optimizer_placement_optimization_threshold": "optim/test_exchange.py",
    "runtime.gradient_segments": "optim/test_exchange.py",
    "runtime.micro_batches": "engine/test_divide.py",
    "concurrency_width": "api/test_async.py",
    "train.secondary_lr": "optim/test_secondary_lr.py",
    "enable_quantization_aware_training": "passes/test_quantization.py",
    "qat.per_channel_weight_quantization": "passes/test_quantization.py",
    "qat.symmetric": "passes/test_quantization.py",
    "qat.moving_min_max_momentum": "passes/test_quantization.py",
    "qat.moving_min_max_stop_update_after_iters": "passes/test_quantization.py",
    "qat.target_backend": "passes/test_quantization.py",
    "train.num_gradient_accumulation_steps": "data/test_accumulation.py",
    "stop_on_non_finite": "api/test_training.py",
    "runtime.autotune": "autodiff/test_tuning.py",
    "runtime.tuning_cache_path": "autodiff/test_tuning.py",
    "runtime.in_place": "engine/test_in_place.py",
    "runtime.lowering": "autodiff/test_tuning.py",
    "runtime.memory_limit": "engine/test_estimate.py",
    "runtime.native": "native/test_jobs.py",
    "runtime.recompute": "engine/test_recompute.py",
    "runtime.recompute_products": "engine/test_recompute.py",
    "runtime.winograd": "native/test_winograd.py",
}
X = np.arange(6, dtype=np.float32).reshape(2, 3)
CUDA = "CUDAExecutionProvider"


def effect_of(name: str) -> Callable[[Callable[[], None]], Callable[[], None]]:
    def add(check: Callable[[], None]) -> Callable[[], None]:
        assert name not in EFFECTS, f"{name} has two tests"
        EFFECTS[name] = check
        return check

    return add


@pytest.mark.parametrize(
    "name",
    [r.name for t in (FLAGS, CONFIG, ENV) for r in t.rows.values() if isinstance(r.effect, TRACE)],
)
def test_effect(name: str) -> None:
    if name in ELSEWHERE:
        text = (Path(__file__).parents[1] / ELSEWHERE[name]).read_text()
        assert name.rpartition(".")[2] in text, f"{ELSEWHERE[name]} is not about {name}"
        return
    assert name in EFFECTS, f"{name} has an effect and no test of it"
    EFFECTS[name]()


def compiled(config: FunctionConfig, kind: str = "predict"):
    """A dense job with `config`, compiled; and the function itself."""

    @flow.global_function(type=kind, function_config=config)
    def job(x: tp.Numpy.Placeholder((2, 3))) -> tp.Numpy:
        w = flow.get_variable("w", (3, 2), dtype=None, **({} if has_default(config) else KNOWN))
        y = flow.matmul(flow.cast(x, w.dtype), w)
        if kind == "train":
            loss = flow.math.reduce_mean(y)
            if config.value("train.primary_lr") is None:
                schedule = flow.optimizer.PiecewiseConstantScheduler([], [0.1])
                flow.optimizer.SGD(schedule).minimize(loss)
            else:
                flow.losses.add_loss(loss)
            return loss
        return y

    return current_session().compile("job"), job


KNOWN = {"initializer": flow.constant_initializer(1.0)}


def has_default(config: FunctionConfig) -> bool:
    return config.value("default_initializer_conf") is not None


@effect_of("default_data_type")
def _() -> None:
    config = FunctionConfig()
    config.default_data_type(flow.float64)
    assert compiled(config)[0].variables["w"].dtype == flow.float64


@effect_of("default_initializer_conf")
def _() -> None:
    config = FunctionConfig()
    config.default_initializer_conf({"constant_conf": {"value": 2.5}})
    _, job = compiled(config)
    assert job(X).tolist() == (X @ np.full((3, 2), 2.5, np.float32)).tolist()


@pytest.mark.parametrize(
    ("conf", "wanted"),
    [
        ({"xavier_conf": {"variance_norm": "kFanOut", "data_format": ""}},
         VarianceScaling(1.0, "fan_out", "random_uniform")),
        ({"msra_conf": {"variance_norm": 0, "data_format": ""}},
         VarianceScaling(2.0, "fan_in", "random_normal")),
        ({"variance_scaling_conf": {"scale": 3.0, "variance_norm": 2, "distribution": 1,
                                    "data_format": ""}},
         VarianceScaling(3.0, "fan_avg", "random_normal")),
        ({"random_uniform_conf": {}}, Uniform(0.0, 1.0)),
        ({"truncated_normal_conf": {}}, TruncatedNormal(0.0, 0.05)),
        ({"empty_conf": {}}, Constant(0.0)),
    ],
    ids=lambda given: next(iter(given)) if isinstance(given, dict) else "",
)  # fmt: skip
def test_default_initializers(conf, wanted):
    config = FunctionConfig()
    config.default_initializer_conf(conf)
    assert compiled(config)[0].variables["w"].initializer == wanted


@effect_of("default_placement_scope")
def _() -> None:
    config = FunctionConfig()
    config.default_placement_scope(flow.scope.placement("gpu", "0:0"))
    _, job = compiled(config)
    if best_device() == "cpu":
        assert job(X).shape == (2, 2)
    assert job.explain().placed_on == "gpu"


@effect_of("default_logical_view")
def _() -> None:
    seen = []
    config = FunctionConfig()
    config.default_logical_view(flow.scope.mirrored_view())

    @flow.global_function(function_config=config)
    def job(x: tp.Numpy.Placeholder((2, 3))) -> tp.Numpy:
        seen.append(flow.scope.mirrored_view_enabled())
        return x

    job(X)
    assert seen == [True]


@effect_of("allow_cpu_return_op")
def _() -> None:
    config = FunctionConfig()
    assert job_options(config, Settings(), CUDA).host_results is True
    config.allow_cpu_return_op(False)
    assert job_options(config, Settings(), CUDA).host_results is False


def trained(rate: float, optimizer: dict) -> np.ndarray:
    """The weights after one step with the settings of the train group."""
    flow.clear_default_session()
    config = FunctionConfig()
    config.train.primary_lr(rate)
    config.train.model_update_conf(optimizer)
    _, job = compiled(config, "train")
    job(X)
    return flow.get_all_variables()["w"].numpy()


GRADIENT = np.repeat(X.sum(0)[:, None], 2, 1) / 4


@effect_of("train.primary_lr")
def _() -> None:
    np.testing.assert_allclose(trained(0.5, {"naive_conf": {}}), 1 - 0.5 * GRADIENT, rtol=1e-6)


@effect_of("train.model_update_conf")
def _() -> None:
    clipped = {"naive_conf": {}, "clip_conf": {"clip_by_global_norm": {"clip_norm": 1e-3}}}
    step = 1 - trained(1.0, clipped)
    assert np.linalg.norm(step) == pytest.approx(1e-3, rel=1e-3)


@effect_of("train.loss_scale_factor")
def _() -> None:
    # in half precision, where the factor does not cancel before the graph is written
    assert any(size == 64 for size in constants_of_a_step(64))
    assert not any(size == 64 for size in constants_of_a_step(None))


def constants_of_a_step(scale: float | None) -> list[float]:
    """The single numbers in the graph of a step in half precision."""
    flow.clear_default_session()
    config = FunctionConfig()
    config.train.primary_lr(0.5)
    config.train.model_update_conf({"naive_conf": {}})
    config.enable_auto_mixed_precision()
    if scale is not None:
        config.train.loss_scale_factor(scale)
    graph = compiled(config, "train")[0].model.graph
    held = [constant_of(v) for n in graph for v in n.inputs]
    return [float(v.ravel()[0]) for v in held if v is not None and v.size == 1]


@effect_of("runtime.placement")
def _() -> None:
    config = FunctionConfig()
    config.runtime.placement("strict")
    assert provider_of("gpu", config.value("runtime.placement")) == CUDA
    with pytest.raises(ConfigError, match="takes 'strict' or 'best effort'"):
        config.runtime.placement("lax")


@effect_of("runtime.provider")
def _() -> None:
    config = FunctionConfig()
    config.default_placement_scope(flow.scope.placement("gpu", "0:0"))
    config.runtime.provider("cpu")
    _, job = compiled(config)
    assert job(X).shape == (2, 2)
    assert job.explain().placed_on == "cpu"
    config.runtime.provider("cupu")
    assert_refused(config, OptionsError, "no provider 'cupu'")
    absent = next(t for t, row in PROVIDERS.items() if row.name not in usable_providers())
    config.runtime.provider(absent)
    assert_refused(config, ProviderError, f"{PROVIDERS[absent].name} was asked for and cannot be")


@effect_of("runtime.provider_library")
def _() -> None:
    config = FunctionConfig()
    assert job_options(config, Settings(), CPU.name).provider_libraries == ()
    config.runtime.provider_library("none.so")
    assert job_options(config, Settings(), CPU.name).provider_libraries == ("none.so",)
    assert_refused(config, OptionsError, "'none.so' is not loaded: it is no absolute path")


def assert_refused(config: FunctionConfig, error: type[FlowError], message: str) -> None:
    """The first call of a job raises, and points at the line that set the flag."""
    flow.clear_default_session()
    _, job = compiled(config)
    with pytest.raises(error, match=message) as caught:
        job(X)
    if error is not ProviderError or "registered" in message:
        assert "test_traced_flags.py:" in caught.value.source


def test_jobs_of_a_session_run_on_one_provider() -> None:
    configs = [FunctionConfig(), FunctionConfig()]
    for config, tag in zip(configs, ("cpu", "openvino"), strict=True):
        config.runtime.provider(tag)
    assert common_provider([FunctionConfig(), configs[0]]) == "cpu"
    with pytest.raises(ConfigError, match="jobs of one session ask for 'cpu' and 'openvino'"):
        common_provider(configs)


def test_a_train_job_does_without_a_provider_that_wants_constants(caplog) -> None:
    coreml = PROVIDERS["coreml"]
    options = job_options(FunctionConfig(), Settings(), coreml.name, trains=True)
    assert options.provider_names == CPU.names
    assert "CoreML: train jobs run on the CPU" in caplog.text
    assert job_options(FunctionConfig(), Settings(), coreml.name).provider_names == coreml.names


@effect_of("runtime.tensorrt_cache_path")
def _() -> None:
    config = FunctionConfig()
    config.use_tensorrt()
    config.runtime.tensorrt_cache_path("engines")
    name, options = job_options(config, Settings(), CUDA).providers[0]
    assert name == "TensorrtExecutionProvider"
    assert options["trt_engine_cache_path"] == options["trt_timing_cache_path"] == "engines"


@effect_of("runtime.graph_cache")
def _() -> None:
    config = FunctionConfig()
    with TemporaryDirectory() as folder:
        config.runtime.graph_cache(folder)
        _, job = compiled(config)
        job(X)
        assert list(Path(folder).glob("*.onnx"))


@effect_of("runtime.opening_cache")
def _() -> None:
    config = FunctionConfig()
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("FLOW2ONNX_CACHE", folder)
        patch.setattr("flow2onnx.engine.opening_cache.FEWEST_NODES", 1)
        config.runtime.opening_cache(False)
        _, job = compiled(config)
        job(X)
        assert not list(Path(folder).iterdir())


@effect_of("runtime.session_entry")
def _() -> None:
    config = FunctionConfig()
    config.runtime.session_entry("session.disable_prepacking", "1")
    _, job = compiled(config)
    job(X)
    (executable,) = current_session()._executables.values()
    held = executable.program.session.get_session_options()
    assert held.get_session_config_entry("session.disable_prepacking") == "1"


@effect_of("runtime.run_entry")
def _() -> None:
    config = FunctionConfig()
    config.runtime.run_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
    _, job = compiled(config)
    job(X)
    (executable,) = current_session()._executables.values()
    held = executable.program.lane_options()
    assert held.get_run_config_entry("memory.enable_memory_arena_shrinkage") == "cpu:0"


@effect_of("runtime.provider_option")
def _() -> None:
    config = FunctionConfig()
    config.runtime.provider_option("cuda", "sdpa_kernel", "1")
    name, options = job_options(config, Settings(), CUDA).providers[0]
    assert (name, options["sdpa_kernel"]) == (CUDA, "1")


@effect_of("gpu_device_num")
def _() -> None:
    flow.config.gpu_device_num(0)
    _, job = compiled(FunctionConfig())
    job(X)
    assert current_session().device == "cpu"


@effect_of("cpu_device_num")
def _() -> None:
    flow.config.cpu_device_num(1)
    assert flow.current_resource()["cpu_device_num"] == 1
    _, job = compiled(FunctionConfig())
    job(X)
    assert current_session().device == best_device()


def written_to(folder: str, at: Path) -> list[str]:
    """The graphs in a folder below a new working directory, after a call in debug mode."""
    flow.clear_default_session()
    flow.config.enable_debug_mode(True)
    if folder != "log":
        flow.env.log_dir(folder)
    compiled(FunctionConfig())[1](X)
    return [file.read_text() for file in (at / folder).glob("job.onnx.txt")]


@effect_of("enable_debug_mode")
def _() -> None:
    with TemporaryDirectory() as folder, chdir(folder):
        (graph,) = written_to("log", Path(folder))
        assert graph.startswith("<")
        assert "job (float[2,3] x" in graph


@effect_of("log_dir")
def _() -> None:
    with TemporaryDirectory() as folder, chdir(folder):
        assert len(written_to("graphs/of/jobs", Path(folder))) == 1


@effect_of("random_seed")
def _() -> None:
    def first() -> np.ndarray:
        config = FunctionConfig()
        config.default_initializer_conf({"random_normal_conf": {}})
        compiled(config)[1](X)
        return flow.get_all_variables()["w"].numpy()

    plain = first()
    flow.clear_default_session()
    flow.config.random_seed(7)
    assert not np.array_equal(first(), plain)
