"""Build the page that learns digits, and serve it on this machine.

python -m examples.browser [--port 8080] [--out demo/browser] [--build-only]

The folder that is written is a static site: any server can serve it. Needs npm once, to install
onnxruntime-web.
"""

import argparse
import shutil
import subprocess
import sys
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from flow2onnx_runtime import replace_folder, save_safetensors

from examples.browser import model

HERE = Path(__file__).parent
PACKAGE = HERE.parents[1] / "runtime" / "js"
RUNTIME_FILES = (
    "ort.wasm.min.mjs",
    "ort-wasm-simd-threaded.mjs",
    "ort-wasm-simd-threaded.wasm",
)
SAMPLES = 400  # digits that the page goes on practising, so that it does not forget


def onnxruntime_web() -> Path:
    """The folder with the browser's onnxruntime, installed if it is not."""
    folder = PACKAGE / "node_modules" / "onnxruntime-web" / "dist"
    if not folder.is_dir():
        npm = shutil.which("npm")
        if npm is None:
            sys.exit("npm is missing: install Node.js, which brings it")
        print("installing onnxruntime-web …")
        # No scripts: that of onnxruntime-node would fetch CUDA libraries.
        subprocess.run([npm, "ci", "--ignore-scripts"], cwd=PACKAGE, check=True)
    return folder


def build(out: Path, epochs: int) -> None:
    """Write the site: page, package, onnxruntime, a bundle that knows digits, digits."""
    ort = onnxruntime_web()
    print(f"training on scikit-learn's digits: {model.train(epochs):.1%} of the others recognised")

    def fill(site: Path) -> None:
        shutil.copytree(HERE / "page", site, dirs_exist_ok=True)
        shutil.copytree(PACKAGE / "src", site / "flow2onnx-runtime")
        (site / "ort").mkdir()
        for name in RUNTIME_FILES:
            shutil.copyfile(ort / name, site / "ort" / name)
        with TemporaryDirectory() as folder:
            bundle = Path(folder, "bundle")
            model.train_job.export(bundle, predict=model.predict_job, on_device=True)
            shutil.copytree(bundle, site / "bundle")
        images, labels = model.digits()
        pixels = np.round(images * 16).astype(np.uint8)
        save_safetensors(
            site / "digits.safetensors", {"images": pixels[:SAMPLES], "labels": labels[:SAMPLES]}
        )

    out.parent.mkdir(parents=True, exist_ok=True)
    replace_folder(out, fill, overwrite=True)


class Handler(SimpleHTTPRequestHandler):
    """Files with the types and headers that modules and threads in a page need."""

    extensions_map = SimpleHTTPRequestHandler.extensions_map | {
        ".js": "text/javascript",
        ".mjs": "text/javascript",
        ".wasm": "application/wasm",
    }

    def end_headers(self) -> None:
        """Add the headers."""
        self.send_header("Cross-Origin-Opener-Policy", "same-origin")
        self.send_header("Cross-Origin-Embedder-Policy", "require-corp")
        self.send_header("Cache-Control", "no-cache")
        super().end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Be quiet about what went well."""
        if len(args) > 1 and str(args[1]) >= "400":
            super().log_message(format, *args)


def serve(site: Path, port: int) -> None:
    """Serve the site to this machine alone, until interrupted."""
    with ThreadingHTTPServer(("127.0.0.1", port), partial(Handler, directory=site)) as server:
        print(f"open http://127.0.0.1:{server.server_port}/   (Ctrl+C ends)", flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print()


def main() -> None:
    """Build, then serve."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=8080, help="0 takes any free port")
    parser.add_argument("--out", type=Path, default=Path("demo/browser"))
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--build-only", action="store_true")
    options = parser.parse_args()
    build(options.out, options.epochs)
    if not options.build_only:
        serve(options.out, options.port)


if __name__ == "__main__":
    main()
