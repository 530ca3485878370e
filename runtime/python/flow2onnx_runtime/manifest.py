"""manifest.json: what a bundle holds, checked when it is read."""

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from flow2onnx_runtime.digest import NO_DIGEST, check_digest, sign
from flow2onnx_runtime.dtypes import find_element
from flow2onnx_runtime.errors import BundleError
from flow2onnx_runtime.files import open_file, replace_bytes
from flow2onnx_runtime.index_ranges import IndexRange
from flow2onnx_runtime.json_reader import MOST, Fields, parse_object

__all__ = [
    "DRAWS_ANEW",
    "FORMAT",
    "MANIFEST",
    "NEXT",
    "RATE",
    "VERSION",
    "Accumulation",
    "FileEntry",
    "Manifest",
    "PredictJob",
    "StateSpec",
    "TensorSpec",
]

MANIFEST = "manifest.json"
# In the metadata: the rate, where it is one for all steps; true, where random draws depend on what
# was run before, so that a resumed training draws others.
RATE, DRAWS_ANEW = "flow2onnx.learning_rate", "flow2onnx.draws_anew"
NEXT = "next/"  # an output of this prefix is the next value of the state it names
FORMAT = "flow2onnx-bundle"
VERSION = 2

_DIGEST_KEY = b'{\n "digest": "'  # begins the file
_SIZE_LIMIT = 64 * 2**20  # a manifest of a million tensors is smaller
_ROLES = ("variable", "slot", "counter")


@dataclass(frozen=True)
class FileEntry:
    """A file of the bundle as it was written: its bytes and their SHA-256 in hexadecimal."""

    size: int
    sha256: str

    @classmethod
    def of(cls, path: str | os.PathLike[str]) -> "FileEntry":
        """The entry that a file deserves as it is now."""
        with open_file(path) as file:
            digest = hashlib.file_digest(file, "sha256")
            return cls(file.tell(), digest.hexdigest())


@dataclass(frozen=True)
class TensorSpec:
    """A feed or result: a symbolic dimension is its name. `dtype` is such as ``"float32"``.

    `range`: the numbers that a feed of whole numbers may hold, where something is known of them.
    """

    name: str
    shape: tuple[int | str, ...]
    dtype: str
    range: IndexRange | None = None


