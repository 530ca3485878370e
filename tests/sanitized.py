"""The native operators and the C runtime under AddressSanitizer and UndefinedBehaviorSanitizer.

``python -m tests.sanitized [pytest's arguments]`` runs a selection of two to three minutes, or the
tests that are named. The C runtime's tests build it with the sanitizers themselves; the native
library is built here, and the sanitizers come into Python's process before it.
"""

import os
import runpy
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

__all__ = ["NATIVE", "ROOT", "build_native", "environment", "write_header"]

ROOT = Path(__file__).parents[1]
NATIVE = ROOT / "runtime" / "native"
BUILD = ROOT / "build" / "sanitized"
_SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all",
               "-fno-omit-frame-pointer")  # fmt: skip
_FLAGS = ("-std=c++17", "-O1", "-g", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math",
          "-fvisibility=hidden", *_SANITIZERS, "-shared", "-fPIC")  # fmt: skip
_NATIVE_TESTS = [f"tests/native/test_{name}.py" for name in
                 ("random_rows", "random_convolutions", "random_products", "fused",
                  "attention")]  # fmt: skip
_C_TESTS = ["tests/runtimes/test_c_damage.py", "tests/fuzz/test_smoke.py"]
_PROBE = """#include <cstdlib>
extern "C" __attribute__((visibility("default"))) int probe(int n) {
    int *p = (int *)std::malloc(4 * n), v = p[n];
    std::free(p);
    return v;
}
"""


def main() -> int:
    """Build, see that faults are found at all, and run the tests."""
    BUILD.mkdir(parents=True, exist_ok=True)
    variables = environment(build_native(BUILD))
    _check_probe(variables)
    chosen = sys.argv[1:]
    code = _test(chosen or _NATIVE_TESTS, variables)
    return code if code or chosen else _test(_C_TESTS, {})


def build_native(folder: Path) -> Path:
    """The library of native operators, built with the sanitizers."""
    write_header(folder)
    return _compile(folder, "libflow2onnx_native.so", sorted((NATIVE / "src").glob("*.cc")))


def write_header(folder: Path) -> None:
    """Write the header of what Python and C++ share."""
    table = runpy.run_path(str(NATIVE / "flow2onnx_native" / "abi.py"))
    (folder / "abi.h").write_text(table["cpp_header"]())


def environment(library: Path) -> dict[str, str]:
    """The variables with which Python opens that library; leaks are Python's own, and not told."""
    preloaded = (
        subprocess.run(
            ["g++", f"-print-file-name=lib{name}.so"], capture_output=True, text=True, check=True
        ).stdout.strip()
        for name in ("asan", "ubsan")
    )
    return {
        "LD_PRELOAD": " ".join(preloaded),
        "ASAN_OPTIONS": "detect_leaks=0",
        "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
        "FLOW2ONNX_NATIVE": str(library),
    }


def _compile(folder: Path, name: str, sources: Sequence[Path]) -> Path:
    """The shared library of some sources, compiled two at a time."""
    units = [folder / f"{source.stem}.o" for source in sources]
    commands = [["g++", *_FLAGS[:-2], "-fPIC", f"-I{folder}", "-c", str(source), "-o", str(unit)]
                for source, unit in zip(sources, units, strict=True)]  # fmt: skip
    waiting: list[subprocess.Popen[bytes]] = []
    for command in commands:
        if len(waiting) == 2:
            _wait(waiting.pop(0))
        waiting.append(subprocess.Popen(command))
    for process in waiting:
        _wait(process)
    made = folder / name
    subprocess.run(["g++", *_FLAGS, *map(str, units), "-ldl", "-o", str(made)], check=True)
    return made


def _wait(process: "subprocess.Popen[bytes]") -> None:
    if process.wait():
        raise subprocess.CalledProcessError(process.returncode, process.args)


def _check_probe(variables: Mapping[str, str]) -> None:
    """Raise where a library that reads beyond its memory is not stopped."""
    source = BUILD / "probe.cc"
    source.write_text(_PROBE)
    library = _compile(BUILD, "libprobe.so", [source])
    asked = f"import ctypes; ctypes.CDLL({str(library)!r}).probe(3)"
    done = subprocess.run(
        [sys.executable, "-c", asked], env={**os.environ, **variables}, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    if done.returncode == 0 or "heap-buffer-overflow" not in done.stderr:
        raise SystemExit(f"the sanitizers find nothing here: {done.stderr[-500:]}")


def _test(paths: Sequence[str], variables: Mapping[str, str]) -> int:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "-m", "not slow", *paths]
    return subprocess.run(
        command, cwd=ROOT, env={**os.environ, **variables}, check=False
    ).returncode


if __name__ == "__main__":
    sys.exit(main())
