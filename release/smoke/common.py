"""Shared by the programs: arguments, where a distribution must come from, a recorded trace."""

import importlib
import json
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["arguments", "check_installed", "replay"]


def arguments() -> tuple[str, Path, Path]:
    """The version, the folder of conformance bundles, the folder to write to."""
    number, conformance, work = sys.argv[1:]
    return number, Path(conformance), Path(work)


def check_installed(number: str, *modules: str) -> None:
    """See that modules are of this environment and of this version, the files and the metadata."""
    for name in modules:
        module: Any = importlib.import_module(name)
        place = Path(module.__file__).resolve()
        assert place.is_relative_to(Path(sys.prefix).resolve()), f"{name} comes from {place}"
        assert version(name.replace("_", "-")) == number, f"{name} is {version(name)}, not {number}"
        stated = getattr(module, "__version__", number)
        assert stated == number, f"{name} states {stated}, its package {number}"


def replay(trainer: Any, folder: Path, steps: int) -> float:
    """Do the first steps of a trace; the largest difference to its losses, within its tolerance."""
    from flow2onnx_runtime import load_safetensors

    trace = json.loads((folder / "trace.json").read_text("utf-8"))
    feeds, _ = load_safetensors(folder / "feeds.safetensors")
    worst = 0.0
    for action in trace["actions"][:steps]:
        assert action["do"] == "step"
        results = trainer.step(**{f.name: feeds[f.name][action["batch"]] for f in trainer.feeds})
        for name, values in action["results"].items():
            wanted, found = np.asarray(values), np.asarray(results[name]).ravel()
            worst = max(worst, float(np.abs(found - wanted).max() / (1 + np.abs(wanted).max())))
    assert worst <= trace["tolerance"], f"losses are {worst:.1e} from the recorded ones"
    return worst