@dataclass(frozen=True)
class StateSpec:
    """A tensor of the state.

    `role`: ``"variable"`` (a weight), ``"slot"`` (an optimizer's memory) or ``"counter"`` (the
    number of steps done; at most one, a single integer). `trainable`: the step changes it.
    `of`: the variable that a slot belongs to.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    role: str = "variable"
    trainable: bool = True
    of: str | None = None


@dataclass(frozen=True)
class Accumulation:
    """A step in two halves: two models, and the state tensor that counts the batches summed up."""

    gradients: str
    update: str
    count: str


@dataclass(frozen=True)
class PredictJob:
    """A predict model of the bundle, and the state tensors it uses.

    Those in `reads` are inputs of the model, which so shares the state of a trainer; those in
    `holds` are initializers, of the values the weights had when the bundle was written.
    """

    job: str
    file: str
    feeds: tuple[TensorSpec, ...]
    results: tuple[TensorSpec, ...]
    reads: tuple[str, ...] = ()
    holds: tuple[str, ...] = ()


@dataclass(frozen=True)
class Manifest:
    """The content of manifest.json: files by name, the step's signature, the state.

    `losses` names the results of the step that are losses, `learning_rate` the state tensor that
    sets the rate from 0 on, `in_place` for a model file the state that it writes after it has read
    it, whatever the order of its nodes. Files are named relative to the bundle's folder, without
    any folder of their own.
    """

    job: str
    producer: str
    opset: int
    files: Mapping[str, FileEntry]
    state: tuple[StateSpec, ...]
    feeds: tuple[TensorSpec, ...]
    results: tuple[TensorSpec, ...]
    losses: tuple[str, ...] = ()
    init: str = "init.onnx"
    step: str = "step.onnx"
    predict: tuple[PredictJob, ...] = ()
    weights: str | None = None
    learning_rate: str | None = None
    accumulate: Accumulation | None = None
    in_place: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    metadata: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check(self)

    @classmethod
    def read(cls, folder: str | os.PathLike[str], *, verify: bool = True) -> "Manifest":
        """The manifest of a bundle; `verify` also compares every file with its size and hash."""
        path = Path(folder) / MANIFEST
        fields = Fields(str(path), parse_object(_text(path), str(path)))
        _check_version(fields)
        manifest = _manifest(fields)
        if verify:
            manifest.verify(folder)
        return manifest

    def verify(self, folder: str | os.PathLike[str]) -> None:
        """Raise `BundleError` unless every file is there as it was written."""
        for name, entry in self.files.items():
            _verify_file(Path(folder) / name, entry)

    def write(self, folder: str | os.PathLike[str]) -> None:
        """Write manifest.json into the bundle's folder; the last step of making a bundle."""
        replace_bytes(Path(folder) / MANIFEST, self.to_bytes())

    def to_bytes(self) -> bytes:
        """The content of manifest.json."""
        fields = {
            "digest": NO_DIGEST,
            "format": FORMAT,
            "version": VERSION,
            **_without_ranges(asdict(self)),
        }
        text = json.dumps(fields, indent=1, ensure_ascii=False).encode() + b"\n"
        assert text.startswith(_DIGEST_KEY), "the digest is the first field"
        return sign(text, len(_DIGEST_KEY))

    @property
    def counter(self) -> str | None:
        """The name of the state tensor that counts the steps, if there is one."""
        return next((s.name for s in self.state if s.role == "counter"), None)

    @property
    def state_id(self) -> str:
        """A hash of the job's name and its state's names, shapes and dtypes, in any order.

        States of equal id can be loaded into each other's jobs.
        """
        tensors = sorted([s.name, list(s.shape), s.dtype] for s in self.state)
        return hashlib.sha256(json.dumps([self.job, tensors]).encode()).hexdigest()


def _without_ranges(value: Any) -> Any:
    """Plain data without the ranges that are not known, as most are."""
    if isinstance(value, dict):
        return {
            k: _without_ranges(v)
            for k, v in value.items()
            if v is not None or k not in ("range", "ignored")
        }
    return [_without_ranges(v) for v in value] if isinstance(value, list | tuple) else value


def _text(path: Path) -> bytes:
    """The content of a manifest that has its digest."""
    with open_file(
        path, "a bundle is a folder with manifest.json, init.onnx and step.onnx"
    ) as file:
        size = os.fstat(file.fileno()).st_size
        if size > _SIZE_LIMIT:
            raise BundleError(f"{path}: {size} bytes are no manifest")
        check_digest(file, _DIGEST_KEY, str(path))
        file.seek(0)
        return file.read(size)


def _check_version(fields: Fields) -> None:
    if fields.text("format") != FORMAT:
        raise fields.error("format", f"is {fields.text('format')!r}, not {FORMAT!r}")
    if fields.number("version") != VERSION:
        raise fields.error(
            "version", f"is {fields.number('version')}; this runtime reads version {VERSION}"
        )


def _manifest(fields: Fields) -> Manifest:
    return Manifest(
        job=fields.text("job"),
        producer=fields.text("producer"),
        opset=fields.number("opset", 1),
        files=fields.objects("files", lambda f: FileEntry(f.number("size"), f.text("sha256"))),
        state=fields.each("state", _state_spec),
        feeds=fields.each("feeds", _tensor_spec),
        results=fields.each("results", _tensor_spec),
        losses=_texts(fields, "losses"),
        init=fields.text("init"),
        step=fields.text("step"),
        predict=fields.each("predict", _predict_job),
        weights=_optional(fields, "weights"),
        learning_rate=_optional(fields, "learning_rate"),
        accumulate=_accumulation(fields),
        in_place=_in_place(fields),
        metadata=_metadata(fields),
    )


