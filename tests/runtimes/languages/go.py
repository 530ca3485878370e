"""Go: a cgo package with the C runtime in it, checked by vet, checks of pointers and of races."""

import shutil
from pathlib import Path

from tests.runtimes.c_driver import ROOT, Command
from tests.runtimes.languages.language import Language, onnxruntime, run

_PACKAGE = ROOT / "runtime" / "go"
_DRIVER = """\
module driver

go 1.19

require flow2onnx v0.0.0

replace flow2onnx => {package}
"""
_OFFLINE = {"GOFLAGS": "-mod=mod", "GOPROXY": "off", "GOTOOLCHAIN": "local"}


def _build(release: Path, folder: Path) -> Command:
    """A program that depends on the package of the release, without a network."""
    shutil.copy(_PACKAGE / "tests" / "driver" / "main.go", folder)
    (folder / "go.mod").write_text(_DRIVER.format(package=release / "go"))
    run("go", "build", "-o", "driver", ".", cwd=folder, **_OFFLINE)
    variables = {"FLOW2ONNX_ORT_LIBRARY": str(onnxruntime()), "GODEBUG": "cgocheck=2"}
    return Command((folder / "driver",), variables)


def _check(release: Path, folder: Path) -> None:
    """gofmt's form, no finding of vet, the package's tests with checks of pointers and races."""
    package = folder / "package"
    shutil.copytree(release / "go", package)
    assert run("gofmt", "-l", ".", cwd=package) == ""
    run("go", "vet", "./...", cwd=package, **_OFFLINE)
    bundle = ROOT / "runtime" / "conformance" / "mlp" / "bundle"
    flags = "-O1 -g -fsanitize=undefined -fsanitize-undefined-trap-on-error"
    run("go", "test", "-race", "./...", cwd=package, GODEBUG="cgocheck=2", CGO_CFLAGS=flags,
        FLOW2ONNX_BUNDLE=str(bundle), **_OFFLINE)  # fmt: skip


LANGUAGE = Language(
    "Go",
    ("go", "cc", "make"),
    _build,
    _check,
    sources=("runtime/go/*.go", "runtime/go/bridge.c"),
    readme="runtime/go/README.md",
    unused=("f2o_tensors_find",),  # results are copied to memory of Go, and found there
)
