"""`flow.function_config()` beyond what its rows say."""

import copy
import inspect
import logging
from types import SimpleNamespace
from typing import Any

import pytest

from flow2onnx.config import (
    ExecutionConfig,
    FunctionConfig,
    UnknownSettingError,
    function_config,
)
from flow2onnx.config.function_config import FunctionDesc
from flow2onnx.dtypes import float32
from flow2onnx.errors import ConfigError


@pytest.fixture
def config() -> FunctionConfig:
    return FunctionConfig()


def test_the_names_of_the_class_are_one_class(config: FunctionConfig) -> None:
    assert isinstance(function_config(), FunctionConfig)
    assert isinstance(ExecutionConfig(), FunctionConfig)


def test_the_documented_training_configuration(config: FunctionConfig) -> None:
    config.default_data_type(float32)
    config.train.primary_lr(0.1)
    config.train.model_update_conf({"naive_conf": {}})
    assert config.is_train
    assert config.values() == {
        "default_data_type": float32,
        "train.primary_lr": 0.1,
        "train.model_update_conf": {"naive_conf": {}},
    }


def test_setters_take_their_argument_by_name(config: FunctionConfig) -> None:
    config.enable_inplace(value=False)
    assert config.value("enable_inplace") is False
    with pytest.raises(ConfigError, match="got val=True"):
        config.enable_inplace(val=True)
    with pytest.raises(ConfigError, match="got 1, 2"):
        config.concurrency_width(1, 2)


def test_setters_describe_themselves(config: FunctionConfig) -> None:
    assert str(inspect.signature(config.enable_inplace)) == "(value=True)"
    assert str(inspect.signature(config.train.primary_lr)) == "(value)"
    assert "Learning rate before warm-up and decay." in config.train.primary_lr.__doc__
    assert repr(config.enable_inplace) == "<setting enable_inplace(value=True)>"


def test_a_setter_is_not_mistaken_for_its_value(config: FunctionConfig) -> None:
    config.enable_inplace = False
    with pytest.raises(ConfigError, match="is a setter") as caught:
        bool(config.enable_inplace)
    assert caught.value.hint == "read config.value('enable_inplace')"


# --- names --------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("path", "near"),
    [
        (["enable_inplce"], "enable_inplace"),
        (["trian"], "train"),
        (["train", "primary_rl"], "primary_lr"),
        (["tensorrt", "usefp16"], "use_fp16"),
    ],
)
def test_a_misspelt_name_is_answered_with_the_close_one(
    config: FunctionConfig, path: list[str], near: str
) -> None:
    place: Any = config  # a group or the configuration
    for group in path[:-1]:
        place = getattr(place, group)
    for access in (lambda: getattr(place, path[-1]), lambda: setattr(place, path[-1], 1)):
        with pytest.raises(UnknownSettingError) as caught:
            access()
        assert isinstance(caught.value, ConfigError)
        assert isinstance(caught.value, AssertionError)
        assert repr(path[-1]) in caught.value.message
        assert caught.value.hint is not None
        assert f"did you mean {near}?" == caught.value.hint
        assert "test_function_config.py:" in str(caught.value)
    assert not hasattr(place, path[-1])
    assert hasattr(place, near)
    assert config.values() == {}


