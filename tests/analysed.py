"""The C runtime and the native operators, read by clang's static analyser and clang-tidy.

``python -m tests.analysed [c] [native]``: the checks, and the reasons for those left out, are in
`runtime/.clang-tidy`; any finding ends it with 1. The C runtime is read as one file, as then the
analyser sees into every function.
"""

import argparse
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.runtimes.c_driver import SOURCE, make
from tests.sanitized import NATIVE, ROOT, write_header

BUILD = ROOT / "build" / "analysed"
_CHECKS = ROOT / "runtime" / ".clang-tidy"


def main() -> int:
    """Read what is asked for, all by default."""
    parser = argparse.ArgumentParser(prog="python -m tests.analysed", description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[[], "c", "native"], default=[])
    parts = parser.parse_args().parts or ["c", "native"]
    if shutil.which("clang-tidy") is None:
        raise SystemExit("clang-tidy is needed: apt-get install clang-tidy")
    BUILD.mkdir(parents=True, exist_ok=True)
    codes = [_read_c() if part == "c" else _read_native() for part in parts]
    print("no findings" if not any(codes) else "there are findings")
    return int(any(codes))


def _read_c() -> int:
    make(BUILD, "flow2onnx_runtime.c")
    return _read([BUILD / "flow2onnx_runtime.c"], ["-std=c11", f"-I{SOURCE}"])


def _read_native() -> int:
    write_header(BUILD)
    return _read(sorted((NATIVE / "src").rglob("*.cc")), ["-std=c++17", "-O1", f"-I{BUILD}"])


def _read(sources: Sequence[Path], flags: Sequence[str]) -> int:
    command = [
        "clang-tidy",
        "--quiet",
        f"--config-file={_CHECKS}",
        *map(str, sources),
        "--",
        *flags,
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    print(done.stdout, end="")
    if done.returncode:
        print(done.stderr, file=sys.stderr)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
