"""The CUDA operators on the CPU: the same library and the same kernel texts, compiled for the host.

Two things are others than on a GPU: the operators belong to the CPU provider, and driver and NVRTC
are those of `tests.gpu.standin`, which run each thread of each block of a kernel.
"""

import ctypes
import subprocess
from pathlib import Path

from flow2onnx_native.abi import cpp_header
from flow2onnx_native.library import NativeLibrary

from tests.gpu.standin.build import COMPILER, DRIVER, build_driver

SOURCE = Path(__file__).parents[2] / "runtime" / "native"
LIBRARY = "libflow2onnx_native_cuda.so"
FLAGS = ("-std=c++17", "-O0", "-ffp-contract=off", "-fvisibility=hidden", "-Wall", "-Wextra",
         "-Werror", "-shared", "-fPIC")  # fmt: skip


def build(folder: Path, *definitions: str) -> Path:
    """Compile the library into `folder`; its path. `definitions`: flags of the compiler."""
    (folder / "abi.h").write_text(cpp_header())
    made = folder / LIBRARY
    units = [str(SOURCE / unit) for unit in cuda_sources()]
    subprocess.run(
        ["g++", *FLAGS, *definitions, f"-I{folder}", *units, "-ldl", "-o", str(made)], check=True
    )
    return made


def cuda_sources() -> list[str]:
    """The units that `setup.py` builds the library of, from the package's folder."""
    names = ("ort", "fused_plan", "channels_plan", "row_operators")
    shared = [f"src/{name}.cc" for name in names]
    own = (SOURCE / "src" / "cuda").glob("*.cc")
    return shared + sorted(str(p.relative_to(SOURCE)) for p in own)


def open_on_host(folder: Path) -> NativeLibrary:
    """The library of a folder that `build_on_host` has filled."""
    for name in (DRIVER, COMPILER):  # by its name the library finds what is open already
        ctypes.CDLL(str(folder / name))
    library = ctypes.CDLL(str(folder / LIBRARY))
    ask = library.flow2onnx_native_open_cuda
    ask.argtypes, ask.restype = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_int], ctypes.c_char_p
    answer = ask(DRIVER.encode(), COMPILER.encode(), 0)
    assert answer is None, answer.decode()
    library.flow2onnx_native_operators.restype = ctypes.c_char_p
    names = library.flow2onnx_native_operators().decode().split()
    return NativeLibrary(str(folder / LIBRARY), tuple(names))


def build_on_host(folder: Path) -> None:
    """Compile the library for the CPU provider, the driver and NVRTC, unless they are there."""
    if not (folder / "built").is_file():
        build_driver(folder)
        build(folder, "-DFLOW2ONNX_ON_HOST")
        (folder / "built").touch()
