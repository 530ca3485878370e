"""The content of a model repository: folders, versions, and the state of their files."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from flow2onnx_runtime import BundleError

from flow2onnx_serve.loading import CHECK_FILES, VersionFiles

__all__ = ["ModelFolder", "Stamp", "scan"]

Stamp = tuple[tuple[str, int, int], ...]  # name, size and time of each file


@dataclass(frozen=True)
class ModelFolder:
    """A model in the repository: its folder, and the state of each version's files."""

    name: str
    folder: Path
    config: Stamp
    versions: Mapping[int, Stamp]
    file: Path | None = None  # the model, where there is no repository around it

    def place(self, number: int, file: str) -> VersionFiles:
        """Where the files of a version are."""
        if self.file is not None:
            stem = self.file.stem
            checks = tuple(self.folder / f"{stem}.{name}" for name in CHECK_FILES)
            return VersionFiles(self.file, checks)
        folder = self.folder / str(number)
        checks = tuple(d / name for d in (folder, self.folder) for name in CHECK_FILES)
        return VersionFiles(folder / file, checks, self.folder)


def scan(path: Path) -> dict[str, ModelFolder]:
    """The models at `path`, a repository or one .onnx file, by name."""
    if path.is_file():
        return {path.stem: ModelFolder(path.stem, path.parent, (), {1: _file_stamp(path)}, path)}
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
    return ModelFolder(folder.name, folder, _files_stamp(folder), versions)


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
