"""Plug-in providers, by the device that the stock runtime lists and by libraries that fail."""

import sys
from types import SimpleNamespace

import onnxruntime as ort
import pytest

from flow2onnx_runtime import (
    Options,
    OptionsError,
    Predictor,
    ProviderError,
    kernels,
    open_session,
    plugins,
    provider_checks,
    require_providers,
    usable_providers,
    why_unusable,
)
from flow2onnx_runtime.providers import CPU, PROVIDERS

NEG = "g (float[2] x) => (float[2] y) { y = Neg(x) }"
WEBGPU = PROVIDERS["webgpu"]
lists_devices = pytest.mark.skipif(
    not hasattr(ort, "get_ep_devices"), reason="this onnxruntime lists no devices"
)
takes_plugins = pytest.mark.skipif(
    not hasattr(ort, "register_execution_provider_library"), reason="this onnxruntime takes none"
)


@pytest.fixture
def by_device_only(monkeypatch):
    """The CPU as if it were a plug-in: named by the list of devices alone."""
    monkeypatch.setattr(ort, "get_available_providers", list)


@pytest.fixture
def package(monkeypatch, tmp_path):
    """A package of the WebGPU plug-in, whose library is no library."""
    (tmp_path / f"{WEBGPU.plugin}.py").write_text("def get_library_path(): return 'none.so'\n")
    monkeypatch.syspath_prepend(tmp_path)
    plugins.plugin_fault.cache_clear()
    yield
    plugins.plugin_fault.cache_clear()
    sys.modules.pop(WEBGPU.plugin, None)


@lists_devices
def test_a_provider_is_found_by_its_device(by_device_only, onnx_model):
    assert plugins.listed_providers() == (CPU.name,)
    assert usable_providers() == (CPU.name,)
    assert open_session(onnx_model(NEG), Options()).get_providers() == [CPU.name]
    assert Predictor(onnx_model(NEG), providers=("cpu",)).providers == (CPU.name,)


@lists_devices
def test_a_device_is_chosen_by_its_number(by_device_only):
    plugins.add_device(ort.SessionOptions(), CPU.name, {"device_id": "0"})
    with pytest.raises(OptionsError, match=r"device_id is 3, and CPUExec.* lists 1 device"):
        plugins.add_device(ort.SessionOptions(), CPU.name, {"device_id": "3"})


@lists_devices
def test_a_plugin_is_taken_by_its_device_where_its_name_is_listed_too(monkeypatch):
    """Asked for such a name, onnxruntime 1.31.1 opens a session on the CPU, and says nothing."""
    device = SimpleNamespace(ep_name="NewExecutionProvider")
    monkeypatch.setattr(ort, "get_ep_devices", lambda: [device])
    monkeypatch.setattr(ort, "get_available_providers", lambda: [device.ep_name, CPU.name])
    assert plugins.is_by_device(device.ep_name)
    assert not plugins.is_by_device(CPU.name)
    added = []
    settings = SimpleNamespace(add_provider_for_devices=lambda *given: added.append(given))
    provider_checks._add_providers(settings, [(device.ep_name, {}), (CPU.name, {})])
    assert added == [([device], {})]


@lists_devices
def test_the_kernels_of_a_plugin_are_not_known(monkeypatch):
    device = SimpleNamespace(ep_name="PluggedExecutionProvider")
    monkeypatch.setattr(ort, "get_ep_devices", lambda: [device])
    table = kernels(device.ep_name)
    assert not table.is_known
    assert table.supports("Neg", 21)
    assert kernels("NoneExecutionProvider").is_known  # and there are none


def test_a_runtime_that_lists_no_devices_is_asked_by_name(monkeypatch):
    monkeypatch.delattr(ort, "get_ep_devices", raising=False)
    assert plugins.listed_providers() == tuple(ort.get_available_providers())


@takes_plugins
@pytest.mark.parametrize("act", [lambda o: open_session(b"", o), require_providers])
def test_a_library_that_cannot_be_registered(act, tmp_path):
    (tmp_path / "none.so").touch(mode=0o644)
    options = Options(provider_libraries=(str(tmp_path / "none.so"),))
    with pytest.raises(ProviderError, match=r"none.so cannot be registered as .*\n.*a plug-in"):
        act(options)


def test_a_library_is_registered_once(monkeypatch, onnx_model, tmp_path):
    told, paths = [], tuple(str(tmp_path / name) for name in ("a.so", "b.so", "c.so"))
    for path in paths:
        open(path, "wb").close()
    monkeypatch.setattr(plugins, "_registered", set())
    monkeypatch.setattr(
        ort, "register_execution_provider_library", lambda *a: told.append(a), raising=False
    )
    for _ in range(2):
        open_session(onnx_model(NEG), Options(provider_libraries=paths[:2]))
    assert told == [(path, path) for path in paths[:2]]
    monkeypatch.delattr(ort, "register_execution_provider_library")
    with pytest.raises(ProviderError, match="takes no plug-in providers"):
        plugins.register_libraries(paths[2:])


@pytest.mark.skipif(
    plugins.plugin_fault(WEBGPU.name) != WEBGPU.remedy, reason="the WebGPU plug-in is here"
)
def test_a_plugin_that_is_not_installed_says_which_package_has_it():
    assert not plugins.is_listed(WEBGPU.name)
    with pytest.raises(ProviderError, match=r"WebGpu.*\n.*install onnxruntime-ep-webgpu beside"):
        open_session(b"", Options(providers=(WEBGPU.name,)))


@takes_plugins
def test_a_plugin_that_cannot_be_loaded_says_why(package):
    said = why_unusable(WEBGPU.name)
    assert said.startswith("onnxruntime-ep-webgpu is installed and does not work: none.so cannot")


def test_a_plugin_without_a_device_says_what_it_needs(package, monkeypatch):
    monkeypatch.setattr(plugins, "register_libraries", lambda paths: None)
    assert not plugins.is_listed(WEBGPU.name)
    assert "lists no device here: it needs a GPU" in why_unusable(WEBGPU.name)