def _state_spec(fields: Fields) -> StateSpec:
    spec = _tensor_spec(fields)
    shape = tuple(size for size in spec.shape if isinstance(size, int))
    if shape != spec.shape:
        raise fields.error("shape", f"is {list(spec.shape)}: state has no symbolic dimensions")
    role, trainable, of = fields.text("role"), fields.flag("trainable"), _optional(fields, "of")
    return StateSpec(spec.name, shape, spec.dtype, role, trainable, of)


def _accumulation(fields: Fields) -> Accumulation | None:
    if "accumulate" not in fields:
        return None
    inner = Fields(f"{fields.place}: accumulate", fields.mapping("accumulate"))
    return Accumulation(inner.text("gradients"), inner.text("update"), inner.text("count"))


def _in_place(fields: Fields) -> dict[str, tuple[str, ...]]:
    files = fields.mapping("in_place") if "in_place" in fields else {}
    inner = Fields(f"{fields.place}: in_place", files)
    return {file: _texts(inner, file) for file in files}


def _optional(fields: Fields, key: str) -> str | None:
    return fields.text(key) if key in fields else None


def _tensor_spec(fields: Fields) -> TensorSpec:
    shape = tuple(_dimension(fields, size) for size in fields.items("shape"))
    name, dtype = fields.text("name"), fields.text("dtype")
    return TensorSpec(name, shape, dtype, _range(fields, dtype) if "range" in fields else None)


def _range(fields: Fields, dtype: str) -> IndexRange:
    inner = Fields(f"{fields.place}: range", fields.mapping("range"))
    least, below = inner.number("least", -MOST), inner.number("below", -MOST)
    if least >= below or "int" not in dtype:
        raise fields.error("range", f"is {least} to {below}, of {dtype}")
    ignored = inner.number("ignored", -MOST) if "ignored" in inner else None
    return IndexRange(least, below, inner.text("layer") if "layer" in inner else "", ignored)


def _dimension(fields: Fields, size: object) -> int | str:
    if isinstance(size, str) and size:
        return size
    if isinstance(size, int) and not isinstance(size, bool) and 0 <= size <= MOST:
        return size
    raise fields.error("shape", f"holds {size!r}, neither a size nor the name of one")


def _predict_job(fields: Fields) -> PredictJob:
    return PredictJob(
        job=fields.text("job"),
        file=fields.text("file"),
        feeds=fields.each("feeds", _tensor_spec),
        results=fields.each("results", _tensor_spec),
        reads=_texts(fields, "reads"),
        holds=_texts(fields, "holds"),
    )


def _texts(fields: Fields, key: str) -> tuple[str, ...]:
    items = fields.items(key)
    if not all(isinstance(item, str) for item in items):
        raise fields.error(key, "is not a list of names")
    return tuple(items)


def _metadata(fields: Fields) -> dict[str, str]:
    value: dict[str, Any] = fields.mapping("metadata") if "metadata" in fields else {}
    if not all(isinstance(text, str) for text in value.values()):
        raise fields.error("metadata", "holds values that are not text")
    return value


def _check(manifest: Manifest) -> None:
    """Raise `BundleError` for fields that contradict one another."""
    for name in manifest.files:
        _check_file_name(name)
    for role, name in _named_files(manifest):
        if name not in manifest.files:
            raise _wrong(f"{role} is {name}, which is not in files")
    for key, specs in _spec_lists(manifest):
        _check_specs(key, specs)
    _check_state(manifest)
    _check_predict(manifest)
    results = {spec.name for spec in manifest.results}
    for loss in manifest.losses:
        if loss not in results:
            raise _wrong(f"losses names {loss}, which is not a result")


def _wrong(reason: str) -> BundleError:
    return BundleError(f"{MANIFEST}: {reason}")