def test_a_group_of_the_runtime_has_its_names_and_calls(config: FunctionConfig) -> None:
    with pytest.raises(UnknownSettingError, match=r"function_config.runtime has no setting") as e:
        config.runtime.use_tf23(False)
    assert e.value.hint is not None
    assert "mean use_tf32?" in e.value.hint
    config.runtime.session_entry("session.disable_prepacking", "1")
    config.runtime.session_entry("session.set_denormal_as_zero", "1")
    assert list(config.value("runtime.session_entry").values()) == ["1", "1"]
    twin = config.copy()
    twin.runtime.session_entry("session.disable_prepacking", "0")
    assert config.value("runtime.session_entry")["session.disable_prepacking"] == "1"
    assert {"session_entry", "run_entry", "provider_option", "use_tf32"} <= set(dir(config.runtime))
    with pytest.raises(ConfigError, match="takes a str; got 1"):
        config.runtime.session_entry("session.disable_prepacking", 1)
    with pytest.raises(ConfigError, match="runtime is a group"):
        config.runtime = {}
    assert config.source("runtime.session_entry") is not None
    assert config.source("runtime.use_tf32") is None


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("zzzzzz", "`flow2onnx flags` lists them all"),
        ("enable_amp", "enable_auto_mixed_precision(True)"),
        ("learning_rate", "flow.optimizer.SGD(0.1)"),
        ("use_xla", "did you mean use_xla_jit?"),
    ],
)
def test_an_unknown_name_says_where_to_look(config: FunctionConfig, name: str, hint: str) -> None:
    with pytest.raises(UnknownSettingError) as caught:
        getattr(config, name)(1)
    assert hint in str(caught.value.hint)


def test_python_adds_no_second_suggestion(config: FunctionConfig) -> None:
    with pytest.raises(UnknownSettingError) as caught:
        config.enable_inplce(1)
    assert caught.value.name is None


def test_value_knows_full_names_only(config: FunctionConfig) -> None:
    with pytest.raises(UnknownSettingError, match="primary_lr"):
        config.value("primary_lr")


def test_groups_cannot_be_assigned(config: FunctionConfig) -> None:
    with pytest.raises(ConfigError, match="train is a group") as caught:
        config.train = {"primary_lr": 1}
    assert caught.value.hint == "set its members, such as train.primary_lr"


@pytest.mark.parametrize("kind", [FunctionConfig, FunctionDesc])
def test_a_half_made_object_has_no_settings(kind: type) -> None:
    assert not hasattr(object.__new__(kind), "enable_inplace")


# --- train or predict ---------------------------------------------------------------------------
def test_a_configuration_is_for_prediction_until_a_train_flag_is_touched(
    config: FunctionConfig,
) -> None:
    config.enable_inplace(False)
    _ = config.train.primary_lr
    assert not config.is_train
    config.train.loss_scale_factor = 2
    assert config.is_train


def test_a_refused_train_flag_does_not_make_it_train(config: FunctionConfig) -> None:
    with pytest.raises(ConfigError):
        config.train.primary_lr("0.1")
    assert not config.is_train


def test_the_last_mark_wins(config: FunctionConfig) -> None:
    config.mark("train")
    assert config.is_train
    config.mark("predict")
    assert not config.is_train
    with pytest.raises(ConfigError, match="'train' or 'predict'; got 'eval'"):
        config.mark("eval")


# --- copies -------------------------------------------------------------------------------------
@pytest.mark.parametrize("duplicate", [FunctionConfig.copy, copy.copy, copy.deepcopy])
def test_copies_are_independent(config: FunctionConfig, duplicate: Any) -> None:
    config.enable_inplace(False)
    twin = duplicate(config)
    twin.enable_inplace(True)
    twin.train.primary_lr(1.0)
    config.concurrency_width(3)
    assert config.values() == {"enable_inplace": False, "concurrency_width": 3}
    assert twin.values() == {"enable_inplace": True, "train.primary_lr": 1.0}
    assert (config.is_train, twin.is_train) == (False, True)
    config.static_mem_alloc_policy_white_list.remove("use_mem_size_first_algo")
    assert twin.static_mem_alloc_policy_white_list.has("use_mem_size_first_algo")


def test_a_copy_trains_and_holds_scopes_like_the_original(config: FunctionConfig) -> None:
    scope = SimpleNamespace(device_tag="gpu", device_ids=["0:0"])
    config.default_placement_scope(scope)
    config.mark("train")
    twin = config.copy()
    assert twin.is_train
    assert twin.value("default_placement_scope") is scope


