"""Rust: a crate that compiles the C runtime, checked by its compiler, clippy and its own tests."""

import re
import shutil
from pathlib import Path

from tests.runtimes.c_driver import ROOT, Command
from tests.runtimes.languages.language import Language, onnxruntime, run

_CRATE = ROOT / "runtime" / "rust"
_DRIVER = """\
[package]
name = "driver"
version = "0.0.0"
edition = "2021"

[dependencies]
flow2onnx-runtime = {{ path = "{crate}" }}
"""


def _build(release: Path, folder: Path) -> Command:
    """A program that depends on the crate of the release, without a network."""
    shutil.copytree(_CRATE / "tests" / "driver" / "src", folder / "src")
    (folder / "Cargo.toml").write_text(_DRIVER.format(crate=release / "rust"))
    run("cargo", "build", "--quiet", "--offline", cwd=folder, CARGO_TARGET_DIR=str(folder / "t"))
    variables = {"FLOW2ONNX_ORT_LIBRARY": str(onnxruntime())}
    return Command((folder / "t" / "debug" / "driver",), variables)


def _check(release: Path, folder: Path) -> None:
    """The crate's tests, no warning of clippy, rustfmt's form, unsafe code in one module."""
    crate = folder / "crate"
    shutil.copytree(_CRATE, crate, ignore=shutil.ignore_patterns("target"))
    shutil.copytree(release / "rust" / "c", crate / "c")
    variables = {
        "CARGO_TARGET_DIR": str(folder / "t"),
        "FLOW2ONNX_BUNDLE": str(ROOT / "runtime" / "conformance" / "mlp" / "bundle"),
        "CFLAGS": "-fsanitize=undefined -fsanitize-undefined-trap-on-error",
    }
    run("cargo", "test", "--quiet", "--offline", cwd=crate, **variables)
    if shutil.which("cargo-clippy"):
        run("cargo", "clippy", "--quiet", "--offline", "--all-targets", "--", "-Dwarnings",
            cwd=crate, **variables)  # fmt: skip
    if shutil.which("rustfmt"):
        run("cargo", "fmt", "--check", cwd=crate)
    for path in (crate / "src").rglob("*.rs"):
        is_unsafe = re.search(r"\bunsafe\b", re.sub(r"//.*", "", path.read_text()))
        assert path.parent.name == "ffi" or not is_unsafe, f"{path.name} has unsafe code"
    assert "#![deny(unsafe_code" in (crate / "src" / "lib.rs").read_text()


LANGUAGE = Language(
    "Rust",
    ("cargo", "cc", "ar", "make"),
    _build,
    _check,
    sources=("runtime/rust/src/ffi/mod.rs",),
    readme="runtime/rust/README.md",
)
