"""Building OFRecord folders from images and arrays, and looking at what is in them."""

import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from flow2onnx_runtime.files import replace_folder

from flow2onnx.data.arrays import UNREADABLE, read_arrays
from flow2onnx.data.images import decode
from flow2onnx.data.ofrecord import OFRecordWriter, Record, Values, read_records
from flow2onnx.data.shards import part_files, part_name
from flow2onnx.errors import ArgumentError, DataError

__all__ = ["IMAGE_SUFFIXES", "FileCheck", "Source", "array_source", "build", "check_file",
           "features_of", "files_of", "image_source"]  # fmt: skip

IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff")
LABELS_FILE = "labels.txt"

Folder = str | os.PathLike[str]
Features = Mapping[str, Values]
Progress = Callable[[int], None]


@dataclass(frozen=True)
class Source:
    """Records by number; `labels` are the names of the classes, in the order of their numbers."""

    count: int
    record: Callable[[int], Features]
    labels: tuple[str, ...] = ()


def image_source(
    folder: Folder, image: str = "encoded", label: str = "class/label", *, checks: bool = False
) -> Source:
    """The images of a folder as they are; each subfolder is a class, numbered by name from 0.

    Without subfolders there are no labels. `checks` decodes every image.
    """
    classes = sorted(p.name for p in Path(folder).iterdir() if p.is_dir())
    files: list[tuple[Path, int | None]] = [(p, None) for p in _images(Path(folder))]
    if classes:
        files = [(p, i) for i, name in enumerate(classes) for p in _images(Path(folder, name))]
    if not files:
        raise ArgumentError(
            f"{folder} holds no images",
            hint=f"images end in {', '.join(IMAGE_SUFFIXES)}; each subfolder is a class",
        )

    def record(number: int) -> Features:
        path, of_class = files[number]
        data = path.read_bytes()
        if checks:
            _decode(data, str(path))
        labelled: Features = {} if of_class is None else {label: np.array([of_class], np.int32)}
        return {image: data, **labelled}

    return Source(len(files), record, tuple(classes))


def _images(folder: Path) -> list[Path]:
    return sorted(p for p in folder.iterdir() if p.suffix.lower() in IMAGE_SUFFIXES and p.is_file())


def _decode(data: bytes, place: str) -> None:
    try:
        decode(data)
    except DataError as error:
        raise error.at(place) from None


def array_source(file: Folder) -> Source:
    """The rows of the arrays of an .npz file, or of one .npy file: a feature for each array.

    8- and 16-bit integers become int32, since bytes would come back as signed.
    """
    path = Path(file)
    arrays = {name: _storable(name, array) for name, array in _load(path).items()}
    counts = {len(array) for array in arrays.values()}
    if len(counts) != 1 or not next(iter(counts)):
        shapes = ", ".join(f"{n} {a.shape}" for n, a in arrays.items()) or "none"
        raise ArgumentError(
            f"{path} needs arrays with the same number of rows, got {shapes}",
            hint="the first axis counts the records",
        )
    return Source(counts.pop(), lambda i: {n: a[i].ravel() for n, a in arrays.items()})


def _load(path: Path) -> dict[str, Any]:
    try:
        return read_arrays(path)
    except UNREADABLE as error:
        raise DataError(f"no arrays that numpy reads: {error}", place=str(path)) from error


def _storable(name: str, array: Any) -> Any:
    if array.ndim < 1 or array.dtype.kind not in "fiub":
        raise ArgumentError(
            f"array {name} is {array.dtype} of shape {array.shape}",
            hint="records hold numbers; the first axis counts the records",
        )
    if array.dtype.kind == "f":
        return array if array.dtype.itemsize >= 4 else array.astype(np.float32)
    if array.dtype == np.uint64:
        raise ArgumentError(f"array {name} is uint64", hint="convert it to int64")
    fits = np.can_cast(array.dtype, np.int32)
    return array.astype(np.int32 if fits else np.int64)


