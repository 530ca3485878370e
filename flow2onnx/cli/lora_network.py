"""`flow2onnx lora --loss`: adapters of models that are no language models."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np
from flow2onnx_runtime.batch_sources import name_faults
from flow2onnx_runtime.dtypes import Array
from flow2onnx_runtime.token_log import RowLog

from flow2onnx.cli.lora_training import (
    ServedAs,
    TrainingData,
    TrainingRequest,
    adapter_settings,
    fit_bundle,
    write_bundle,
)
from flow2onnx.cli.options import load_arrays, parse_inputs
from flow2onnx.cli.show import working
from flow2onnx.data.build import image_source
from flow2onnx.data.images import decode, resize
from flow2onnx.errors import ArgumentError, DataError
from flow2onnx.imported import TrainableModel
from flow2onnx.imported import lora_network as adapters_of
from flow2onnx.imported.low_rank.network import input_shapes
from flow2onnx.imported.training_memory import check_step_memory, free_sizes

__all__ = ["train_network"]

_BATCH = 32  # rows, where nobody says and the model takes any number
_COLOURS = 3  # red, green, blue
_WHITE = 255

Arrays = dict[str, Array]


@dataclass(frozen=True, kw_only=True)
class _PictureInput:
    """How a model takes pictures: the input's name, the size, and where the colours are."""

    name: str
    height: int
    width: int
    colours_first: bool
    mean: Array
    deviation: Array

    def read(self, data: bytes) -> Array:
        """A picture as the model takes it: scaled to 0..1, less the mean, by the deviation."""
        picture = resize(decode(data, "RGB"), self.height, self.width).astype(np.float32)
        scaled = (picture / _WHITE - self.mean) / self.deviation
        return scaled.transpose(2, 0, 1) if self.colours_first else scaled


def train_network(asked: TrainingRequest) -> None:
    """Train adapters of a model by a loss of its outputs, on arrays by name or on pictures."""
    fit_bundle(asked, *_write_network(asked))


def _write_network(asked: TrainingRequest) -> tuple[ServedAs, TrainingData]:
    """Write the bundle; what its adapter is served as, and the data to train it on."""
    model, validation, options = asked.model, asked.validation, asked.options
    fixed, pictures = _inputs_of(model, options)
    arrays, classes = _read("data", asked.data, pictures, options["labels"])
    held = None
    if validation is not None:
        held, names = _read("validation", validation, pictures, options["labels"])
        if names != classes:
            raise ArgumentError(
                f"--validation {validation} has the classes {', '.join(names) or 'of arrays'}, "
                f"--data {', '.join(classes) or 'those of arrays'}",
                hint="the same subfolders in both",
            )
    size = options["batch_size"] or fixed or _BATCH
    if fixed is not None:
        _check_full_batches(size, fixed, {"data": arrays, "validation": held})
    batches = _rows(arrays) // size if fixed else math.ceil(_rows(arrays) / size)
    accumulate = options["accumulate"] = max(1, min(options["accumulate"] or 1, batches))
    steps = options["epochs"] * math.ceil(batches / accumulate)
    with working(f"Compiling {model}"):
        made = _compile(model, options, steps)
    for what, given in (("data", arrays), ("validation", held)):
        if given is not None:
            _check_names(f"--{what}", given, made.step.feeds)
    shapes = {name: (size, *array.shape[1:]) for name, array in arrays.items()}
    check_step_memory(
        made.halves or (made.step,), free_sizes(made.step, shapes),
        "free memory, or give fewer rows (--batch-size), or --recompute",
    )  # fmt: skip
    log = partial(RowLog, arrays, size, validation=held, drops_last=fixed is not None)
    settings: dict[str, Any] = {"batch_size": size, "seed": options["seed"],
                                "labels": options["labels"]}  # fmt: skip
    if options["metrics"]:
        settings |= {"metrics": list(options["metrics"]), "validation": held or arrays}
    told = f"{made!r}: {batches} batches, {steps} steps"
    write_bundle(asked, partial(_save, made, classes), told)
    return ServedAs(base=str(model)), TrainingData(batches=arrays, log=log, settings=settings)


def _compile(model: Path, options: dict[str, Any], steps: int) -> TrainableModel:
    """The adapters with their step; random draws are by step, so that a run can be resumed."""
    chosen = {"output": options["of"], "inputs": parse_inputs(options["inputs"])}
    return adapters_of(
        model, options["loss"], labels=options["labels"], on_device=True,
        **adapter_settings(options, steps), **{n: v for n, v in chosen.items() if v},
    )  # fmt: skip


def _save(made: TrainableModel, classes: tuple[str, ...], folder: Path) -> None:
    made.save(folder, verify=False)
    if classes:
        text = "".join(f"{name}\n" for name in classes)
        (folder.parent / "labels.txt").write_text(text, encoding="utf-8")


