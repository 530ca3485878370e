"""Build a page that trains adapters of a language model in the browser, and serve it here.

python -m examples.lora_page FOLDER [--port 8080] [--out demo/lora_page] [--rank 8] [--build-only]

FOLDER is a model as onnxruntime-genai serves it, with tokenizer.json and tokenizer_config.json.
The folder that is written is a static site; it shares the model's data file by a second name, so it
lies on the same file system. Needs npm once, to install onnxruntime-web and the tokenizer.
"""

import argparse
import json
import shutil
from pathlib import Path

from flow2onnx_runtime import replace_folder

import flow2onnx as flow
from examples.browser.__main__ import PACKAGE, serve
from examples.worker_page import copy_page

HERE = Path(__file__).parent
LIBRARIES = {
    "tokenizers.js": "@huggingface/tokenizers/dist/tokenizers.min.mjs",
    "jinja.js": "@huggingface/jinja/dist/index.js",
}


def build(folder: Path, out: Path, rank: int, seed: int) -> None:
    """Write the site: page, package, onnxruntime, tokenizer, the bundle of the model's adapters."""
    # WebGPU has no float64; computing activations twice leaves room in the heap of a page.
    made = flow.lora(folder, rank, 2 * rank, recompute=True, webgpu=True, accumulate=False,
                     seed=seed)  # fmt: skip
    print(repr(made))

    def fill(site: Path) -> None:
        copy_page(HERE / "page", site)
        (site / "lib").mkdir()
        for name, path in LIBRARIES.items():
            shutil.copyfile(PACKAGE / "node_modules" / path, site / "lib" / name)
        (site / "texts.json").write_text(json.dumps(texts(folder)), encoding="utf-8")
        made.save(site / "bundle")

    out.parent.mkdir(parents=True, exist_ok=True)
    replace_folder(out, fill, overwrite=True)


def texts(folder: Path) -> dict[str, object]:
    """The tokenizer, its settings and the chat template of a model's folder."""
    template = folder / "chat_template.jinja"
    settings = json.loads((folder / "tokenizer_config.json").read_text("utf-8"))
    if template.exists():
        settings["chat_template"] = template.read_text("utf-8")
    tokenizer = json.loads((folder / "tokenizer.json").read_text("utf-8"))
    return {"tokenizer": tokenizer, "settings": settings}


def main() -> None:
    """Build, then serve."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--port", type=int, default=8080, help="0 takes any free port")
    parser.add_argument("--out", type=Path, default=Path("demo/lora_page"))
    parser.add_argument("--rank", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--build-only", action="store_true")
    options = parser.parse_args()
    build(options.folder, options.out, options.rank, options.seed)
    if not options.build_only:
        serve(options.out, options.port)


if __name__ == "__main__":
    main()