def build(
    source: Source,
    folder: Folder,
    *,
    parts: int = 1,
    suffix_length: int = 5,
    shuffle: bool = False,
    seed: int = 0,
    overwrite: bool = False,
    progress: Progress = lambda done: None,
) -> list[Path]:
    """Write the records of a source as part files of about the same size; returns them.

    The folder appears whole or not at all: what fails leaves nothing, and an earlier folder, which
    only `overwrite` replaces, as it was.
    """
    if not 1 <= parts <= source.count:
        raise ArgumentError(f"{source.count} records do not make {parts} parts")
    order = np.arange(source.count)
    if shuffle:
        np.random.default_rng(seed).shuffle(order)
    target = Path(folder)
    _check_target(target, overwrite)

    def fill(partial: Path) -> None:
        done = 0
        for number, mine in enumerate(np.array_split(order, parts)):
            with OFRecordWriter(partial / part_name(number, suffix_length=suffix_length)) as writer:
                for i in mine:
                    writer.write(source.record(int(i)))
                    done += 1
                    progress(done)
        if source.labels:
            text = "".join(f"{name}\n" for name in source.labels)
            (partial / LABELS_FILE).write_text(text, encoding="utf-8")

    target.parent.mkdir(parents=True, exist_ok=True)
    replace_folder(target, fill, overwrite=overwrite)
    return part_files(folder)


def _holds_parts_alone(folder: Path) -> bool:
    """True for an earlier folder of part files, whose content may go."""
    parts = part_files(folder)
    others = {p.name for p in folder.iterdir()} - {p.name for p in parts}
    return bool(parts) and others <= {LABELS_FILE}


def _check_target(folder: Path, overwrite: bool) -> None:
    """Raise unless a folder is free, or holds part files alone and may be replaced."""
    is_taken = folder.exists() and (not folder.is_dir() or any(folder.iterdir()))
    if is_taken and not overwrite:
        raise ArgumentError(f"{folder} is there already", hint="give another, or --overwrite")
    if is_taken and not _holds_parts_alone(folder):
        raise ArgumentError(
            f"{folder} holds other things than part files, and is not overwritten",
            hint="give a folder of its own",
        )


def files_of(path: Folder, prefix: str = "part-") -> list[Path]:
    """A file, or the part files of a folder."""
    found = [Path(path)] if Path(path).is_file() else part_files(path, prefix)
    if not found:
        raise ArgumentError(
            f"{os.fspath(path)} holds no files {prefix}0, {prefix}1, …",
            hint="--prefix says how the parts are called",
        )
    return found


def features_of(record: Record) -> dict[str, dict[str, Any]]:
    """For each feature its kind, its number of values, and the first of them or its size."""
    return {name: {"kind": f.kind, "count": len(f), "first": _first(f.values)}
            for name, f in sorted(record.features().items())}  # fmt: skip


def _first(values: Any) -> Any:
    if isinstance(values, tuple):
        return [f"{len(v)} bytes" for v in values[:1]]
    return values[:4].tolist()


@dataclass(frozen=True)
class FileCheck:
    """The result of reading a whole file: records, how many have each feature, what is wrong."""

    file: str
    records: int
    features: dict[str, int]
    problem: str | None

    @property
    def ok(self) -> bool:
        """True if every record could be read."""
        return self.problem is None


def check_file(
    path: Path, images: Sequence[str] = (), progress: Progress = lambda n: None
) -> FileCheck:
    """Read every record of a file and decode the features in `images`; stop at what is wrong."""
    found: Counter[str] = Counter()
    count, problem = 0, None
    try:
        for record in read_records(path):
            found.update(_check_record(record, images))
            count += 1
            progress(count)
    except DataError as error:
        problem = error.message
    return FileCheck(str(path), count, dict(sorted(found.items())), problem)


def _check_record(record: Record, images: Sequence[str]) -> Iterable[str]:
    features = record.features()
    for name in images:
        data = record.feature(name).values
        for one in data if isinstance(data, tuple) else ():
            _decode(one, record.where)
    return [f"{name} ({f.kind})" for name, f in features.items()]
