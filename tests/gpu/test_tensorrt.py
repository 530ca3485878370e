"""The TensorRT provider over libraries that build no engine: its options, caches and profiles."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from flow2onnx_runtime.errors import OptionsError
from flow2onnx_runtime.option_checks import check
from flow2onnx_runtime.providers import PROVIDERS

import flow2onnx as flow
from flow2onnx.config import Settings
from flow2onnx.engine.options import job_options
from tests.gpu import standin

TENSORRT, CUDA = PROVIDERS["tensorrt"], PROVIDERS["cuda"]
PROBE = dict(TENSORRT.probe_options)
ROOT = Path(__file__).parents[2]

VALUES = (
    *("0", "1", "5", "6", "-1", "-2", "1.5", "1 ", " 1", "text", ""),
    *("2147483647", "2147483648", "18446744073709551615", "18446744073709551616"),
    *("True", "true", "False", "false", "TRUE", "HEURISTIC", "kSameAsRequested"),
    *("x:1x2", "x:1x2,y:3", "x", "x:", "x:1x", "x:1,", ":1"),
)
# What the parsers say of a value; other errors are of what is then lacking: a device, a file.
REFUSALS = ("[ERROR] [TensorRT] The value", "ValueError: sto", "IndexError: sto",
            "Invalid TensorRT EP option", "Failed to parse provider option")  # fmt: skip
LACKS = "Invalid device ID"
# Addresses, which the runtime calls or waits for.
ADDRESSES = ("gpu_external_alloc", "gpu_external_free", "gpu_external_empty_cache",
             "user_compute_stream", "has_user_compute_stream")  # fmt: skip


def ask(questions, *, folder=None, path=()):
    """The runtime's answers, with TensorRT's libraries found by the loader or in a package."""
    found = [str(standin.folder()), *([] if folder is None else [str(folder)])]
    environment = os.environ | {
        "LD_LIBRARY_PATH": os.pathsep.join(found),
        "PYTHONPATH": os.pathsep.join(
            [str(ROOT), str(ROOT / "runtime" / "python"), *map(str, path)]
        ),
    }
    done = subprocess.run(
        [sys.executable, "-m", "tests.gpu.try_options"], input=json.dumps(questions),
        capture_output=True, text=True, env=environment, cwd=ROOT, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def libraries():
    return standin.folder() / "tensorrt"


def question(row, option, value):
    """A trial session with one option, in which no node is the provider's."""
    if option in row.probe_options:
        return [[row.name, {option: f"{row.probe_options[option]},{value}"}]]
    return [[row.name, {**row.probe_options, option: value}]]


def takes(row, option, value):
    try:
        check(row.name, option, value, row.options)
    except OptionsError:
        return False
    return True


def is_parsed(said):
    return isinstance(said, dict) or LACKS in said or not any(words in said for words in REFUSALS)


@pytest.mark.parametrize("row", [TENSORRT, CUDA], ids=lambda row: row.tag)
def test_what_the_table_takes_the_runtime_parses(row, libraries):
    options = set(row.options) - set(ADDRESSES)
    asked = [(o, v) for o in sorted(options) for v in VALUES if takes(row, o, v)]
    answers = ask([question(row, *pair) for pair in asked], folder=libraries)
    assert {option for option, _ in asked} == options
    assert not [pair for pair, said in zip(asked, answers, strict=True) if not is_parsed(said)]


@pytest.mark.parametrize(
    ("row", "lenient"),
    [
        # numbers cut short, or below and above all that is meant
        (TENSORRT, {"-1", "-2", "1.5", "1 ", " 1", "5", "6", "2147483647", "18446744073709551616"}),
        (CUDA, {"-1", "-2", "True", "true", "False", "false"}),
    ],
    ids=("tensorrt", "cuda"),
)
def test_what_the_runtime_parses_the_table_takes(row, lenient, libraries):
    options = set(row.options) - set(ADDRESSES)
    asked = [(o, v) for o in sorted(options) for v in VALUES if not takes(row, o, v)]
    asked = [pair for pair in asked if "_profile_" not in pair[0]]  # it warns and ignores them
    answers = ask([question(row, *pair) for pair in asked], folder=libraries)
    parsed = {value for (_, value), said in zip(asked, answers, strict=True) if is_parsed(said)}
    assert parsed <= lenient


def test_options_that_the_provider_has_in_c_and_not_from_python(libraries):
    names = ("has_user_compute_stream", "trt_load_user_initializer", "trt_onnx_bytestream")
    answers = ask([[[TENSORRT.name, {**PROBE, name: "1"}]] for name in names], folder=libraries)
    assert all("Invalid TensorRT EP option" in said for said in answers)
    assert not set(names) & set(TENSORRT.options)


