"""A bundle on disk, opened: its manifest, its first state, its models checked against both."""

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import starmap
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flow2onnx_runtime import view
from flow2onnx_runtime.dtypes import element_named, find_element
from flow2onnx_runtime.errors import BundleError
from flow2onnx_runtime.files import replace_folder
from flow2onnx_runtime.index_ranges import IndexRange
from flow2onnx_runtime.manifest import Manifest, PredictJob, StateSpec, TensorSpec
from flow2onnx_runtime.options import Options
from flow2onnx_runtime.program import Program, TensorInfo
from flow2onnx_runtime.pruned_model import prune_model, signature_of
from flow2onnx_runtime.safetensors import StoredTensor, read_tensors, replace_tensors
from flow2onnx_runtime.state import State

__all__ = ["Bundle"]


class Bundle:
    """The folder of a bundle whose manifest and files have been verified."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        self.manifest = Manifest.read(folder)

    def __repr__(self) -> str:
        return f"<Bundle {self.manifest.job} in {self.folder}>"

    def _repr_html_(self) -> str:
        """The bundle for a notebook: its signature, state and layers."""
        return view.bundle_block(f"Bundle {self.manifest.job}", self.folder, self.manifest)

    def first_state(self, options: Options, without: Collection[str] = ()) -> State:
        """The state that training begins with: the bundle's weights, or else what init computes.

        Tensors of the names in `without` are left out.
        """
        state = State(*options.device)
        dtypes = {spec.name: spec.dtype for spec in self.manifest.state}
        for name, array in self._first_values(options, without):
            state.add(name, array, dtypes[name])
        return state

    def _first_values(
        self, options: Options, without: Collection[str]
    ) -> Iterator[tuple[str, NDArray[Any]]]:
        """The first value of each state tensor, checked; weights are read one by one."""
        names = [spec.name for spec in self.manifest.state if spec.name not in without]
        file = self.manifest.weights
        if file is None:
            values = self._initial(options)
            self.check_state(values, self.manifest.init)
            return ((name, values.pop(name)) for name in names)

        def check(tensors: Mapping[str, StoredTensor]) -> None:
            found = {n: (t.shape, element_named(t.element).numpy) for n, t in tensors.items()}
            self._check_types(found, file)

        return read_tensors(self.folder / file, names, check)

    def check_state(self, values: Mapping[str, NDArray[Any]], where: str) -> None:
        """Raise `BundleError` unless `values` are exactly the manifest's state tensors."""
        self._check_types({n: (a.shape, a.dtype) for n, a in values.items()}, where)

    def _check_types(
        self, types: Mapping[str, tuple[tuple[int, ...], "np.dtype[Any]"]], where: str
    ) -> None:
        """Raise `BundleError` unless shapes and dtypes are exactly the manifest's."""
        specs = {spec.name: spec for spec in self.manifest.state}
        missing, surplus = specs.keys() - types.keys(), types.keys() - specs.keys()
        if missing or surplus:
            raise BundleError(
                f"{where}: lacks {_some(missing)}; has beyond the job's state {_some(surplus)}",
                hint="it was written for another job, or another version of this one",
            )
        for name, (shape, dtype) in types.items():
            _check_tensor(where, specs[name], shape, dtype)

    def step(self, state: State, options: Options) -> Program:
        """The step model bound to `state`."""
        return self._training(self.manifest.step, state, options)

    def halves(
        self, state: State, options: Options, moved: Collection[str] | None = None
    ) -> tuple[Program, Program]:
        """The models that sum up gradients and that update by their mean, bound to `state`.

        Of the update, what makes the outputs `moved`, if they are given.
        """
        parts = self.manifest.accumulate
        if parts is None:
            raise BundleError(
                f"{self.folder} holds no step in two halves",
                hint="export it, or make it trainable, with accumulate=True",
            )
        gradients = self._training(parts.gradients, state, options)
        whole = self.folder / parts.update
        update = whole if moved is None else self._pruned(whole, state, moved)
        return gradients, self._training(parts.update, state, options, update)

    @staticmethod
    def _pruned(file: Path, state: State, outputs: Collection[str]) -> bytes:
        """The model of a file with these outputs alone, which the state has to suffice for."""
        model = prune_model(file.read_bytes(), outputs)
        lacking = {name for name in signature_of(model).inputs if name not in state}
        if lacking:
            raise BundleError(
                f"{file}: what moves some variables reads the state of others: {_some(lacking)}",
                hint="leave optimizer_in_parts out",
            )
        return model

    def _training(
        self, file: str, state: State, options: Options, own: Path | bytes | None = None
    ) -> Program:
        """The model of a file; `own` is one that is given nothing but state, in its place."""
        is_alone = own is not None
        model = self.folder / file if own is None else own
        feeds, results = self.manifest.feeds, self.manifest.results
        if is_alone:
            feeds, results, options = (), (), replace(options, free_dimensions={})
        program = Program(model, state, options.for_training(), name=file)
        sizes = options.free_dimensions
        _check_signature(file, "inputs", program.feeds, feeds, sizes)
        program.ranges = _ranges(self.manifest.feeds)
        _check_signature(file, "outputs", program.results, results, sizes)
        return program

    def predict_job(self, job: str | None) -> PredictJob:
        """The predict job of that name; the first if None."""
        jobs = {entry.job: entry for entry in self.manifest.predict}
        if not jobs:
            raise BundleError(
                f"{self.folder} holds no predict model", hint="name a predict job when exporting"
            )
        if job is not None and job not in jobs:
            raise BundleError(
                f"{self.folder} holds no predict job {job}", hint=f"it holds {', '.join(jobs)}"
            )
        return jobs[job] if job else self.manifest.predict[0]

    def predict(
        self,
        entry: PredictJob,
        state: State | None,
        options: Options,
        initializers: Mapping[str, Any] | None = None,
    ) -> Program:
        """A predict model; inputs that `state` has are read from it."""
        program = Program(self.folder / entry.file, state, options, initializers=initializers)
        sizes = options.free_dimensions
        _check_signature(entry.file, "inputs", program.feeds, entry.feeds, sizes)
        program.ranges = _ranges(entry.feeds)
        _check_signature(entry.file, "outputs", program.results, entry.results, sizes)
        return program

    def export_predict(
        self,
        folder: str | os.PathLike[str],
        entry: PredictJob,
        values: Mapping[str, NDArray[Any]],
    ) -> Path:
        """Write a predict model and a weights file of `values` to a folder; the model's path."""
        weights, target = self.manifest.weights, Path(folder)
        if weights is None or not entry.holds:
            raise BundleError(
                f"{self.folder}: {entry.file} has no weights in a file of their own",
                hint="export the job again with flow2onnx, which writes them so",
            )
        names = {entry.file, weights}
        foreign = sorted({p.name for p in target.iterdir()} - names) if target.is_dir() else []
        if foreign:
            raise BundleError(
                f"{folder} holds {foreign[0]}, which would be lost",
                hint="give a folder that is missing, empty, or an earlier export",
            )

        def fill(place: Path) -> None:
            (place / entry.file).write_bytes((self.folder / entry.file).read_bytes())
            replace_tensors(self.folder / weights, place / weights, values, entry.holds)

        replace_folder(target, fill, overwrite=True)
        return target / entry.file

    def _initial(self, options: Options) -> dict[str, NDArray[Any]]:
        options = replace(options, free_dimensions={})
        program = Program(self.folder / self.manifest.init, None, options)
        if program.feeds:
            raise BundleError(f"{program.name} has inputs", hint="an init model takes none")
        return program.by_name(program.run([]))