def test_dicts_are_copied_in_and_out(config: FunctionConfig) -> None:
    given = {"momentum_conf": {"beta": 0.5}}
    config.train.model_update_conf(given)
    given["momentum_conf"]["beta"] = 0.1
    config.value("train.model_update_conf")["momentum_conf"]["beta"] = 0.2
    config.values()["train.model_update_conf"]["momentum_conf"]["beta"] = 0.3
    assert config.value("train.model_update_conf") == {"momentum_conf": {"beta": 0.5}}


def test_a_copy_does_not_repeat_what_was_logged(
    config: FunctionConfig, caplog: pytest.LogCaptureFixture
) -> None:
    config.use_xla_jit()
    config.copy().use_xla_jit()
    assert len(caplog.records) == 1
    FunctionConfig().use_xla_jit()
    assert len(caplog.records) == 2
    assert {r.levelno for r in caplog.records} == {logging.WARNING}


def test_nothing_is_printed(config: FunctionConfig, capsys: pytest.CaptureFixture[str]) -> None:
    config.enable_nccl(False)
    assert capsys.readouterr() == ("", "")


# --- dicts --------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ({"momentum_conf": {}}, {"momentum_conf": {"beta": 0.9}}),
        (
            {"adam_conf": {"beta1": 0.5}},
            {
                "adam_conf": {
                    "beta1": 0.5,
                    "beta2": 0.999,
                    "epsilon": 1e-8,
                    "do_bias_correction": False,
                    "amsgrad": False,
                }
            },
        ),
        (
            {
                "naive_conf": {},
                "learning_rate_decay": {"cosine_conf": {"decay_batches": 9}},
                "warmup_conf": {"linear_conf": {"warmup_batches": 5, "start_multiplier": 0}},
                "clip_conf": {"clip_by_global_norm": {"clip_norm": 1.0}},
                "weight_decay_conf": {"weight_decay_rate": 0.1, "excludes": {"pattern": ["b$"]}},
            },
            {
                "naive_conf": {},
                "learning_rate_decay": {"cosine_conf": {"decay_batches": 9, "alpha": 0.0}},
                "warmup_conf": {"linear_conf": {"warmup_batches": 5, "start_multiplier": 0}},
                "clip_conf": {"clip_by_global_norm": {"clip_norm": 1.0}},
                "weight_decay_conf": {"weight_decay_rate": 0.1, "excludes": {"pattern": ("b$",)}},
            },
        ),
    ],
)
def test_model_update_conf_comes_back_with_its_defaults(
    config: FunctionConfig, given: dict[str, object], kept: dict[str, object]
) -> None:
    config.train.model_update_conf(given)
    assert config.value("train.model_update_conf") == kept


DECAY = "train.model_update_conf.learning_rate_decay"


@pytest.mark.parametrize(
    ("given", "message", "hint"),
    [
        ({"naive_conf": {}, "adam_conf": {}}, "takes one of .*; got naive_conf, adam_conf", None),
        ({"clip_conf": {}, "naive_conf": {}}, "clip_conf needs one of clip_by_global_norm", None),
        ({"warmup_conf": {}}, "needs one of naive_conf, momentum_conf", None),
        ({"momentun_conf": {}}, "no key 'momentun_conf'", "mean momentum_conf?"),
        ({3: {}}, "no key 3", None),
        ({"momentum_conf": {"beta": "0.9"}}, r"momentum_conf\.beta takes .* got '0.9'", None),
        ({"momentum_conf": {"betta": 0.9}}, r"momentum_conf has no key 'betta'", "mean beta?"),
        ({"momentum_conf": [0.9]}, "momentum_conf takes a dict", "pass a dict"),
        ({"naive_conf": {"beta": 1}}, "takes an empty dict", None),
        ({"lamb_conf": {"beta1": 0.9, "beta2": 0.9}}, "lamb_conf needs the key 'epsilon'", None),
        (
            {"naive_conf": {}, "learning_rate_decay": {"cosine_conf": {"alpha": 1}}},
            "cosine_conf needs the key 'decay_batches', which takes an int from 1",
            None,
        ),
        (
            {
                "naive_conf": {},
                "learning_rate_decay": {"piecewise_constant_conf": {"boundaries": [1, 2.5]}},
            },
            rf"{DECAY}\.piecewise_constant_conf\.boundaries\[1\] takes an int",
            None,
        ),
        (
            {
                "naive_conf": {},
                "weight_decay_conf": {"weight_decay_rate": 1, "includes": {}, "excludes": {}},
            },
            "takes one of includes, excludes; got includes, excludes",
            None,
        ),
    ],
)
def test_model_update_conf_refuses_by_path(
    config: FunctionConfig, given: dict[object, object], message: str, hint: str | None
) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        config.train.model_update_conf(given)
    assert (hint or "`flow2onnx flags") in str(caught.value.hint)
    assert config.values() == {}