@pytest.mark.parametrize(
    ("configure", "wanted"),
    [
        (lambda c: c.use_tensorrt(), {"trt_fp16_enable": "0", "trt_int8_enable": "0"}),
        (lambda c: c.tensorrt.use_fp16(), {"trt_fp16_enable": "1"}),
        (lambda c: (c.tensorrt.use_int8(), c.tensorrt.int8_calibration("table")),
         {"trt_int8_enable": "1", "trt_int8_calibration_table_name": "table"}),
        (lambda c: (c.use_tensorrt(), c.enable_auto_mixed_precision(),
                    c.runtime.mixed_precision_dtype("bfloat16")), {"trt_bf16_enable": "1"}),
    ],
    ids=("plain", "fp16", "int8", "bf16"),
)  # fmt: skip
def test_the_options_of_a_predict_job_are_taken(configure, wanted, libraries, tmp_path):
    config = flow.function_config()
    configure(config)
    config.runtime.tensorrt_cache_path(str(tmp_path))
    options = job_options(config, Settings(), CUDA.name)
    (name, given), *_ = options.providers
    (said,) = ask([[[name, {**PROBE, **given}]]], folder=libraries)
    assert isinstance(said, dict), said
    caches = {"trt_engine_cache_enable": "1", "trt_engine_cache_path": str(tmp_path),
              "trt_timing_cache_enable": "1", "trt_timing_cache_path": str(tmp_path)}  # fmt: skip
    assert {**caches, **wanted}.items() <= said[name].items()


def test_its_libraries_are_found_in_the_package_of_pip(libraries, tmp_path):
    question = [[[TENSORRT.name, PROBE]]]
    (said,) = ask(question)
    assert "libnvinfer.so.10" in said or "TensorRT" in said
    package = tmp_path / "tensorrt_libs"
    shutil.copytree(libraries, package)
    (package / "__init__.py").touch()
    (said,) = ask(question, path=[tmp_path])
    assert TENSORRT.name in said


def test_one_engine_is_planned_for_a_range_of_batches_and_kept(libraries, tmp_path):
    model = (
        '<ir_version: 10, opset_import: ["": 21]> g (float[N,3] x, float[2] w) => '
        "(float[N,3] y, float[2] z) { y = Identity(x) z = Identity(w) }"
    )
    code = (
        "from flow2onnx_runtime import Options, open_session\n"
        "import onnx.parser\n"
        f"model = onnx.parser.parse_model({model!r}).SerializeToString()\n"
        f"provider = ({TENSORRT.name!r}, {PROBE!r})\n"
        "options = Options(providers=(provider,), batch_profile=(1, 8, 32))\n"
        "found = open_session(model, options).get_provider_options()[provider[0]]\n"
        "print([found[f'trt_profile_{size}_shapes'] for size in ('min', 'opt', 'max')],"
        " found['trt_engine_cache_path'])\n"
    )
    folders = f"{standin.folder()}{os.pathsep}{libraries}"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False,
        env=os.environ | {"LD_LIBRARY_PATH": folders, "XDG_CACHE_HOME": str(tmp_path)},
    )  # fmt: skip
    wanted = f"['x:1x3', 'x:8x3', 'x:32x3'] {tmp_path}/flow2onnx/tensorrt"
    assert done.stdout.strip() == wanted, done.stderr[-2000:]


JOB = """
import numpy as np
import flow2onnx as flow, flow2onnx.typing as tp

config = flow.function_config()
config.tensorrt.use_fp16()
left = ",".join({"Gemm", "MatMul", "Relu", "Identity", "Transpose", "Cast", "Reshape"})
config.runtime.provider_option("tensorrt", "trt_op_types_to_exclude", left)


@flow.global_function(type="predict", function_config=config)
def job(x: tp.Numpy.Placeholder((2, 3))) -> tp.Numpy:
    w = flow.get_variable("w", (3, 4), initializer=flow.ones_initializer())
    return flow.math.relu(flow.matmul(x, w))


for _ in range(3):
    print(job(np.ones((2, 3), np.float32)).shape)
print(job.session.opening("job").options.provider_names)
"""


def test_a_predict_job_opens_where_nothing_was_kept_before(libraries, tmp_path):
    (tmp_path / "job.py").write_text(JOB)
    folders = f"{standin.folder()}{os.pathsep}{libraries}"
    done = subprocess.run(
        [sys.executable, str(tmp_path / "job.py")], capture_output=True, text=True, check=False,
        env=os.environ | {"LD_LIBRARY_PATH": folders, "XDG_CACHE_HOME": str(tmp_path / "cache")},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    names = (TENSORRT.name, CUDA.name, "CPUExecutionProvider")
    assert done.stdout.splitlines() == ["(2, 4)"] * 3 + [str(names)]
    assert (tmp_path / "cache" / "flow2onnx" / "tensorrt").is_dir()
