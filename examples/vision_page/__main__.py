"""Build the page that fine-tunes a vision model on pictures, and serve it on this machine.

python -m examples.vision_page [MODEL.onnx] [--size 96] [--mean 0.5,0.5,0.5] [--std 0.5,0.5,0.5]

MODEL.onnx is any classifier of RGB images with a free batch, as torch and Keras export them; its
last layer is replaced. Without one it is a MobileNetV2 that has seen two photographs, and tells
simple things apart. The folder that is written is a static site. Needs npm once, to install
onnxruntime-web.
"""

import argparse
import json
import sys
from pathlib import Path

import onnx
from flow2onnx_runtime import replace_folder

from examples.browser.__main__ import serve
from examples.vision_page.bundle import BATCH, SCORES, both
from examples.vision_page.network import LOGITS, STEPS, Vision, adapt, small_mobilenet
from examples.worker_page import copy_page
from flow2onnx.errors import FlowError

HERE = Path(__file__).parent


def build(vision: Vision, out: Path, mean: list[float], std: list[float]) -> None:
    """Write the site: page, package, onnxruntime, bundles for the head and for the last blocks."""
    bundles = both(vision)
    settings = {
        "format": "flow2onnx-vision",
        "input": vision.input, "output": LOGITS, "scores": SCORES, "size": vision.size,
        "batch": BATCH, "channelsFirst": vision.is_channels_first, "classes": vision.classes,
        "mean": mean, "std": std, "bundles": list(bundles),
    }  # fmt: skip

    def fill(site: Path) -> None:
        copy_page(HERE / "page", site)
        for name, made in bundles.items():
            made.save(site / name, verify=False)
        (site / "vision.json").write_text(json.dumps(settings), encoding="utf-8")

    out.parent.mkdir(parents=True, exist_ok=True)
    replace_folder(out, fill, overwrite=True)
    for name, made in bundles.items():
        print(f"{name}: {len(made.trained)} tensors are trained")


def numbers(text: str) -> list[float]:
    """Three numbers, one for each of red, green and blue."""
    found = [float(part) for part in text.split(",")]
    if len(found) != 3:
        raise argparse.ArgumentTypeError(f"{text}: give three numbers, as 0.5,0.5,0.5")
    return found


def main() -> None:
    """Build, then serve."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", type=Path, help="a classifier; a small one without")
    parser.add_argument(
        "--size", type=int, default=96, help="pixels, where the model leaves it free"
    )
    parser.add_argument("--width", type=float, default=0.5, help="of the small network's layers")
    parser.add_argument("--steps", type=int, default=STEPS, help="of the small network's training")
    parser.add_argument("--classes", type=int, default=8, help="the most that a visitor can name")
    parser.add_argument("--depth", type=int, default=4, help="convolutions of the last blocks")
    parser.add_argument("--features", help="the value that the new head reads")
    parser.add_argument(
        "--mean", type=numbers, default=[0.0] * 3, help="of red, green, blue in 0..1"
    )
    parser.add_argument("--std", type=numbers, default=[1.0] * 3, help="what they are divided by")
    parser.add_argument("--port", type=int, default=8080, help="0 takes any free port")
    parser.add_argument("--out", type=Path, default=Path("demo/vision_page"))
    parser.add_argument("--build-only", action="store_true")
    options = parser.parse_args()
    try:
        model = onnx.load(options.model) if options.model else small_mobilenet(
            options.size, options.width, options.steps
        )  # fmt: skip
        vision = adapt(model, options.classes, options.size, options.depth, options.features)
    except FlowError as error:
        sys.exit(str(error))
    build(vision, options.out, options.mean, options.std)
    if not options.build_only:
        serve(options.out, options.port)


if __name__ == "__main__":
    main()
