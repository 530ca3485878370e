"""Openings on disk: what rewriting, analysis and the runtime's optimiser made of a compiled job.

A program is traced each time it starts; what follows, and takes longest for deep networks, is read
again where everything that decides on it is the same. Beside openings there are the programs of
jobs, by which a job that was traced is known before it is differentiated.
"""

import contextlib
import functools
import hashlib
import json
import logging
import os
import platform
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

import onnxruntime as ort
from flow2onnx_runtime import Options, world
from flow2onnx_runtime.cache_folders import user_cache
from flow2onnx_runtime.errors import BundleError
from flow2onnx_runtime.extensions import GRADIENT_OF, GRADIENT_OF_EXPANDED, GradientOf
from flow2onnx_runtime.files import open_regular, remove_abandoned, replace_bytes
from flow2onnx_runtime.graph_cache import processor_features
from flow2onnx_runtime.trusted_libraries import exposure

from flow2onnx.analysis.in_place import InPlace
from flow2onnx.analysis.live_range import CallSizes
from flow2onnx.compile import CompiledJob
from flow2onnx.compile.programs import KeptProgram
from flow2onnx.config import FunctionConfig
from flow2onnx.errors import FlowError
from flow2onnx.graph import Model
from flow2onnx.graph.model import model_bytes

__all__ = [
    "ENVIRONMENT",
    "FEWEST_NODES",
    "LIMIT",
    "Entry",
    "KeptOpening",
    "OpeningCache",
    "Place",
    "cache_for",
]

T = TypeVar("T")
ENVIRONMENT = "FLOW2ONNX_CACHE"  # a folder in place of the user's cache; 0: nothing is kept
LIMIT = 2 << 30  # bytes of all openings; those that were not used for longest go first
FEWEST_NODES = 1000  # smaller models are opened as soon as a file is read
_LARGEST = 256 << 20
_SUFFIX = ".opening"
_PROGRAM = ".program"
_MAGIC = b"flow2onnx opening 2\n"
_HEAD = struct.Struct("<32sQQ")  # the hash of what follows, the lengths of facts and model
_OFF = ("0", "off", "false", "no")
_log = logging.getLogger("flow2onnx.execute")


@dataclass(frozen=True, kw_only=True)
class KeptOpening:
    """What is kept of an opening.

    `model` has the native operators, empty where there are none; `graph` is what the runtime made
    of it. `job` is the name that is shown.
    """

    job: str
    model: bytes
    graph: bytes
    native: Mapping[str, int]
    in_place: tuple[InPlace, ...]
    sizes: CallSizes


@dataclass(frozen=True)
class Entry:
    """A file of the cache, for people: whose opening, how large, when it was used last."""

    path: Path
    job: str
    size: int
    used: float


@dataclass(frozen=True)
class Place:
    """Where an opening is kept: its cache and key, beside the program of its job."""

    cache: "OpeningCache"
    key: str
    program: KeptProgram | None

    def read(self) -> KeptOpening | None:
        """What is kept there; None for nothing, or what is damaged."""
        kept = self.cache.read(self.key)
        if kept is not None:
            self._write_program()
        return kept

    def write(self, kept: KeptOpening) -> None:
        """Keep an opening; what cannot be kept is said in the log."""
        self.cache.write(self.key, kept)
        self._write_program()

    def forget(self) -> None:
        """Remove what is kept there."""
        self.cache.forget(self.key)

    def _write_program(self) -> None:
        """Keep the program, which is of use beside an opening alone."""
        if self.program is not None:
            self.cache.write_program(self.program)


