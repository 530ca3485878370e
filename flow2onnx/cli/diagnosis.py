"""The state of an installation, as data: what is there, what works, what to do about the rest."""

import hashlib
import importlib
import os
import platform
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import flow2onnx_runtime
import numpy as np
from flow2onnx_runtime.providers import PROVIDERS, find_provider, provider_named
from flow2onnx_runtime.world import usable_processors

import flow2onnx
from flow2onnx import engine
from flow2onnx.api.global_function import global_function
from flow2onnx.cli.engines import engines
from flow2onnx.errors import FlowError
from flow2onnx.trace.registry import operator
from flow2onnx.typing import Numpy

__all__ = ["diagnose"]

Facts = dict[str, Any]  # what JSON holds

_PACKAGES = ("onnx", "onnx-ir", "numpy", "protobuf", "ml_dtypes", "safetensors")
_HASHED = 8 * 2**20  # bytes; of larger files the size is compared
# what changes the runtime's behaviour behind everybody's back
_VARIABLES = (
    "ALLOW_RELEASED_ONNX_OPSET_ONLY",
    "CUDA_VISIBLE_DEVICES",
    "OMP_NUM_THREADS",
    "ORT_CUDA_GEMM_OPTIONS",
    "ORT_LOAD_CONFIG_FROM_MODEL",
)
_STEPS = 20
_INSTALL = [
    "pip install 'flow2onnx[cpu]'",
    "pip install 'flow2onnx[gpu]'    # instead, with an NVIDIA GPU",
]


def diagnose() -> Facts:
    """Everything `flow2onnx doctor` tells; ``ok`` says whether jobs can run."""
    runtime = _runtime()
    works = runtime["error"] is None
    step = _try_check(_train) if works else {"ok": False, "error": "onnxruntime cannot be imported"}
    problems = [*_install_problems(runtime), *(_step_problems(step) if works else [])]
    return {
        "ok": not problems,
        "python": _python(),
        "packages": _packages(),
        "onnxruntime": runtime,
        "providers": _providers() if works else [],
        "engines": engines(),
        "processor": _processor(),
        "environment": {name: os.environ[name] for name in _VARIABLES if name in os.environ},
        "train_step": step,
        "problems": problems,
    }


def _python() -> Facts:
    return {
        "version": platform.python_version(),
        "implementation": platform.python_implementation(),
        "executable": sys.executable,
        "platform": platform.platform(),
        "machine": platform.machine(),
    }


def _packages() -> dict[str, str | None]:
    own = {
        "flow2onnx": flow2onnx.__version__,
        "flow2onnx-runtime": flow2onnx_runtime.__version__,
    }
    return own | {name: _version(name) for name in _PACKAGES}


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _processor() -> Facts:
    return {"cores": os.cpu_count(), "usable_cores": usable_processors()}


# onnxruntime, as it is installed and as it is imported


def _runtime() -> Facts:
    facts: Facts = {
        "version": None, "build": None, "newest_opset": None, "newest_ir": None, "error": None,
        "distributions": [_distribution(d) for d in _distributions()],
    }  # fmt: skip
    try:
        ort = importlib.import_module("onnxruntime")
        compiled_in = ort.get_available_providers()
    except Exception as error:  # a broken build fails in any way
        return facts | {"error": f"{type(error).__name__}: {error}"}
    return facts | {
        "version": ort.__version__,
        "build": _build(compiled_in),
        "newest_opset": _newest(range(1, 100), lambda opset: _probe(opset=opset)),
        "newest_ir": _newest(range(3, 100), lambda ir: _probe(ir=ir)),
    }


def _build(compiled_in: Sequence[str]) -> str:
    """``"gpu"`` with CUDA; else what it has that not every build has, or ``"cpu"``."""
    own = [name for name in compiled_in if not provider_named(name).is_everywhere]
    return "gpu" if find_provider("gpu").name in own else "+".join(own) or "cpu"


def _distributions() -> Iterator[metadata.Distribution]:
    """The installed wheels that have a package `onnxruntime`: more than one is a conflict."""
    seen = set()
    for found in metadata.distributions():
        name = str(found.metadata["Name"])
        if name.startswith(("onnxruntime", "ort")) and name not in seen and _has_package(found):
            seen.add(name)
            yield found


def _has_package(found: metadata.Distribution) -> bool:
    return any(file.parts == ("onnxruntime", "__init__.py") for file in found.files or [])


def _distribution(found: metadata.Distribution) -> Facts:
    files = [f for f in found.files or [] if f.parts[0] == "onnxruntime" and f.suffix != ".pyc"]
    states = [_state(file) for file in files]
    return {
        "name": str(found.metadata["Name"]),
        "version": found.version,
        "files": len(files),
        "missing": states.count("missing"),
        "changed": states.count("changed"),
    }


def _state(file: metadata.PackagePath) -> str:
    """True if a file is as the wheel's record says."""
    path = Path(str(file.locate()))
    if not path.is_file():
        return "missing"
    if file.size is not None and path.stat().st_size != file.size:
        return "changed"
    if file.hash is None or path.stat().st_size > _HASHED:
        return "recorded"
    digest = hashlib.new(file.hash.mode, path.read_bytes()).digest()
    return "recorded" if _base64(digest) == file.hash.value else "changed"