def test_a_dict_has_to_be_a_dict_and_nothing_like_it(config: FunctionConfig) -> None:
    class Likeness(dict):  # type: ignore[type-arg]  # any
        pass

    with pytest.raises(ConfigError, match="takes a dict"):
        config.train.model_update_conf(Likeness(naive_conf={}))


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ({"constant_conf": {}}, {"constant_conf": {"value": 0.0}}),
        ({"truncated_normal_conf": {}}, {"truncated_normal_conf": {"mean": 0.0, "std": 0.05}}),
        ({"empty_conf": {}}, {"empty_conf": {}}),
        (
            {"xavier_conf": {"variance_norm": 2, "data_format": "NHWC"}},
            {"xavier_conf": {"variance_norm": "kAverage", "data_format": "NHWC"}},
        ),
        (
            {
                "variance_scaling_conf": {
                    "scale": 2,
                    "variance_norm": "kFanOut",
                    "distribution": 1,
                    "data_format": "",
                }
            },
            {
                "variance_scaling_conf": {
                    "scale": 2,
                    "variance_norm": "kFanOut",
                    "distribution": "kRandomNormal",
                    "data_format": "",
                }
            },
        ),
    ],
)
def test_initializers_come_back_with_defaults_and_names(
    config: FunctionConfig, given: dict[str, object], kept: dict[str, object]
) -> None:
    config.default_initializer_conf(given)
    assert config.value("default_initializer_conf") == kept


@pytest.mark.parametrize("norm", [3, -1, True, "fan_in", None])
def test_an_enum_takes_its_names_and_numbers_only(config: FunctionConfig, norm: object) -> None:
    with pytest.raises(ConfigError, match=r"xavier_conf\.variance_norm takes 'kFanIn'"):
        config.default_initializer_conf({"xavier_conf": {"variance_norm": norm, "data_format": ""}})


def test_indexed_slices_come_back_with_their_default(config: FunctionConfig) -> None:
    config.indexed_slices_optimizer_conf({"include_op_names": {"op_name": ["a", "b"]}})
    kept = {"enable": True, "include_op_names": {"op_name": ("a", "b")}}
    assert config.value("indexed_slices_optimizer_conf") == kept


# --- groups -------------------------------------------------------------------------------------
def test_tensorrt_members_switch_tensorrt_on(config: FunctionConfig) -> None:
    assert config.providers() == ()
    config.tensorrt.use_fp16(False)
    assert config.value("use_tensorrt") is True
    assert config.providers() == ("tensorrt",)
    assert config.provider_options("tensorrt") == {}


def test_tensorrt_calibration_needs_int8(config: FunctionConfig) -> None:
    with pytest.raises(ConfigError, match=r"int8_calibration needs tensorrt\.use_int8") as caught:
        config.tensorrt.int8_calibration("table")
    assert caught.value.hint == "call tensorrt.use_int8() first"
    config.tensorrt.use_int8()
    config.tensorrt.int8_calibration("table")
    assert config.provider_options("tensorrt") == {
        "trt_int8_enable": "True",
        "trt_int8_calibration_table_name": "table",
    }


