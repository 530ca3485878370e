"""The file of measured lowerings: for each machine and question the form that was fastest."""

import contextlib
import json
import os
import platform
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import onnxruntime as ort

from flow2onnx_runtime.cache_folders import user_cache
from flow2onnx_runtime.cuda_runtime import device_name
from flow2onnx_runtime.errors import BundleError
from flow2onnx_runtime.files import replace_bytes
from flow2onnx_runtime.json_reader import parse_object
from flow2onnx_runtime.options import Options
from flow2onnx_runtime.world import rank_threads, usable_processors

try:
    import fcntl
except ImportError:  # not on Windows, where a writer may undo what another wrote at that moment
    fcntl = None  # type: ignore[assignment]  # its absence is tested where it is used

__all__ = ["MOST_ANSWERS", "Answer", "cache_path", "forms_in", "machine_of", "recall", "remember"]

MOST_ANSWERS = 4096  # of one machine; the oldest give way
_MOST_MACHINES = 16
_FORMAT = 1
_BEGINNING = b'{\n "format": '
_OURS = re.compile(rb'\s*\{\s*"format":\s*\d+,\s*"machines":')


@dataclass(frozen=True)
class Answer:
    """The form to take, and the median milliseconds of each that ran."""

    form: str
    ms: Mapping[str, float] = field(default_factory=dict)


Answers = dict[str, Answer]


def cache_path(asked: str | os.PathLike[str] | None = None) -> Path:
    """The file asked for, or lowerings.json in the user's cache folder."""
    return Path(asked).expanduser() if asked else user_cache("lowerings.json")


def machine_of(options: Options) -> str:
    """The machine that times hold for: processor, threads, provider and version of the runtime.

    Where a GPU computes, it is the processor, and there are no threads.
    """
    place, number = options.device
    gpu = device_name(number) if place == "cuda" else None
    threads = options.intra_op_threads or rank_threads() or usable_processors()
    who = gpu or f"{_processor()}, {threads} threads"
    where = ":".join(map(str, (options.provider_names[0], place, number)))
    level = f"{options.optimization} optimization"
    return f"{who}, {where}, {level}, onnxruntime {ort.__version__}"


def _processor() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def recall(path: Path, machine: str) -> Answers:
    """The answers known for a machine; none where the file is missing or damaged."""
    try:
        return _read(path).get(machine, {})
    except (OSError, BundleError):
        return {}


def forms_in(path: str | os.PathLike[str]) -> dict[str, str]:
    """The forms in a file that was measured on one machine, the target of an export."""
    try:
        machines = _read(Path(path))
    except OSError as error:
        raise BundleError(
            f"{path} cannot be read: {error.strerror}",
            hint="make it on the target: python -m flow2onnx_runtime.tune models.zip -o tuned.json",
        ) from None
    if len(machines) != 1:
        raise BundleError(
            f"{path} holds measurements of {len(machines)} machines: {'; '.join(machines)}",
            hint="write those of the target alone into a file of its own",
        )
    (answers,) = machines.values()
    return {key: answer.form for key, answer in answers.items()}


def remember(path: Path, machine: str, answers: Mapping[str, Answer]) -> None:
    """Add what was measured to the file, which is replaced whole.

    Raises OSError where it cannot be written, and `BundleError` for a file of something else, which
    is left as it is. A damaged file is begun anew.
    """
    _to_extend(path)  # nothing is made beside a file of something else
    path.parent.mkdir(parents=True, exist_ok=True)
    with _locked(path.with_name(f"{path.name}.lock")):
        machines = _to_extend(path)
        known = machines.pop(machine, {})
        merged = {k: v for k, v in known.items() if k not in answers} | dict(answers)
        machines[machine] = dict(list(merged.items())[-MOST_ANSWERS:])
        content = _text(dict(list(machines.items())[-_MOST_MACHINES:])).encode()
        replace_bytes(path, content)


def _to_extend(path: Path) -> dict[str, Answers]:
    """The content of a file; nothing where it is missing, empty or damaged."""
    try:
        return _read(path)
    except FileNotFoundError:
        return {}
    except BundleError:
        content = path.read_bytes()
        if not _BEGINNING.startswith(content[: len(_BEGINNING)]) and not _OURS.match(content):
            raise BundleError(
                f"{path} holds something else than measured lowerings, and is left as it is",
                hint="give another path, or remove the file",
            ) from None
        return {}


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Alone among the processes that write beside `path`."""
    with path.open("ab") as file:  # not emptied: it may be somebody's
        if fcntl is not None:
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _text(machines: Mapping[str, Answers]) -> str:
    content = {
        machine: {key: {"form": a.form, "ms": dict(a.ms)} for key, a in answers.items()}
        for machine, answers in machines.items()
    }
    return json.dumps({"format": _FORMAT, "machines": content}, indent=1) + "\n"


def _read(path: Path) -> dict[str, Answers]:
    content = parse_object(path.read_bytes(), str(path))
    machines = content.get("machines")
    if content.get("format") != _FORMAT or not isinstance(machines, dict):
        raise BundleError(f"{path} holds no measured lowerings", hint="measure again")
    return {machine: _answers(path, found) for machine, found in machines.items()}


def _answers(path: Path, found: Any) -> Answers:
    if not isinstance(found, dict) or not all(map(_is_answer, found.values())):
        raise BundleError(f"{path} holds no measured lowerings", hint="measure again")
    return {key: Answer(a["form"], a["ms"]) for key, a in found.items()}


def _is_answer(found: Any) -> bool:
    return (
        isinstance(found, dict)
        and isinstance(found.get("form"), str)
        and isinstance(found.get("ms"), dict)
        and all(isinstance(v, int | float) for v in found["ms"].values())
    )