@dataclass(frozen=True)
class OpeningCache:
    """A folder of openings by what they are made from.

    The key is a hash over the compiled model, the options, the versions and sources of everything
    that takes part, and the machine: an entry is never out of date, but unused one day. Files are
    written whole, and each begins with the hash of its content. Nothing is read that others than
    root and this user may have written.
    """

    folder: Path
    limit: int = LIMIT

    @classmethod
    def of_user(cls) -> "OpeningCache | None":
        """The cache that the environment names; None where it says that nothing is to be kept."""
        asked = os.environ.get(ENVIRONMENT, "")
        if asked.lower() in _OFF:
            return None
        try:
            return cls(Path(asked).expanduser().absolute() if asked else user_cache("openings"))
        except RuntimeError:  # the user has no home
            return None

    @property
    def fewest_nodes(self) -> int:
        """The nodes from which on a job is kept."""
        return FEWEST_NODES

    def place(self, job: CompiledJob, options: Options, facts: Iterable[object]) -> Place | None:
        """Where the opening of a job belongs; None for one that is not worth it.

        `facts` are whatever else decides on it.
        """
        if job.program is None and len(job.model.graph) < FEWEST_NODES:
            return None
        return Place(self, _key(job, options, facts), job.program)

    def read(self, key: str) -> KeptOpening | None:
        """The opening of that key; None for nothing, or what is damaged or may be somebody's."""
        return self._read(self._path(key), _parse)

    def read_program(self, key: str) -> KeptProgram | None:
        """The program of that key; None as for openings."""
        return self._read(self._program_path(key), _parse_program)

    def _read(self, path: Path, parse: Callable[[bytes], T]) -> T | None:
        if not path.is_file() or not self._is_own(path):
            return None
        try:
            with open_regular(path) as file:
                kept = parse(file.read(_LARGEST))
        except OSError as error:
            _log.warning("%s cannot be read: %s", path, error)
            return None
        except (ValueError, TypeError, KeyError, FlowError) as error:
            _log.warning("%s is damaged, and made again: %s", path, error)
            _remove(path)
            return None
        with contextlib.suppress(OSError):  # it may be root's, or on a disk that is only read
            os.utime(path)
        return kept

    def write(self, key: str, kept: KeptOpening) -> None:
        """Keep an opening; what cannot be kept is said in the log."""
        self._write(self._path(key), kept.job, _content(kept))

    def write_program(self, kept: KeptProgram) -> None:
        """Keep the program of a job, as `write` does, unless it is there."""
        path = self._program_path(kept.key)
        if not path.exists():
            text = json.dumps(kept.facts()).encode()
            self._write(path, kept.job, _framed(text, b"", b""))

    def _write(self, path: Path, job: str, content: bytes) -> None:
        if len(content) > min(_LARGEST, self.limit):
            return
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            replace_bytes(path, content)
            self._shrink()
        except (OSError, BundleError) as error:
            _log.warning("the opening of %s is not kept in %s: %s", job, self.folder, error)

    def forget(self, key: str) -> None:
        """Remove what is kept by that key."""
        _remove(self._path(key))

    def entries(self) -> list[Entry]:
        """All that is kept, what was used last first."""
        found = []
        for path, size, used in self._files(_SUFFIX):
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                found.append(Entry(path, _job_of(path), size, used))
        return sorted(found, key=lambda entry: -entry.used)

    def clear(self) -> int:
        """Remove everything; returns how many openings there were."""
        count = 0
        for path, _, _ in self._files():
            with contextlib.suppress(OSError):
                path.unlink()
                count += path.suffix == _SUFFIX
        self._remove_abandoned()
        return count

    def _path(self, key: str) -> Path:
        return self.folder / f"{key}{_SUFFIX}"

    def _program_path(self, key: str) -> Path:
        own = hashlib.sha256(f"{key} {ort.__version__} {platform.machine()}".encode()).hexdigest()
        return self.folder / f"{own[:40]}{_PROGRAM}"

    def _is_own(self, path: Path) -> bool:
        """True if nobody else may have written a file; else that is said once."""
        try:
            found = exposure(str(path))
        except OSError:
            return False
        if found is not None:
            _warn_of_exposure(self.folder, *found)
        return found is None

    def _files(self, *suffixes: str) -> Iterator[tuple[Path, int, float]]:
        for path in self._paths("*", suffixes or (_SUFFIX, _PROGRAM), ""):
            with contextlib.suppress(OSError):  # another process may have removed it
                state = path.stat()
                yield path, state.st_size, state.st_mtime

    def _paths(self, start: str, suffixes: Iterable[str], end: str) -> Iterator[Path]:
        for suffix in suffixes:
            yield from self.folder.glob(f"{start}{suffix}{end}")

    def _remove_abandoned(self) -> None:
        """Remove what processes that were killed had begun to write."""
        for path in self._paths(".*", (_SUFFIX, _PROGRAM), ".*.tmp"):
            remove_abandoned(path)

    def _shrink(self) -> None:
        self._remove_abandoned()
        found = sorted(self._files(), key=lambda file: file[2])
        excess = sum(size for _, size, _ in found) - self.limit
        for path, size, _ in found:
            if excess <= 0:
                return
            with contextlib.suppress(OSError):
                path.unlink()
            excess -= size


def cache_for(config: FunctionConfig) -> OpeningCache | None:
    """The cache for a job of these flags, unless they forbid it."""
    return OpeningCache.of_user() if config.value("runtime.opening_cache") else None


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()


@functools.cache
def _warn_of_exposure(folder: Path, reason: str, hint: str) -> None:
    _log.warning("openings kept in %s are not read: %s (%s)", folder, reason, hint)