def _inputs_of(model: Path, options: dict[str, Any]) -> tuple[int | None, _PictureInput | None]:
    """The batch that a model takes, if it takes no other; and how it takes pictures, if it does."""
    shapes = {name: list(shape) for name, shape in input_shapes(model).items()}
    for name, asked in parse_inputs(options["inputs"]).items():
        if isinstance(asked, tuple):
            shapes[name] = list(asked)
        else:
            shapes = {n: [asked if d == name else d for d in s] for n, s in shapes.items()}
    first = next((s[0] for s in shapes.values() if s), None)
    fixed = first if isinstance(first, int) else None
    pictures = [_picture_input(name, shape, options) for name, shape in shapes.items()]
    return fixed, next(filter(None, pictures), None)


def _picture_input(
    name: str, shape: list[int | str], options: dict[str, Any]
) -> _PictureInput | None:
    if len(shape) != 4 or _COLOURS not in (shape[1], shape[3]):
        return None
    is_first = shape[1] == _COLOURS
    sizes = shape[2:] if is_first else shape[1:3]
    height, width = (d if isinstance(d, int) else 0 for d in sizes)
    return _PictureInput(
        name=name, height=height, width=width, colours_first=is_first,
        mean=_colours("mean", options["mean"]), deviation=_colours("std", options["std"]),
    )  # fmt: skip


def _colours(option: str, text: str) -> Array:
    """One number for all colours, or one for each."""
    try:
        numbers = np.array([float(part) for part in text.split(",")], np.float32)
    except ValueError:
        numbers = np.zeros(0, np.float32)
    is_count = numbers.size in (1, _COLOURS)
    is_good = is_count and np.isfinite(numbers).all() and (option != "std" or (numbers > 0).all())
    if not is_good:
        raise click.BadParameter(f"--{option} {text}: write one number, or three: 0.4,0.5,0.6")
    return numbers


def _read(
    option: str, path: Path, pictures: _PictureInput | None, labels: str
) -> tuple[Arrays, tuple[str, ...]]:
    """The arrays of a file or a folder, and the names of classes where these are of pictures."""
    if not path.is_dir():
        loaded = load_arrays(option, path)
        arrays = loaded if isinstance(loaded, dict) else {path.stem: loaded}
    elif files := sorted(path.glob("*.npy")):
        arrays = {file.stem: load_arrays(option, file) for file in files}
    else:
        return _read_pictures(option, path, pictures, labels)
    counts = {name: len(array) if array.ndim else 0 for name, array in arrays.items()}
    if len(set(counts.values())) != 1 or not min(counts.values()):
        shown = ", ".join(f"{name} {count}" for name, count in counts.items()) or "none"
        raise ArgumentError(f"--{option} {path} needs arrays of as many rows, it has {shown}",
                            hint="the first axis counts the examples")  # fmt: skip
    return arrays, ()


def _read_pictures(
    option: str, folder: Path, into: _PictureInput | None, labels: str
) -> tuple[Arrays, tuple[str, ...]]:
    """The pictures of a folder with a subfolder for each class, and the names of these."""
    source = image_source(folder)
    if not source.labels:
        raise ArgumentError(
            f"--{option} {folder} has pictures that are of no class",
            hint="put those of each class into a subfolder of its name",
        )
    if into is None or not (into.height and into.width):
        raise ArgumentError(
            f"--{option} {folder} has pictures, and the model takes none of a known size",
            hint="an input of (batch, 3, height, width) does, whose free sizes --inputs sets, as "
            "height=224; or give arrays: an .npz file, or a folder of NAME.npy",
        )
    shape = (_COLOURS, into.height, into.width) if into.colours_first else (
        into.height, into.width, _COLOURS)  # fmt: skip
    found, numbers = np.empty((source.count, *shape), np.float32), np.empty(source.count, np.int64)
    for i in range(source.count):
        record = source.record(i)
        numbers[i] = int(np.asarray(record["class/label"])[0])
        try:
            found[i] = into.read(bytes(record["encoded"]))  # type: ignore[arg-type]  # an image's
        except DataError as error:
            raise error.at(f"--{option} {folder}, picture {i + 1}") from None
    return {into.name: found, labels: numbers}, source.labels


def _check_full_batches(size: int, fixed: int, given: Mapping[str, Arrays | None]) -> None:
    """Raise ArgumentError where a model of a fixed batch takes another, or has no rows for one."""
    if size != fixed:
        raise ArgumentError(f"--batch-size is {size}, and the model takes {fixed} rows at a time",
                            hint="leave it out, or give a model with a free batch")  # fmt: skip
    for option, arrays in given.items():
        if arrays is not None and _rows(arrays) < fixed:
            raise ArgumentError(
                f"--{option} has {_rows(arrays)} rows, and the model takes {fixed} at a time",
                hint="give more rows, or a model with a free batch",
            )


def _rows(arrays: Arrays) -> int:
    return len(next(iter(arrays.values())))


def _check_names(what: str, arrays: Arrays, feeds: tuple[str, ...]) -> None:
    """Raise ArgumentError for arrays of other names than the inputs of a step."""
    missing = [n for n in feeds if n not in arrays]
    surplus = [n for n in arrays if n not in feeds]
    if missing or surplus:
        raise ArgumentError(
            f"{what} {name_faults(missing, surplus)}",
            hint=f"arrays are called as the inputs: {', '.join(feeds)}; --labels and --inputs "
            "change what these are",
        )
