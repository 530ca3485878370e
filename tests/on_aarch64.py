"""The native operators on aarch64: cross-compiled as a wheel, and tested on an emulated processor.

``python -m tests.on_aarch64 [pytest's arguments]`` runs a selection of tests/native, or the tests
that are named. In build/aarch64 it makes a system of Debian's packages, which needs root as
debootstrap does, the Python packages of that platform, and the wheel of flow2onnx-native. Times of
an emulated processor say nothing, so none is taken.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

__all__ = ["main"]

ROOT = Path(__file__).parents[1]
NATIVE = ROOT / "runtime" / "native"
BUILD = ROOT / "build" / "aarch64"
SYSTEM, PACKAGES, PYTHON = BUILD / "system", BUILD / "packages", BUILD / "python"
PREFIX = "aarch64-linux-gnu"
TOOLS = {  # programs, and the packages of Debian that have them
    f"{PREFIX}-g++": f"g++-{PREFIX}", "qemu-aarch64-static": "qemu-user-static",
    "debootstrap": "debootstrap", "dpkg-deb": "dpkg",
}  # fmt: skip
RELEASE, RELEASE_PYTHON = "bookworm", "3.11"
PROCESSOR = "neoverse-n1"  # NEON without SVE, of which the library makes no use
REQUIREMENTS = ("onnxruntime>=1.22", "onnx>=1.17", "onnx-ir>=1.1,<2", "numpy", "protobuf",
                "safetensors", "ml_dtypes", "click", "rich", "pytest>=8.2",
                "pytest-randomly>=3.15", "hypothesis>=6.100")  # fmt: skip
# The runtime reads what the processor is from here, and ends where it finds no ARM.
_PROCESSOR_LINES = """processor\t: {number}
Features\t: fp asimd aes pmull sha1 sha2 crc32 atomics fphp asimdhp asimdrdm lrcpc dcpop asimddp
CPU implementer\t: 0x41
CPU architecture: 8
CPU variant\t: 0x3
CPU part\t: 0xd0c
CPU revision\t: 1

"""
# Python starts its own kind for tests in processes of their own; the kernel knows no such program.
_CUSTOMIZE = "import os, sys\nsys.executable = os.environ['EMULATED_PYTHON']\n"
_TESTS = [f"tests/native/test_{name}.py" for name in
          ("attention", "channels", "fused", "instruction_sets", "losses", "packed", "pools",
           "recurrence", "rows", "sums")]  # fmt: skip


def main() -> int:
    """Make what is missing, and run the tests."""
    missing = [package for tool, package in TOOLS.items() if shutil.which(tool) is None]
    if missing:
        raise SystemExit(f"apt-get install {' '.join(missing)}")
    if not SYSTEM.exists():
        make_system()
    if not PACKAGES.exists():
        install_packages()
    wheel = unpacked_wheel()
    library = wheel / "flow2onnx_native" / "libflow2onnx_native.so"
    paths = [wheel, PACKAGES, ROOT, ROOT / "runtime" / "python"]
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(map(str, paths)),
        "FLOW2ONNX_NATIVE": str(library),
        "EMULATED_PYTHON": str(PYTHON),
        "PYTHONDONTWRITEBYTECODE": "1",  # this machine's Python has modules of its own there
    }
    chosen = sys.argv[1:] or ["-m", "not slow", *_TESTS]
    command = [str(PYTHON), "-m", "pytest", "-p", "no:cacheprovider", *chosen]
    return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode


def make_system() -> None:
    """Unpack Python and what it needs, without the scripts that would set a system up."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            ["debootstrap", "--download-only", "--variant=minbase", "--arch=arm64",
             "--include=python3,libgomp1,libstdc++6", RELEASE, folder], check=True,
        )  # fmt: skip
        made = SYSTEM.with_name("system.unfinished")
        shutil.rmtree(made, ignore_errors=True)
        for package in Path(folder, "var", "cache", "apt", "archives").glob("*.deb"):
            subprocess.run(["dpkg-deb", "--extract", package, made], check=True)
    text = "".join(_PROCESSOR_LINES.format(number=n) for n in range(os.cpu_count() or 1))
    (made / "proc" / "cpuinfo").write_text(text)
    PYTHON.write_text(
        f"#!/bin/sh\nexec qemu-aarch64-static -cpu {PROCESSOR} -L {SYSTEM} "
        f'{SYSTEM}/usr/bin/python{RELEASE_PYTHON} "$@"\n'
    )
    PYTHON.chmod(0o755)
    made.rename(SYSTEM)


def install_packages() -> None:
    """Install the wheels of that platform that the tests need."""
    made = PACKAGES.with_name("packages.unfinished")
    shutil.rmtree(made, ignore_errors=True)
    glibcs = [f"--platform=manylinux_2_{n}_aarch64" for n in range(17, 37)]
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--no-warn-conflicts", "--target",
         str(made), *glibcs, "--platform=manylinux2014_aarch64",
         f"--python-version={RELEASE_PYTHON}", "--only-binary=:all:", *REQUIREMENTS], check=True,
    )  # fmt: skip
    (made / "sitecustomize.py").write_text(_CUSTOMIZE)
    made.rename(PACKAGES)


def unpacked_wheel() -> Path:
    """The folder of what is in the wheel of flow2onnx-native, built if its sources changed."""
    sources = sorted(p for p in NATIVE.rglob("*") if p.suffix in (".cc", ".h", ".inc", ".py"))
    state = hashlib.sha256(b"".join(p.read_bytes() for p in sources)).hexdigest()[:16]
    folder = BUILD / f"native-{state}"
    if not folder.exists():
        with tempfile.TemporaryDirectory() as place:
            copy = shutil.copytree(NATIVE, Path(place, "native"))
            wheel = build_wheel(copy, Path(place))
            made = folder.with_suffix(".unfinished")
            zipfile.ZipFile(wheel).extractall(made)
            made.rename(folder)
    return folder


def build_wheel(source: Path, to: Path) -> Path:
    """The wheel for aarch64, by the package's own setup.py and the cross compiler."""
    compiler = {
        "CC": f"{PREFIX}-gcc", "CXX": f"{PREFIX}-g++", "LDSHARED": f"{PREFIX}-gcc -shared",
        "LDCXXSHARED": f"{PREFIX}-g++ -shared", "_PYTHON_HOST_PLATFORM": "linux-aarch64",
    }  # fmt: skip
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", str(to), str(source)],
        env=os.environ | compiler, check=True,
    )  # fmt: skip
    (wheel,) = to.glob("*.whl")
    assert wheel.name.endswith("-linux_aarch64.whl"), f"{wheel.name} is for another platform"
    return wheel


if __name__ == "__main__":
    sys.exit(main())
