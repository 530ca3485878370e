"""Settings that are refused together: each rule names the flags, their values and a remedy."""

import pytest

from flow2onnx.config import FunctionConfig, Settings, check_conflicts, conflicts, warn_of_idle
from flow2onnx.config.conflicts import _RULES
from flow2onnx.errors import ConfigError

TF32 = "flow.config.enable_tensor_float_32_compute"
DETERMINISTIC = "cudnn_conv_use_deterministic_algo_only"
NATIVE = "runtime.use_tf32"
CAPTURE = "runtime.enable_cuda_graph"
PATTERN = "runtime.enable_mem_pattern"

# settings → (what the message begins with, part of the hint)
WRONG = [
    ({TF32: True, DETERMINISTIC: True}, f"{TF32}(True) with {DETERMINISTIC}(True)", "(False)"),
    ({NATIVE: True, DETERMINISTIC: True}, f"{NATIVE}(True) with {DETERMINISTIC}(True)", "(False)"),
    ({NATIVE: False, TF32: True}, f"{NATIVE}(False) with {TF32}(True)", "set one of them"),
    ({NATIVE: True, TF32: False}, f"{NATIVE}(True) with {TF32}(False)", "set one of them"),
    ({"tensorrt.use_int8": True}, "tensorrt.use_int8(True)", "int8_calibration(path)"),
    ({"runtime.inter_op_num_threads": 2}, "runtime.inter_op_num_threads(2)", "'parallel'"),
    (
        {CAPTURE: True, "runtime.execution_mode": "parallel"},
        f"{CAPTURE}(True) with runtime.execution_mode('parallel')",
        "'sequential'",
    ),
    (
        {CAPTURE: True, "use_tensorrt": True},
        f"{CAPTURE}(True) with use_tensorrt(True)",
        "trt_cuda_graph_enable",
    ),
    (
        {CAPTURE: True, "runtime.recompute": 3},
        f"{CAPTURE}(True) with runtime.recompute(3)",
        "set one of them",
    ),
    (
        {PATTERN: True, "enable_reused_mem": False},
        f"{PATTERN}(True) with enable_reused_mem(False)",
        "set one",
    ),
    (
        {"enable_cudnn": False, "runtime.fuse_conv_bias": True},
        "enable_cudnn(False) with runtime.fuse_conv_bias(True)",
        "leave enable_cudnn on",
    ),
    (
        {"enable_inplace": False, "runtime.in_place": True},
        "enable_inplace(False) with runtime.in_place(True)",
        "set one of them",
    ),
    (
        {"runtime.enable_cpu_mem_arena": False, PATTERN: True},
        f"runtime.enable_cpu_mem_arena(False) with {PATTERN}(True)",
        "leave the arena on",
    ),
    (
        {"runtime.execution_mode": "parallel", PATTERN: True},
        f"runtime.execution_mode('parallel') with {PATTERN}(True)",
        "'sequential'",
    ),
    (
        {"runtime.graph_cache": "kept", "runtime.graph_optimization_level": "disable"},
        "runtime.graph_cache('kept') with runtime.graph_optimization_level('disable')",
        "leave one of them out",
    ),
]

RIGHT = [
    {},
    {DETERMINISTIC: True},
    {DETERMINISTIC: True, TF32: False},
    {DETERMINISTIC: True, NATIVE: False},
    {NATIVE: True, TF32: True},
    {"tensorrt.use_int8": True, "tensorrt.int8_calibration": "table"},
    {"tensorrt.use_int8": True, "enable_quantization_aware_training": True},
    {"runtime.inter_op_num_threads": 2, "runtime.execution_mode": "parallel"},
    {CAPTURE: True},
    {"enable_reused_mem": False},
]


def made(values: dict[str, object]) -> tuple[FunctionConfig, Settings]:
    config, settings = FunctionConfig(), Settings()
    for name, value in values.items():
        if name.startswith("flow.config."):
            settings.set(name.removeprefix("flow.config."), value)
        else:
            config._record.set(name, value)
    return config, settings


@pytest.mark.parametrize(("values", "begins", "remedy"), WRONG)
def test_conflicts_are_refused(values, begins, remedy):
    config, settings = made(values)
    with pytest.raises(ConfigError) as caught:
        check_conflicts(config, settings, trains=False)
    assert caught.value.message.startswith(f"{begins}: ")
    assert remedy in caught.value.hint
    assert "test_conflicts.py:" in caught.value.source


@pytest.mark.parametrize("values", RIGHT)
def test_what_agrees_is_left_alone(values):
    check_conflicts(*made(values), trains=False)


def test_every_rule_is_broken_by_a_case():
    whys = set()
    for values, _, _ in WRONG:
        with pytest.raises(ConfigError) as caught:
            check_conflicts(*made(values), trains=False)
        whys.add((caught.value.message.partition(": ")[2], caught.value.hint))
    assert whys == {(rule.why, rule.hint) for rule in _RULES}


def test_a_train_job_does_without_tensorrt_and_may_capture():
    check_conflicts(*made({CAPTURE: True, "use_tensorrt": True}), trains=True)


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"qat.symmetric": False}, "enable_quantization_aware_training(True)"),
        ({"runtime.tuning_cache_path": "tuned.json"}, "runtime.autotune(True)"),
        ({"runtime.recompute_products": False}, "runtime.recompute(True)"),
    ],
)
def test_what_does_nothing_says_so_once(values, text, caplog):
    conflicts._warn_once.cache_clear()
    config, _ = made(values)
    warn_of_idle(config)
    warn_of_idle(config)
    (record,) = caplog.records
    assert record.message == f"{next(iter(values))}: no effect without {text}"


def test_what_has_its_switch_is_silent(caplog):
    warn_of_idle(made({"qat.symmetric": False, "enable_quantization_aware_training": True})[0])
    warn_of_idle(made({"runtime.autotune": "only cache", "runtime.tuning_cache_path": "t"})[0])
    assert not caplog.records