def _check_file_name(name: str) -> None:
    if not name or name in (".", "..", MANIFEST) or any(c in name for c in "/\\:\0"):
        raise _wrong(f"files names {name!r}, which is not a plain file name")


def _named_files(manifest: Manifest) -> Iterable[tuple[str, str]]:
    yield "init", manifest.init
    yield "step", manifest.step
    if manifest.weights is not None:
        yield "weights", manifest.weights
    if manifest.accumulate is not None:
        yield "accumulate.gradients", manifest.accumulate.gradients
        yield "accumulate.update", manifest.accumulate.update
    for entry in manifest.predict:
        yield f"the file of predict job {entry.job}", entry.file


def _spec_lists(
    manifest: Manifest,
) -> Iterable[tuple[str, tuple[TensorSpec, ...] | tuple[StateSpec, ...]]]:
    yield "state", manifest.state
    yield "feeds", manifest.feeds
    yield "results", manifest.results
    for entry in manifest.predict:
        yield f"feeds of {entry.job}", entry.feeds
        yield f"results of {entry.job}", entry.results


def _check_specs(key: str, specs: tuple[TensorSpec, ...] | tuple[StateSpec, ...]) -> None:
    seen: set[str] = set()
    for spec in specs:
        if spec.name in seen:
            raise _wrong(f"{key} names {spec.name} twice")
        if find_element(spec.dtype) is None:
            raise _wrong(f"{key}: {spec.name} has the unknown dtype {spec.dtype}")
        seen.add(spec.name)


def _check_state(manifest: Manifest) -> None:
    for spec in manifest.state:
        if spec.role not in _ROLES:
            raise _wrong(f"state: {spec.name} has role {spec.role}, not one of {_ROLES}")
    counters = [s for s in manifest.state if s.role == "counter"]
    if len(counters) > 1 or any(s.shape not in ((), (1,)) for s in counters):
        raise _wrong("state: there is one counter at most, and it is a single number")
    tensors = {s.name: s for s in manifest.state}
    for spec in manifest.state:
        if spec.of is not None and (spec.of not in tensors or tensors[spec.of].role != "variable"):
            raise _wrong(f"state: {spec.name} is of {spec.of}, which is no variable")
    for file, names in manifest.in_place.items():
        unknown = [f for f in (file,) if f not in manifest.files]
        unknown += [name for name in names if name not in tensors]
        if unknown:
            raise _wrong(f"in_place: {unknown[0]} is neither a file nor a tensor of the state")
    if manifest.learning_rate is not None:
        _check_single("learning_rate", tensors.get(manifest.learning_rate), "float32")
    if manifest.accumulate is not None:
        _check_single("accumulate.count", tensors.get(manifest.accumulate.count), "int64")


def _check_single(key: str, spec: StateSpec | None, dtype: str) -> None:
    if spec is None or spec.shape != (1,) or spec.dtype != dtype:
        raise _wrong(f"{key} is not the name of a state tensor of {dtype} and shape [1]")


def _check_predict(manifest: Manifest) -> None:
    names = {spec.name for spec in manifest.state}
    jobs = [entry.job for entry in manifest.predict]
    if len(set(jobs)) < len(jobs):
        raise _wrong(f"predict names a job twice: {', '.join(jobs)}")
    for entry in manifest.predict:
        for name in (*entry.reads, *entry.holds):
            if name not in names:
                raise _wrong(f"predict job {entry.job} uses {name}, which is not in state")


def _verify_file(path: Path, entry: FileEntry) -> None:
    with open_file(path, "the bundle is not complete") as file:
        size, digest = os.fstat(file.fileno()).st_size, "another"
        if size == entry.size:  # else no time is spent on what may be of any size
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != entry.sha256:
        raise BundleError(
            f"{path}: has {size} bytes and SHA-256 {digest[:12]}…, "
            f"the manifest says {entry.size} and {entry.sha256[:12]}…",
            hint="the file was changed or cut off: export the bundle again",
        )
