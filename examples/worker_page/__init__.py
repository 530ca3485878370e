"""The common parts of pages whose model is in a worker: scripts, a sheet, the site's writer."""

import shutil
from pathlib import Path

from examples.browser.__main__ import PACKAGE, onnxruntime_web

__all__ = ["copy_page"]

HERE = Path(__file__).parent
DIGITS = ("curve.js", "style.css")  # of the page that learns digits
RUNTIMES = (
    "ort.wasm.min.mjs", "ort-wasm-simd-threaded.mjs", "ort-wasm-simd-threaded.wasm",
    "ort.webgpu.min.mjs", "ort-wasm-simd-threaded.asyncify.mjs",
    "ort-wasm-simd-threaded.asyncify.wasm",
)  # fmt: skip


def copy_page(page: Path, site: Path) -> None:
    """Write a page with what it imports: the common files, the package, onnxruntime."""
    ort = onnxruntime_web()
    shutil.copytree(page, site, dirs_exist_ok=True)
    shutil.copytree(HERE / "page", site, dirs_exist_ok=True)
    for name in DIGITS:
        shutil.copyfile(HERE.parent / "browser" / "page" / name, site / name)
    shutil.copytree(PACKAGE / "src", site / "flow2onnx-runtime")
    (site / "ort").mkdir()
    for name in RUNTIMES:
        shutil.copyfile(ort / name, site / "ort" / name)
