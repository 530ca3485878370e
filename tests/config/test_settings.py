"""`flow.config` and `flow.env` beyond what their rows say."""

import inspect
import logging

import pytest

from flow2onnx.config import CONFIG, ENV, Settings, SettingsFacade, UnknownSettingError
from flow2onnx.errors import ConfigError, UnsupportedError


@pytest.fixture
def settings() -> Settings:
    return Settings()


@pytest.fixture
def config(settings: Settings) -> SettingsFacade:
    return SettingsFacade(CONFIG, lambda: settings)


@pytest.fixture
def env(settings: Settings) -> SettingsFacade:
    return SettingsFacade(ENV, lambda: settings)


def test_a_facade_follows_the_current_settings() -> None:
    sessions = [Settings(), Settings()]
    config = SettingsFacade(CONFIG, lambda: sessions[-1])
    setter = config.random_seed
    config.random_seed(1)
    first = sessions.pop()
    setter(2)
    assert first.value("random_seed") == 1
    assert sessions[0].value("random_seed") == 2


def test_facades_show_their_own_rows(config: SettingsFacade, env: SettingsFacade) -> None:
    assert {"gpu_device_num", "collective_boxing", "stop_on_non_finite"} <= set(dir(config))
    assert {"machine", "init", "ctrl_port"} <= set(dir(env))
    assert "machine" not in dir(config)
    assert "nccl_num_streams" in dir(config.collective_boxing)


def test_setters_describe_themselves(config: SettingsFacade, env: SettingsFacade) -> None:
    assert str(inspect.signature(config.gpu_device_num)) == "(val)"
    assert str(inspect.signature(config.use_rdma)) == "(val=True)"
    assert "GPUs to use" in config.gpu_device_num.__doc__
    assert str(inspect.signature(env.init)) == "() -> bool | None"
    assert "Name the machine" in env.machine.__doc__


@pytest.mark.parametrize(
    ("name", "near"),
    [("gpu_devise_num", "gpu_device_num"), ("colective_boxing", "collective_boxing")],
)
def test_a_misspelt_name_is_answered(config: SettingsFacade, name: str, near: str) -> None:
    with pytest.raises(UnknownSettingError, match=r"flow\.config has no setting") as caught:
        getattr(config, name)
    assert caught.value.hint is not None
    assert caught.value.hint.startswith(f"did you mean {near}")


def test_a_group_names_itself_in_errors(config: SettingsFacade) -> None:
    with pytest.raises(UnknownSettingError, match=r"flow\.config\.collective_boxing has no"):
        _ = config.collective_boxing.nccl_streams


def test_calls_cannot_be_assigned(env: SettingsFacade) -> None:
    with pytest.raises(ConfigError, match=r"flow\.env\.machine is called, not assigned"):
        env.machine = "10.0.0.1"


# --- too late -----------------------------------------------------------------------------------
def test_nothing_is_set_once_the_session_runs(
    settings: Settings,
    config: SettingsFacade,
    env: SettingsFacade,
    caplog: pytest.LogCaptureFixture,
) -> None:
    config.random_seed(1)
    assert not settings.started
    settings.start()
    assert settings.started
    assert config.random_seed(2) is False
    assert config.collective_boxing.enable_fusion(False) is False
    assert env.ctrl_port(1) is False
    assert env.machine("10.0.0.1") is False
    assert env.init() is False
    assert settings.values() == {"random_seed": 1}
    running, started = "the session is running", "environment has been initialized"
    texts = [r.getMessage().partition("Nothing happened because ")[2] for r in caplog.records]
    assert texts == [running, running, started, started, started]
    assert {r.levelno for r in caplog.records} == {logging.WARNING}
    assert all("test_settings.py:" in r.getMessage() for r in caplog.records)


def test_init_closes_the_environment_and_nothing_else(
    settings: Settings, config: SettingsFacade, env: SettingsFacade
) -> None:
    assert env.init() is None
    assert env.log_dir("x") is False
    assert config.random_seed(3) is None
    assert settings.value("random_seed") == 3
    assert not settings.started


# --- devices and machines -----------------------------------------------------------------------
@pytest.mark.parametrize("name", ["gpu_device_num", "cpu_device_num"])
def test_several_devices_are_recorded(
    settings: Settings, config: SettingsFacade, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    getattr(config, name)(1)
    assert not caplog.records
    getattr(config, name)(4)
    assert settings.value(name) == 4
    assert not caplog.records


@pytest.mark.parametrize(
    "given",
    [
        ("10.0.0.1",),
        ({"addr": "10.0.0.1"},),
        (["10.0.0.1"],),
        ([{"addr": "10.0.0.1", "ctrl_port_agent": 50051, "data_port_agent": 50052}],),
    ],
)
def test_one_machine_is_accepted(
    settings: Settings, env: SettingsFacade, given: tuple[object, ...]
) -> None:
    assert env.machine(*given) is None
    assert settings.value("machine")["addr"] == "10.0.0.1"


@pytest.mark.parametrize("given", [("a", "b"), (["a", "b"],), ([{"addr": "a"}, {"addr": "b"}],)])
def test_several_machines_name_what_is_missing(
    settings: Settings, env: SettingsFacade, given: tuple[object, ...]
) -> None:
    with pytest.raises(UnsupportedError, match="on another number of machines") as caught:
        env.machine(*given)
    assert "2 machines" in caught.value.message
    assert settings.values() == {}


@pytest.mark.parametrize(
    "given",
    [
        (),
        ([],),
        ("a", "a"),
        (1,),
        ({"address": "a"},),
        ({"addr": "a", "port": 1},),
        ({"addr": "a", "ctrl_port_agent": "1"},),
        ([["a"]],),
    ],
)
def test_other_machines_are_refused(env: SettingsFacade, given: tuple[object, ...]) -> None:
    with pytest.raises(ConfigError, match=r"flow\.env\.machine"):
        env.machine(*given)


def test_a_cluster_cannot_be_started(env: SettingsFacade) -> None:
    with pytest.raises(UnsupportedError, match="on another number of machines"):
        env.init_bootstrap_confs(["a", "b"], 1234)


# --- the rest -----------------------------------------------------------------------------------
def test_legacy_model_io_is_remembered(settings: Settings, config: SettingsFacade) -> None:
    assert config.legacy_model_io_enabled() is False
    config.enable_legacy_model_io()
    assert config.legacy_model_io_enabled() is True


def test_the_resource_holds_every_setting(config: SettingsFacade, env: SettingsFacade) -> None:
    config.gpu_device_num(1)
    resource = env.current_resource()
    assert resource["gpu_device_num"] == 1
    assert resource["collective_boxing.nccl_num_streams"] == 1
    assert resource.keys() == CONFIG.rows.keys() - {"legacy_model_io_enabled"}


def test_settings_reach_the_runtime(settings: Settings, config: SettingsFacade) -> None:
    assert settings.session_options() == {}
    assert settings.provider_options("cuda") == {}
    config.compute_thread_pool_size(2)
    config.enable_tensor_float_32_compute(False)
    assert settings.session_options() == {"intra_op_threads": 2}
    assert settings.provider_options("cuda") == {"use_tf32": "0"}


def test_seed_and_stop_switch_have_plain_defaults(
    settings: Settings, config: SettingsFacade
) -> None:
    assert (settings.value("random_seed"), settings.value("stop_on_non_finite")) == (0, False)
    config.stop_on_non_finite()
    assert settings.value("stop_on_non_finite") is True