def _check_tensor(
    where: str, spec: StateSpec, shape: tuple[int, ...], dtype: "np.dtype[Any]"
) -> None:
    element = find_element(spec.dtype)
    if shape != spec.shape or element is None or not element.takes(dtype):
        raise BundleError(
            f"{where}: {spec.name} is {dtype} {shape}, the manifest says {spec.dtype} {spec.shape}"
        )


def _ranges(feeds: Sequence[TensorSpec]) -> dict[str, IndexRange]:
    return {spec.name: spec.range for spec in feeds if spec.range is not None}


def _check_signature(
    file: str,
    kind: str,
    have: Sequence[TensorInfo],
    asked: Sequence[TensorSpec],
    sizes: Mapping[str, int],
) -> None:
    """Raise `BundleError` for other tensors than the manifest's, of which `sizes` fixes axes."""
    found = [(info.name, info.element, info.shape) for info in have]
    wanted = [(spec.name, spec.dtype, spec.shape) for spec in asked]
    is_same = len(found) == len(wanted) and all(
        f[:2] == w[:2] and len(f[2]) == len(w[2])
        and all(starmap(partial(_is_size, sizes), zip(f[2], w[2], strict=True)))
        for f, w in zip(found, wanted, strict=True)
    )  # fmt: skip
    if not is_same:
        raise BundleError(
            f"{file}: its {kind} are {found}, the manifest says {wanted}",
            hint="the bundle is inconsistent: export it again",
        )


def _is_size(sizes: Mapping[str, int], found: int | str, wanted: int | str) -> bool:
    """True if an axis is as the manifest has it, or follows from sizes that are fixed."""
    if isinstance(wanted, str) and sizes and isinstance(found, int):
        return found == sizes.get(wanted, found)
    return found == wanted


def _some(names: set[str]) -> str:
    return ", ".join(sorted(names)[:5]) + ("…" if len(names) > 5 else "") or "nothing"
