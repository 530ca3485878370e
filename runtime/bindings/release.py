"""The release archive of the C runtime and its bindings.

`python -m runtime.bindings.release [FILE.tar.gz]` in the repository's root writes it, by default
to build/. Each language has a folder that builds alone, with the C runtime as one file where it is
compiled. Equal sources make equal bytes.
"""

import argparse
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path

from runtime.bindings import archives
from runtime.bindings.c_api import ROOT

__all__ = ["NAME", "VERSION", "contents", "main", "unpack", "write"]

_PROJECT = ROOT / "runtime" / "python" / "pyproject.toml"
VERSION: str = tomllib.loads(_PROJECT.read_text("utf-8"))["project"]["version"]
NAME = f"flow2onnx-runtime-{VERSION}"
_JOINED = "flow2onnx_runtime.c"

# Folder of the archive → its files, as patterns below `runtime`. A binding adds one row.
_FILES: dict[str, tuple[str, ...]] = {
    "": ("CONTRACT.md",),
    "c": ("c/README.md", "c/flow2onnx_runtime.h"),
    "cpp": ("cpp/README.md", "cpp/CMakeLists.txt", "cpp/flow2onnx.pc.in", "cpp/vcpkg.json",
            "cpp/include/*.hpp", "cpp/examples/*"),
    "csharp": ("csharp/README.md", "csharp/Makefile", "csharp/Flow2Onnx/*"),
    "go": ("go/README.md", "go/go.mod", "go/*.go", "go/bridge.[ch]"),
    "java": ("java/README.md", "java/Makefile", "java/CMakeLists.txt", "java/src/main/c/*.c",
             "java/src/main/*/flow2onnx/*", "java/src/android/*"),
    "swift": ("swift/README.md", "swift/Package.swift", "swift/Sources/*/*.swift",
              "swift/Sources/*/include/*", "swift/Tests/*/*.swift"),
    "rust": ("rust/README.md", "rust/Cargo.toml", "rust/Cargo.lock", "rust/build.rs",
             "rust/src/**/*.rs"),
}  # fmt: skip
# Where the C runtime lies as one file: beside its header, or within a package that compiles it.
_JOINED_IN = ("c", "go", "rust/c", "swift/Sources/CFlow2Onnx")
# Packages that compile the C runtime have its header as well.
_HEADER_IN = ("go", "rust/c", "swift/Sources/CFlow2Onnx/include")


def contents() -> dict[str, bytes]:
    """Each path of the archive with its bytes, sorted."""
    found = {"LICENSE": (ROOT / "LICENSE").read_bytes()}
    runtime = ROOT / "runtime"
    for folder, patterns in _FILES.items():
        own = runtime / folder
        for path in (path for pattern in patterns for path in _matches(runtime, pattern)):
            found[(Path(folder) / path.relative_to(own)).as_posix()] = path.read_bytes()
    source = _one_source()
    header = (runtime / "c" / "flow2onnx_runtime.h").read_bytes()
    for folder in _JOINED_IN:
        found[f"{folder}/{_JOINED}"] = source
    for folder in _HEADER_IN:
        found[f"{folder}/flow2onnx_runtime.h"] = header
    return dict(sorted(found.items()))


def _matches(runtime: Path, pattern: str) -> Iterator[Path]:
    """The files of a pattern; an error if there is none."""
    found = [p for p in sorted(runtime.glob(pattern)) if p.is_file()]
    if not found:
        raise FileNotFoundError(f"runtime/{pattern}: no such file; look at {__file__}")
    yield from found


def _one_source() -> bytes:
    """All sources of the C runtime as one file, as its Makefile joins them."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / _JOINED
        command = ["make", "-s", "-C", str(ROOT / "runtime" / "c"), f"OUT={folder}", "ORT=.",
                   str(target)]  # fmt: skip
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        return target.read_bytes()


def write(target: Path) -> None:
    """Write the archive, whole or not at all."""
    target.parent.mkdir(parents=True, exist_ok=True)
    files = {f"{NAME}/{path}": (0o644, data) for path, data in contents().items()}
    archives.write_tar(target, files)


def unpack(archive: Path, folder: Path) -> Path:
    """The archive's one folder, unpacked below another."""
    archives.unpack(archive, folder)
    return folder / NAME


def main() -> int:
    """Write the archive and say where it is."""
    parser = argparse.ArgumentParser(prog="python -m runtime.bindings.release", description=__doc__)
    parser.add_argument("file", nargs="?", type=Path, default=ROOT / "build" / f"{NAME}.tar.gz")
    target = parser.parse_args().file
    write(target)
    print(f"{target}: {target.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
