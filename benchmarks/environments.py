"""The environment of each peer: what it is made of, and where it lies.

    python -m benchmarks.environments native torch jax ort-training oneflow peft ranks

makes .venv/bench-PEER for each. A peer without one takes no part; its row says so. torch, JAX and
native operators are also taken from the environment that runs the benchmarks. OneFlow 0.8 has no
wheel for a Python newer than 3.10: name an older one by BENCH_PYTHON, if `python3.10` is not on the
path.
"""

import argparse
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Recipe:
    """The packages that pip installs, and the versions of Python that they are for.

    In a package ``{native}`` is a copy of flow2onnx-native's sources: pip leaves its metadata in
    the folder that it builds in, and tests find a package there whose library is elsewhere.
    """

    packages: tuple[str, ...]
    pythons: tuple[str, ...] = ()  # the running one, if empty


RECIPES = {
    # flow2onnx as it is here, with its own operators and oneDNN
    "native": Recipe(
        (
            "-e",
            str(ROOT / "runtime" / "python"),
            "-e",
            f"{ROOT}[cpu]",  # not [cpu] of the runtime: older pips ask the index for it then
            "{native}[onednn]",
        )
    ),
    # ranks, ours and torch's, on the same torch
    "ranks": Recipe(("-e", str(ROOT / "runtime" / "python"), "-e", f"{ROOT}[cpu,torch]")),
    "torch": Recipe(("torch", "numpy", "onnxscript")),
    "jax": Recipe(("jax", "numpy")),
    # It imports torch, whatever one does with it.
    "ort-training": Recipe(
        ("onnxruntime-training==1.19.2", "onnx==1.16.2", "numpy<2", "torch"), ("3.11", "3.10")
    ),
    "peft": Recipe(("torch", "numpy", "transformers", "peft", "safetensors")),
    "oneflow": Recipe(("oneflow==0.8.0", "numpy<1.24"), ("3.10", "3.9", "3.8")),
}
# a peer, or the module of all its variants: its recipe; the others run where the benchmarks do
OF_PEER = {
    "data_parallel": "ranks", "ddp": "ranks",
    "flow2onnx:native": "native", "predictor:native": "native", "torch": "torch", "jax": "jax",
    "ort_training": "ort-training", "oneflow": "oneflow", "peft": "peft",
}  # fmt: skip
# those that the running Python may have itself, as on a machine with a GPU: the module to look for
_MODULES = {"torch": "torch", "jax": "jax", "ranks": "torch"}


def recipe_of(peer: str) -> str | None:
    """The name of a peer's recipe, if it has one; its first variant may have one of its own."""
    return OF_PEER.get(peer.partition(",")[0], OF_PEER.get(peer.partition(":")[0]))


def interpreter(peer: str) -> str | None:
    """The Python that runs a peer; None if its environment is missing."""
    name = recipe_of(peer)
    if name is None:
        return sys.executable
    own = _python_of(_folder(name))
    if own.exists():
        return str(own)
    return sys.executable if _is_here(name) else None


def _is_here(name: str) -> bool:
    """True if the running Python has what a recipe installs."""
    if name == "native":  # by what flow2onnx looks for: it may be importable and not installed
        return bool(entry_points(group="flow2onnx.accelerators"))
    module = _MODULES.get(name)
    return module is not None and importlib.util.find_spec(module) is not None


def make(name: str) -> None:
    """Make the environment of a peer anew."""
    recipe, folder = RECIPES[name], _folder(name)
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run([_base(name, recipe), "-m", "venv", str(folder)], check=True)
    pip = [str(_python_of(folder)), "-m", "pip", "install", "--quiet"]
    with tempfile.TemporaryDirectory() as copies:
        native = shutil.copytree(ROOT / "runtime" / "native", Path(copies, "native"))
        packages = [package.format(native=native) for package in recipe.packages]
        done = subprocess.run([*pip, *packages], check=False)
    if done.returncode:
        shutil.rmtree(folder)  # half an environment would look like a whole one
        sys.exit(f"{name}: pip could not install {' '.join(recipe.packages)}")
    print(f"{name}: {folder}")


def _base(name: str, recipe: Recipe) -> str:
    running = f"{sys.version_info.major}.{sys.version_info.minor}"
    if not recipe.pythons or running in recipe.pythons:
        return sys.executable
    found = os.environ.get("BENCH_PYTHON")
    for candidate in [found] if found else [f"python{v}" for v in recipe.pythons]:
        if _runs(candidate):
            return candidate
    sys.exit(f"{name} needs Python {' or '.join(recipe.pythons)}: name one by BENCH_PYTHON")


def _runs(command: str) -> bool:
    try:
        return subprocess.run([command, "-c", ""], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def _folder(name: str) -> Path:
    return ROOT / ".venv" / f"bench-{name}"


def _python_of(folder: Path) -> Path:
    return folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("peers", nargs="+", choices=list(RECIPES))
    for name in parser.parse_args().peers:
        make(name)


if __name__ == "__main__":
    main()
