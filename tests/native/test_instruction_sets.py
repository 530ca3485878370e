"""`FLOW2ONNX_NATIVE_ISA`: the loops of every instruction set that this processor has."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from flow2onnx_native.library import NativeLibrary

NAMES = ("baseline", "avx2", "avx512")
ROOT = Path(__file__).parents[2]
# Each operator beside the standard ones or numpy, in shapes that fill registers and do not.
QUICK = [f"tests/native/test_{name}.py" for name in
         ("accelerate", "asking_ahead", "attention", "channels", "convolution_axes",
          "convolution_methods", "convolutions", "fused", "losses", "packed", "pools",
          "product_loops", "products", "random_convolutions", "random_products", "random_rows",
          "recurrence", "rows", "sums", "winograd")]  # fmt: skip
OPEN = "from flow2onnx_native.library import open_library; print(open_library().instruction_set)"
REGISTER = """
import onnxruntime, sys
onnxruntime.SessionOptions().register_custom_ops_library(sys.argv[1])
"""
ONEDNN_TELLS = """
import ctypes, onnxruntime, sys
from flow2onnx_native.library import onednn_path, open_library
open_library()
print(hex(ctypes.CDLL(onednn_path()).dnnl_get_effective_cpu_isa()))
"""
ONEDNN_CAPS = {"baseline": 0x1, "avx2": 0x7, "avx512": 0x27}


def python(
    text: str, *arguments: str, isa: str, **variables: str
) -> "subprocess.CompletedProcess[str]":
    """The end of a process in which loops are capped to an instruction set."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path),
                   "FLOW2ONNX_NATIVE_ISA": isa, **variables}  # fmt: skip
    return subprocess.run(
        [sys.executable, "-c", text, *arguments], env=environment, capture_output=True, text=True,
        check=False,
    )  # fmt: skip


def sets_of_processor(library: NativeLibrary) -> tuple[str, ...]:
    """The names of the sets up to the one that the library uses by itself."""
    widest = python(OPEN, isa="").stdout.strip()
    assert library.instruction_set in NAMES
    return NAMES[: NAMES.index(widest) + 1]


def test_a_cap_is_kept_to(library: NativeLibrary) -> None:
    for name in sets_of_processor(library):
        assert python(OPEN, isa=name).stdout == f"{name}\n"


def test_onednn_keeps_to_it_too(convolving: NativeLibrary) -> None:
    for name in sets_of_processor(convolving):
        assert int(python(ONEDNN_TELLS, isa=name).stdout, 16) == ONEDNN_CAPS[name]


def test_an_unknown_set_is_refused_in_words(library: NativeLibrary) -> None:
    done = python(OPEN, isa="AVX3")
    assert (
        "UnsupportedError: FLOW2ONNX_NATIVE_ISA is 'AVX3', and takes baseline, avx2 or avx512"
        in done.stderr
    )
    assert "unset it" in done.stderr


def test_a_set_that_the_processor_lacks_is_refused_in_words(library: NativeLibrary) -> None:
    lacking = NAMES[len(sets_of_processor(library)) :]
    if not lacking:
        pytest.skip("this processor has every instruction set")
    done = python(OPEN, isa=lacking[0])
    assert f"FLOW2ONNX_NATIVE_ISA is {lacking[0]}, which this processor lacks" in done.stderr


def test_whoever_registers_the_library_alone_gets_the_error_too(library: NativeLibrary) -> None:
    done = python(REGISTER, library.path, isa="AVX3")
    assert "FLOW2ONNX_NATIVE_ISA is 'AVX3'" in done.stderr
    assert python(REGISTER, library.path, isa="baseline").stderr == ""


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_every_operator_equals_the_reference(name: str, library: NativeLibrary) -> None:
    sets = sets_of_processor(library)
    if name not in sets:
        pytest.skip(f"this processor lacks {name}")
    if name == sets[-1] == library.instruction_set:
        pytest.skip(f"{name} is what the other tests run with")
    environment = {**os.environ, "FLOW2ONNX_NATIVE_ISA": name, "FLOW2ONNX_NATIVE": library.path}
    command = [sys.executable, "-m", "pytest", "-p", "no:xdist", "-m", "not slow", *QUICK]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:]