def _content(kept: KeptOpening) -> bytes:
    verdicts = [asdict(verdict) for verdict in kept.in_place]
    facts = {
        "job": kept.job, "native": dict(kept.native), "in_place": verdicts,
        "sizes": asdict(kept.sizes),
    }  # fmt: skip
    return _framed(json.dumps(facts).encode(), kept.model, kept.graph)


def _framed(text: bytes, model: bytes, graph: bytes) -> bytes:
    """The content of a file, behind the hash of it."""
    digest = hashlib.sha256(text)
    digest.update(model)
    digest.update(graph)
    head = _HEAD.pack(digest.digest(), len(text), len(model))
    return b"".join((_MAGIC, head, text, model, graph))


def _parse(content: bytes) -> KeptOpening:
    """The opening in the content of a file; raises ValueError for damage."""
    text, model, graph = _parts(content)
    facts = json.loads(text)
    return KeptOpening(
        job=str(facts["job"]),
        model=model,
        graph=graph,
        native={str(name): int(count) for name, count in facts["native"].items()},
        in_place=tuple(InPlace(**verdict) for verdict in facts["in_place"]),
        sizes=CallSizes(**facts["sizes"]),
    )


def _parse_program(content: bytes) -> KeptProgram:
    """The program in the content of a file; raises ValueError for damage."""
    return KeptProgram.of_facts(json.loads(_parts(content)[0]))


def _parts(content: bytes) -> tuple[bytes, bytes, bytes]:
    """The facts, the model and the graph of a file; raises ValueError for damage."""
    digest, text, model = _head(content)
    body = memoryview(content)[len(_MAGIC) + _HEAD.size :]
    if hashlib.sha256(body).digest() != digest:
        raise ValueError("its content is not what was written")
    return bytes(body[:text]), bytes(body[text : text + model]), bytes(body[text + model :])


def _head(content: bytes) -> tuple[bytes, int, int]:
    """The digest and the two lengths before the body of a file; raises ValueError for damage."""
    end = len(_MAGIC) + _HEAD.size
    if len(content) < end or not content.startswith(_MAGIC):
        raise ValueError("it is no opening")
    digest, text, model = _HEAD.unpack(content[len(_MAGIC) : end])
    return digest, text, model


def _job_of(path: Path) -> str:
    """The name of the job in a file, whose models are not read."""
    with open_regular(path) as file:
        _, text, _ = _head(file.read(len(_MAGIC) + _HEAD.size))
        return str(json.loads(file.read(min(text, _LARGEST)))["job"])


def _key(job: CompiledJob, options: Options, facts: Iterable[object]) -> str:
    # what other jobs of the session have made of its inputs' names is not in its program
    program = "" if job.program is None else job.program.key
    found = hashlib.sha256(repr((program, job.feeds)).encode())
    if not program:
        _add_model(found, job.model)
    decisive = [(f.name, _plain(getattr(options, f.name))) for f in fields(options)]
    machine = (ort.__version__, platform.system(), platform.machine(), os.cpu_count(),
               world.rank_threads(), processor_features(), _sources())  # fmt: skip
    found.update(repr((machine, decisive, list(facts))).encode())
    return found.hexdigest()[:40]


def _add_model(found: "hashlib._Hash", model: Model) -> None:
    """A model and its notes, which native operators follow."""
    found.update(model_bytes(model))
    for node in model.graph:
        for kind in (GRADIENT_OF, GRADIENT_OF_EXPANDED):
            note = node.meta.get(kind)
            if note is not None:
                found.update(repr((node.name, kind, _facts_of(note))).encode())


def _facts_of(note: GradientOf) -> object:
    """A gradient's note, its values by name."""
    return (
        note.op_type, [(k, repr(a.value)) for k, a in sorted(note.attributes.items())],
        *([None if v is None else v.name for v in values]
          for values in (note.inputs, note.outputs, note.gradients)),
        note.position,
    )  # fmt: skip


def _plain(value: Any) -> object:
    """A setting as text that is the same for equal ones."""
    return sorted((k, _plain(v)) for k, v in value.items()) if isinstance(value, Mapping) else value


@functools.cache
def _sources() -> str:
    """A hash of the code that decides on an opening; its version may stay while it changes."""
    package = Path(__file__).parents[1]
    folders = (package / "analysis", package / "engine", package / "graph",
               Path(world.__file__).parent)  # fmt: skip
    found = hashlib.sha256()
    for folder in folders:
        for path in sorted(folder.glob("*.py")):
            found.update(path.name.encode() + b"\0" + path.read_bytes())
    return found.hexdigest()
