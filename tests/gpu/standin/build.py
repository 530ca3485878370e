"""Build the stand-in for the CUDA libraries, for the onnxruntime-gpu of this environment.

    python -m tests.gpu.standin.build FOLDER --headers INCLUDE

INCLUDE is the folder of cuda_runtime_api.h, as the packages nvidia-cuda-runtime and nvidia-cuda-crt
have it; they may not be installed where tests run, as onnxruntime would load the real runtime from
there. A process with FOLDER in its LD_LIBRARY_PATH then has a GPU, as far as copies, launches and
captures go. FOLDER/tensorrt has libraries with which the TensorRT provider opens and reads its
options, and that build no engine: for `tests.gpu.record_kernels` and `test_tensorrt.py`.
"""

import argparse
import importlib.util
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.gpu.standin.libraries import cuda_sources, tensorrt_sources

HERE = Path(__file__).parent
RUNTIME = "libcudart.so.13"
DRIVER = "libcuda.so.1"
COMPILER = "libnvrtc.so.13"


def build(folder: Path, headers: Path) -> None:
    """Compile every library into `folder`."""
    runtime = folder / RUNTIME
    (folder / "tensorrt").mkdir(parents=True, exist_ok=True)
    _compile(
        runtime, HERE / "cuda_runtime.cc", "-std=c++17", "-O2", f"-I{headers}",
        "-Wno-deprecated-declarations",
    )  # fmt: skip
    _compile_all(folder, cuda_sources(_provider_library("cuda")), runtime)
    build_driver(folder, runtime)
    _compile_all(folder / "tensorrt", tensorrt_sources(_provider_library("tensorrt")))


def build_driver(folder: Path, *libraries: Path) -> None:
    """Compile the driver and NVRTC into `folder`, which run kernel texts on the host.

    They need no other library; beside the stand-in for the CUDA runtime they tell it of launches.
    """
    others = ["-Wl,--no-as-needed", *map(str, libraries)] if libraries else []  # for a weak symbol
    _compile(folder / DRIVER, HERE / "driver.cc", "-std=c++17", "-O1", "-ldl", *others)
    _compile(folder / COMPILER, HERE / "compiler.cc", "-std=c++17", "-O1", "-ldl")
    shutil.copy(HERE / "host_kernel.h", folder)


def _provider_library(tag: str) -> Path:
    spec = importlib.util.find_spec("onnxruntime")
    folder = Path(spec.origin).parent if spec and spec.origin else Path()
    library = folder / "capi" / f"libonnxruntime_providers_{tag}.so"
    if not library.exists():
        raise SystemExit(f"{library} is not there: install onnxruntime-gpu in this environment")
    return library


def _compile_all(folder: Path, sources: Mapping[str, str], *libraries: Path) -> None:
    for name, text in sources.items():
        source = folder / f"{name}.c"
        source.write_text(text)
        # Functions of known names with other types are what is meant: no warnings.
        others = [str(library) for library in libraries]
        _compile(folder / name, source, "-w", "-fno-builtin", *others)
        source.unlink()


def _compile(library: Path, source: Path, *arguments: str) -> None:
    driver = "g++" if source.suffix == ".cc" else "gcc"
    subprocess.run(
        [driver, "-shared", "-fPIC", f"-Wl,-soname,{library.name}", "-o", str(library),
         str(source), *arguments],
        check=True,
    )  # fmt: skip


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--headers", type=Path, required=True)
    arguments = parser.parse_args()
    build(arguments.folder, arguments.headers)


if __name__ == "__main__":
    main()