def _base64(digest: bytes) -> str:
    import base64

    return base64.urlsafe_b64encode(digest).decode().rstrip("=")


def _newest(versions: range, model: Callable[[int], bytes]) -> int | None:
    """The last version before the first that the runtime refuses after one it takes."""
    newest = None
    for version in versions:
        if _opens(model(version)):
            newest = version
        elif newest is not None:
            break
    return newest


def _opens(model: bytes) -> bool:
    options = flow2onnx_runtime.Options(log_level="fatal")
    try:
        flow2onnx_runtime.open_session(model, options)
    except FlowError:
        return False
    return True


def _probe(ir: int = 8, opset: int = 14) -> bytes:
    """y = Identity(x), float32 of shape (1,), in an IR version and an opset below 128."""
    graph = (
        b':=\n\x12\n\x01x\x12\x01y"\x08Identity:\x00\x12\x05probe'
        b"Z\x0f\n\x01x\x12\n\n\x08\x08\x01\x12\x04\n\x02\x08\x01"
        b"b\x0f\n\x01y\x12\n\n\x08\x08\x01\x12\x04\n\x02\x08\x01"
    )
    return b"\x08" + bytes([ir]) + graph + b"B\x04\n\x00\x10" + bytes([opset])


# Providers


def _providers() -> list[Facts]:
    # like all of the runtime here, not before it is known to be there
    checks = importlib.import_module("flow2onnx_runtime.provider_checks")
    compiled_in = importlib.import_module("onnxruntime").get_available_providers()
    local = [row.name for row in PROVIDERS.values() if not row.is_remote]
    names = dict.fromkeys((*compiled_in, *local))
    usable = set(filter(checks.opens, names))  # registers plug-ins that are installed
    return [
        {
            "name": name,
            "compiled_in": name in compiled_in,
            "usable": name in usable,
            "why_not": None if name in usable else _why_not(name, name in compiled_in),
        }
        for name in names
    ]


def _why_not(name: str, is_compiled_in: bool) -> str:
    """The advice on a provider, in one line."""
    row = provider_named(name)
    if not is_compiled_in and row.plugin is None:
        return row.remedy
    return " ".join(flow2onnx_runtime.why_unusable(name).split())


# One train step, from the job function to its loss


def _try_check(check: Callable[[], Facts]) -> Facts:
    began = time.perf_counter()
    try:
        facts = check()
    except Exception as error:  # whatever fails is what the doctor looks for
        return {"ok": False, "error": f"{type(error).__name__}: {error}"}
    return {"ok": True, "error": None, "seconds": round(time.perf_counter() - began, 3)} | facts


def _train() -> Facts:
    """Fit y = 2x in a session of its own."""
    session = engine.Session()
    token = engine.SESSION.set(session)
    try:
        job = _line_job()
        x = np.linspace(-1, 1, 8, dtype=np.float32).reshape(8, 1)
        losses = [float(job(x, 2 * x).mean()) for _ in range(_STEPS)]
    finally:
        engine.SESSION.reset(token)
        session.close()
    if not losses[-1] < 0.5 * losses[0]:
        raise ArithmeticError(f"the loss went from {losses[0]} to {losses[-1]} in {_STEPS} steps")
    return {"steps": _STEPS, "first_loss": losses[0], "last_loss": losses[-1]}


def _line_job() -> Callable[..., Any]:
    def doctor(x: Any, y: Any) -> Any:  # blobs
        slope = operator("get_variable")(
            "slope", (1, 1), initializer=operator("zeros_initializer")()
        )
        loss = operator("math.square")(operator("matmul")(x, slope) - y)
        rate = operator("optimizer.PiecewiseConstantScheduler")([], [0.5])
        operator("optimizer.SGD")(rate).minimize(loss)
        return loss

    column = Numpy.Placeholder((8, 1))
    doctor.__annotations__ = {"x": column, "y": column, "return": Numpy}
    return global_function(type="train")(doctor)


# What is wrong, and what to do


def _install_problems(runtime: Facts) -> list[Facts]:
    found = runtime["distributions"]
    names = [d["name"] for d in found]
    if len(found) > 1:
        return [_problem(f"{' and '.join(names)} are both installed and overwrite each other",
                         [f"pip uninstall -y {' '.join(names)}", *_INSTALL])]  # fmt: skip
    if runtime["error"] is not None and not found:
        return [_problem("onnxruntime is not installed", _INSTALL)]
    damaged = [d for d in found if d["missing"] or d["changed"]]
    if damaged or runtime["error"] is not None:
        return [_damage(damaged[0] if damaged else found[0], runtime["error"])]
    return []


def _damage(found: Facts, error: str | None) -> Facts:
    what = (
        f"{found['missing']} files of {found['name']} {found['version']} are missing and "
        f"{found['changed']} are not the ones it installed"
        if found["missing"] or found["changed"]
        else f"{found['name']} {found['version']} cannot be imported"
    )
    return _problem(
        f"{what}: {error}" if error else what, [f"pip uninstall -y {found['name']}", *_INSTALL]
    )


def _step_problems(step: Facts) -> list[Facts]:
    if step["ok"]:
        return []
    return [_problem(f"a train step fails: {step['error']}", _INSTALL)]


def _problem(what: str, remedy: list[str]) -> Facts:
    return {"what": what, "remedy": remedy}
