"""The content of a model repository: folders, versions, and the state of their files."""

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from flow2onnx_runtime import BundleError
from flow2onnx_runtime.slots import adapter_files

from flow2onnx_serve.loading import CHECK_FILES, VersionFiles

__all__ = ["AdapterFile", "ModelFolder", "Stamp", "scan", "single_model"]

Stamp = tuple[tuple[str, int, int], ...]  # name, size and time of each file
_ADAPTERS = "adapters"  # the folder of a model's adapters
_GENAI = "genai_config.json"  # makes a folder a language model's


@dataclass(frozen=True)
class AdapterFile:
    """An adapter on the disk, a file or a folder, and the state of its files."""

    path: Path
    stamp: Stamp


@dataclass(frozen=True)
class ModelFolder:
    """A model in the repository: its folder, and the state of each version's files."""

    name: str
    folder: Path
    config: Stamp
    versions: Mapping[int, Stamp]
    file: Path | None = None  # the model, where there is no repository around it
    adapters: Mapping[str, AdapterFile] = field(default_factory=dict)

    def place(self, number: int, file: str) -> VersionFiles:
        """Where the files of a version are."""
        if self.file is not None:
            stem = self.file.stem
            checks = tuple(self.folder / f"{stem}.{name}" for name in CHECK_FILES)
            return VersionFiles(self.file, checks)
        folder = self.folder / str(number)
        checks = tuple(d / name for d in (folder, self.folder) for name in CHECK_FILES)
        return VersionFiles(folder / file, checks, self.folder)


def single_model(path: Path) -> Path | None:
    """The model at a path that is one model, a file or a language model's folder; None for others.

    Raises `BundleError` for such a folder that does not say its model.
    """
    if path.is_file():
        return path
    config = path / _GENAI
    if not config.is_file():
        return None
    try:
        name = str(json.loads(config.read_text("utf-8"))["model"]["decoder"]["filename"])
        if Path(name).name != name:
            raise ValueError(f"filename is {name!r}")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BundleError(f"{config} says no model: {error!r}", hint="copy it again") from error
    return path / name


def scan(path: Path, adapters: Path | None = None) -> dict[str, ModelFolder]:
    """The models at `path`, by name: a repository, one .onnx file, or a language model's folder.

    `adapters` is the folder of those of one model, where it is not ``adapters`` beside the model.
    """
    file = single_model(path)
    if file is not None:
        name = file.stem if path.is_file() else path.resolve().name
        own = _adapters(file.parent / _ADAPTERS if adapters is None else adapters)
        return {name: ModelFolder(name, file.parent, (), {1: _file_stamp(file)}, file, own)}
    try:
        folders = sorted(p for p in path.iterdir() if p.is_dir() and not p.name.startswith("."))
        return {f.name: found for f in folders if (found := _model(f)) is not None}
    except OSError as error:
        raise BundleError(
            f"{path} cannot be read: {error.strerror}",
            hint="give a folder MODEL/VERSION/model.onnx, or an .onnx file",
        ) from error


def _model(folder: Path) -> ModelFolder | None:
    names = [p.name for p in folder.iterdir()]
    numbers = sorted(int(n) for n in names if n.isascii() and n.isdigit() and not n.startswith("0"))
    versions = {n: _stamp(folder / str(n)) for n in numbers if (folder / str(n)).is_dir()}
    if not versions and "config.pbtxt" not in names:
        return None
    stamp, adapters = _files_stamp(folder), _adapters(folder / _ADAPTERS)
    return ModelFolder(folder.name, folder, stamp, versions, adapters=adapters)


def _adapters(folder: Path) -> dict[str, AdapterFile]:
    """The adapters in a folder by name; none where there is no folder."""
    if not folder.is_dir():
        return {}
    try:
        files = adapter_files(folder)
    except OSError as error:
        raise BundleError(f"{folder} cannot be read: {error.strerror}") from error
    return {
        name: AdapterFile(path, _stamp(path) if path.is_dir() else (_state(path, folder),))
        for name, path in files.items()
    }


def _file_stamp(path: Path) -> Stamp:
    """The state of a model and of the files beside it that have its name."""
    near = (
        p for p in path.parent.iterdir() if p.name.partition(".")[0] == path.stem.partition(".")[0]
    )
    return tuple(sorted(_state(p, path.parent) for p in near if p.is_file()))


def _files_stamp(folder: Path) -> Stamp:
    return tuple(sorted(_state(p, folder) for p in folder.iterdir() if p.is_file()))


def _stamp(folder: Path) -> Stamp:
    return tuple(sorted(_state(path, folder) for path in _files(folder)))


def _files(folder: Path) -> Iterator[Path]:
    for where, _, names in os.walk(folder):
        yield from (Path(where) / name for name in names)


def _state(path: Path, folder: Path) -> tuple[str, int, int]:
    try:
        stat = path.stat()
    except OSError:  # vanished, or a link to nothing: as good as empty
        return str(path.relative_to(folder)), -1, 0
    return str(path.relative_to(folder)), stat.st_size, stat.st_mtime_ns
