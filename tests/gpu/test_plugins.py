"""Providers by the devices that they list, where the runtime is shown a GPU among the hardware.

It looks for GPUs in /sys/class/drm, in place of which a namespace of its own has one card.
"""

import json
import os
import shutil
import subprocess
import sys
from ctypes.util import find_library
from importlib.util import find_spec
from pathlib import Path

import pytest
from flow2onnx_runtime.providers import PROVIDERS

from tests.gpu.test_tensorrt import takes

WEBGPU = PROVIDERS["webgpu"]
ROOT = Path(__file__).parents[2]
# A driver for Vulkan that computes on processors, as Chromium has it.
SOFTWARE = Path(os.environ.get("VK_DRIVER_FILES", "/usr/lib/chromium/vk_swiftshader_icd.json"))
NVIDIA = {"vendor": "0x10de", "device": "0x2335", "class": "0x030200"}

CODE = """
import json, sys
import numpy as np, onnxruntime as ort
from onnx import TensorProto, helper
ort.set_default_logger_severity(4)
from flow2onnx_runtime import Options, Program, State, usable_providers

name, library = sys.argv[1:]
if library:
    ort.get_available_providers = lambda: ["CPUExecutionProvider"]  # as if it were not compiled in
value = lambda name: helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3])
nodes = [helper.make_node(*node) for node in (
    ("Mul", ["x", "v"], ["y"]), ("Add", ["x", "v"], ["next/v"]))]
graph = helper.make_graph(nodes, "step", [value("x"), value("v")], [value("y"), value("next/v")])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
libraries = (library,) if library else ()
options = Options(providers=(name, "CPUExecutionProvider"), provider_libraries=libraries)
state = State(*options.device)
state.add("v", np.full((2, 3), 2, np.float32))
program = Program(model.SerializeToString(), state, options)
x = np.arange(6, dtype=np.float32).reshape(2, 3)
results = [program.run([x + i])[0].tolist() for i in range(3)]
print(json.dumps({"providers": program.session.get_providers(), "usable": usable_providers(),
                  "results": results, "state": state.read("v").tolist()}))
"""


@pytest.fixture
def with_gpu(tmp_path):
    """A function that runs Python where the hardware has a GPU; skips where nobody may mount."""
    card = tmp_path / "class" / "drm" / "card0" / "device"
    card.mkdir(parents=True)
    for name, content in NVIDIA.items():
        (card / name).write_text(content + "\n")
    mounted = ["unshare", "--mount", "sh", "-c",
               f'mount --bind {tmp_path}/class /sys/class && exec "$@"', "sh"]  # fmt: skip
    if (
        shutil.which("unshare") is None
        or subprocess.run([*mounted, "true"], check=False).returncode
    ):
        pytest.skip("no namespace of its own may be mounted here")

    def run(*arguments, given="", **environment):
        done = subprocess.run(
            [*mounted, sys.executable, *arguments], capture_output=True, text=True, input=given,
            env=os.environ | environment, cwd=ROOT, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-2000:]
        return json.loads(done.stdout.splitlines()[-1])

    return run


def test_cuda_is_found_as_a_plugin_by_its_device(with_gpu):
    spec = find_spec("onnxruntime")
    library = Path(spec.origin).parent / "capi" / "libonnxruntime_providers_cuda.so"
    found = with_gpu("-c", CODE, "CUDAExecutionProvider", str(library))
    assert found["providers"] == ["CUDAExecutionProvider", "CPUExecutionProvider"]
    assert "CUDAExecutionProvider" in found["usable"]


@pytest.fixture
def with_webgpu(with_gpu, tmp_path):
    """The same where WebGPU has a driver, too; skips without one, or without the plug-in."""
    if find_spec(WEBGPU.plugin) is None:
        pytest.skip(f"{WEBGPU.package} is not installed")
    if not SOFTWARE.is_file():
        pytest.skip(f"there is no driver for Vulkan at {SOFTWARE}")
    names = ("VK_DRIVER_FILES", "VK_ICD_FILENAMES")
    driver = dict.fromkeys(names, str(SOFTWARE)) | {"XDG_RUNTIME_DIR": str(tmp_path)}
    if find_library("vulkan") is None:
        loader = SOFTWARE.parent / "libvulkan.so.1"  # Chromium has one of its own
        if not loader.is_file():
            pytest.skip("there is no libvulkan.so.1, which finds drivers for Vulkan")
        (tmp_path / loader.name).symlink_to(loader)
        places = (os.environ.get("LD_LIBRARY_PATH"), str(tmp_path))
        driver["LD_LIBRARY_PATH"] = ":".join(filter(None, places))
    return lambda *arguments, given="": with_gpu(*arguments, given=given, **driver)


def test_what_the_table_takes_webgpu_parses(with_webgpu):
    values = ("0", "1", "134217728", "4294967295", "4294967296", "True", "text", "", "NHWC",
              "Vulkan", "low-power", "simple", "full")  # fmt: skip
    asked = [(o, v) for o in sorted(WEBGPU.options) for v in values if takes(WEBGPU, o, v)]
    assert {option for option, _ in asked} == set(WEBGPU.options)
    questions = [[[WEBGPU.name, {option: value}]] for option, value in asked]
    answers = with_webgpu("-m", "tests.gpu.try_options", given=json.dumps(questions))
    # a driver may have less than what a number asks for
    lacks = "While validating required limits"
    assert not {
        pair: said
        for pair, said in zip(asked, answers, strict=True)
        if isinstance(said, str) and lacks not in said
    }


def test_webgpu_computes_and_keeps_state(with_webgpu):
    found = with_webgpu("-c", CODE, WEBGPU.name, "")
    assert found["providers"][0] == "WebGpuExecutionProvider"
    # v is 2, then 2 + x, then 2 + x + (x + 1); y is (x + i) v
    x = [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]
    assert found["results"][0] == [[2 * n for n in row] for row in x]
    assert found["results"][1] == [[(n + 1) * (2 + n) for n in row] for row in x]
    assert found["results"][2] == [[(n + 2) * (3 + 2 * n) for n in row] for row in x]
    assert found["state"] == [[2 + 3 * n + 3 for n in row] for row in x]