def test_memory_planners_are_added_and_removed(config: FunctionConfig) -> None:
    planners = config.static_mem_alloc_policy_white_list
    first, second, third = config.static_mem_alloc_algo_white_list.show()
    assert [planners.has(p) for p in (first, second, third)] == [True, True, False]
    assert planners.policy_mem_size_first() == first
    assert planners.policy_mutual_exclusion_first() == second
    assert planners.policy_time_line() == third
    assert planners.add(third) is None
    assert planners.remove(first) is None
    planners.add(third)
    assert config.value("static_mem_alloc_policy_white_list") == (second, third)
    assert config.session_options() == {}
    planners.remove(second)
    planners.remove(third)
    assert config.session_options() == {"memory_pattern": False}


@pytest.mark.parametrize("call", ["has", "add", "remove"])
def test_other_planners_are_refused(config: FunctionConfig, call: str) -> None:
    with pytest.raises(ConfigError, match=f"{call} takes 'use_mem_size_first_algo' or"):
        getattr(config.static_mem_alloc_policy_white_list, call)("fast")


def test_the_list_of_planners_cannot_be_set(config: FunctionConfig) -> None:
    with pytest.raises(ConfigError, match="static_mem_alloc_algo_white_list cannot be set"):
        config.static_mem_alloc_algo_white_list = ()


def test_the_stricter_of_two_memory_switches_holds(config: FunctionConfig) -> None:
    config.enable_reused_mem(False)
    config.use_memory_allocation_algorithm_v2(True)
    config.enable_inplace(True)
    options = {"memory_reuse": False, "memory_pattern": False}
    assert config.session_options() == options


# --- what reaches the runtime -------------------------------------------------------------------
def test_untouched_flags_leave_the_runtime_alone_but_for_the_search(config: FunctionConfig) -> None:
    assert config.session_options() == {}
    assert config.providers() == ()
    assert config.provider_options("cuda") == {"cudnn_conv_algo_search": "HEURISTIC"}


@pytest.mark.parametrize(("mbyte", "capped"), [(0, True), (32, True), (33, False), (1024, False)])
def test_a_small_workspace_is_the_small_one_of_the_runtime(
    config: FunctionConfig, mbyte: int, capped: bool
) -> None:
    config.cudnn_buf_limit_mbyte(mbyte)
    assert ("cudnn_conv_use_max_workspace" in config.provider_options("cuda")) is capped


def test_true_half_is_the_opposite_of_pseudo_half(config: FunctionConfig) -> None:
    config.cudnn_conv_enable_true_half()
    assert config.value("cudnn_conv_enable_pseudo_half") is False
    assert config.value("enable_true_half_config_when_conv") is True


# --- function_desc ------------------------------------------------------------------------------
def test_function_desc_reads_and_does_not_write(config: FunctionConfig) -> None:
    config.train.primary_lr(0.5)
    desc = config.function_desc
    assert desc.job_config_proto.train_conf.primary_lr == 0.5
    assert desc.job_config_proto.concurrency_width == 128
    assert desc.function_attribute.allow_cpu_return_op is True
    assert config.train.function_desc.train.primary_lr == 0.5
    assert config.static_mem_alloc_policy_white_list.function_desc.enable_inplace is True
    assert repr(desc) == "function_desc({'train.primary_lr': 0.5})"
    with pytest.raises(ConfigError, match=r"function_desc\.enable_inplace cannot be set"):
        desc.enable_inplace = False
    with pytest.raises(ConfigError, match="function_desc is not a setting"):
        desc(1)
    with pytest.raises(ConfigError, match="function_desc cannot be set"):
        config.function_desc = 1
    assert not hasattr(desc, "enable_inplce")


def test_a_configuration_shows_what_was_set(config: FunctionConfig) -> None:
    config.enable_inplace(False)
    assert repr(config) == "<configuration of a predict job: {'enable_inplace': False}>"
