"""SIGKILL in the middle of every writer: what is found is whole, and the next write works.

Usage: python -m tests.reliability.killed_writers [--kills 200] [--seed 0] [--writer NAME …]

A writer writes the numbers 1, 2, … to one path for ever. After a kill at any moment its reader must
find one number everywhere, that of the last write that was reported or of the one after it. A model
in two files may be missing for the moment between them, as its writer says.
"""

import argparse
import csv
import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from flow2onnx_runtime import History, Trainer, load_safetensors, save_safetensors
from flow2onnx_runtime.tune import Trial, read_trials, write_trials
from flow2onnx_runtime.tuning_file import Answer, recall, remember

import flow2onnx as flow
import flow2onnx.typing as tp
from flow2onnx.checkpoint import store
from flow2onnx.data.ofrecord import OFRecordWriter, read_records
from flow2onnx.export import export_triton
from tests.reliability.bundles import open_trainer

MODULE = "tests.reliability.killed_writers"
SIZE = 20_000  # numbers in each of two tensors: a write is no single system call
Write = Callable[[Path, int], None]
Read = Callable[[Path], Iterable[float]]


def _tensors(number: int) -> dict[str, Any]:
    return {name: np.full((SIZE,), number, np.float32) for name in ("a", "b")}


def _numbers(arrays: Iterable[Any]) -> set[float]:
    return {float(x) for array in arrays for x in np.unique(array)}


# --- writers and readers -------------------------------------------------------------------------
def write_file(path: Path, number: int) -> None:
    save_safetensors(path, _tensors(number))


def read_file(path: Path) -> Iterable[float]:
    return _numbers(load_safetensors(path)[0].values())


class _State:
    """A trainer's saves: the number is that of its steps, which every save has done once more."""

    def __init__(self) -> None:
        self.trainer: Trainer | None = None

    def write(self, path: Path, number: int) -> None:
        if self.trainer is None:
            self.trainer = open_trainer(in_place=False)
            self.values = self.trainer.state_dict()
        counter = self.trainer.manifest.counter
        assert counter is not None
        shaped = {n: np.full_like(v, number % 100) for n, v in self.values.items()}
        self.trainer.load_state_dict({**shaped, counter: np.full_like(shaped[counter], number)})
        self.trainer.save(path)

    @staticmethod
    def read(path: Path) -> Iterable[float]:
        trainer = open_trainer()
        trainer.load(path)
        steps, counter = trainer.steps, trainer.manifest.counter
        held = _numbers(v for n, v in trainer.state_dict().items() if n != counter)
        assert held == {float(steps % 100)}, held
        return {float(steps)}


def write_checkpoint(path: Path, number: int) -> None:
    store.save(path, _tensors(number))


def read_checkpoint(path: Path) -> Iterable[float]:
    return _numbers(saved.numpy() for saved in store.load(path).values())


class _Jobs:
    """Exports of a predict job, and of a train job as a bundle, whose variable has the number."""

    def __init__(self) -> None:
        self.predict: Any = None

    def _define(self) -> None:
        flow.clear_default_session()

        def weight() -> Any:
            return flow.get_variable("w", (SIZE,), initializer=flow.constant_initializer(0))

        @flow.global_function()
        def predict(x: tp.Numpy.Placeholder((SIZE,))) -> tp.Numpy:
            return x * weight()

        @flow.global_function(type="train")
        def train(x: tp.Numpy.Placeholder((SIZE,))) -> tp.Numpy:
            loss = flow.math.reduce_mean(x * weight())
            rate = flow.optimizer.PiecewiseConstantScheduler([], [0.0])
            flow.optimizer.SGD(rate, momentum=0).minimize(loss)
            return loss

        self.predict, self.train = predict, train

    def _set(self, number: int) -> None:
        if self.predict is None:
            self._define()
        flow.load_variables({"w": np.full((SIZE,), number, np.float32)})

    def model(self, path: Path, number: int) -> None:
        self._set(number)
        self.predict.export(path, verify=False)

    def model_with_data(self, path: Path, number: int) -> None:
        self._set(number)
        self.predict.export(path, verify=False, weights="external")

    def bundle(self, path: Path, number: int) -> None:
        self._set(number)
        self.train.export(path, predict=self.predict, verify=False)

    def triton(self, path: Path, number: int) -> None:
        self._set(number)
        export_triton(self.predict, path, batch=SIZE)


JOBS, STATE = _Jobs(), _State()


def read_model(path: Path) -> Iterable[float]:
    return _numbers(onnx.numpy_helper.to_array(t) for t in onnx.load(path).graph.initializer
                    if t.name == "w")  # fmt: skip


def read_bundle(path: Path) -> Iterable[float]:
    return _numbers([Trainer(path).state_dict()["w"]])


def read_repository(path: Path) -> Iterable[float]:
    model = path / "predict"
    assert (model / "config.pbtxt").is_file()
    versions = sorted(int(p.name) for p in model.iterdir() if p.name.isdigit())
    assert versions == list(range(1, len(versions) + 1)), versions
    return [read_model(model / str(n) / "model.onnx") for n in versions][-1]


def write_tuning(path: Path, number: int) -> None:
    answers = {f"q{i}": Answer(str(number), {str(number): float(number)}) for i in range(2000)}
    remember(path, "machine", answers)


def read_tuning(path: Path) -> Iterable[float]:
    answers = recall(path, "machine").values()
    return {float(a.form) for a in answers} | {ms for a in answers for ms in a.ms.values()}


def write_trial_file(path: Path, number: int) -> None:
    content = number.to_bytes(8, "little") * SIZE
    write_trials(path, [Trial(f"q{i}", "a", ("a", "b"), lambda form: content) for i in range(3)])


def read_trial_file(path: Path) -> Iterable[float]:
    contents = {t.model(form) for t in read_trials(path) for form in t.forms}
    return {float(n) for c in contents for n in np.unique(np.frombuffer(c, np.int64))}


def write_part(path: Path, number: int) -> None:
    with OFRecordWriter(path) as writer:
        for _ in range(200):
            writer.write({"n": np.full((100,), number, np.float32)})


def read_part(path: Path) -> Iterable[float]:
    return _numbers(record.feature("n").values for record in read_records(path))


def write_history(path: Path, number: int) -> None:
    History([{"epoch": i, "loss": float(number)} for i in range(2000)]).save(path)


def read_history(path: Path) -> Iterable[float]:
    rows = list(csv.DictReader(path.read_text().splitlines()))
    assert len(rows) == 2000
    return {float(row["loss"]) for row in rows}


def write_snapshot(path: Path, number: int) -> None:
    store.save(path / f"snapshot_{number:09}", _tensors(number))


def read_snapshots(path: Path) -> Iterable[float]:
    names = store.list_checkpoints(path)
    for name in names:
        assert set(read_checkpoint(path / name)) == {float(name.rpartition("_")[2])}, name
    return {float(names[-1].rpartition("_")[2])} if names else set()


WRITERS: dict[str, tuple[str, Write, Read]] = {
    "file": ("f.safetensors", write_file, read_file),
    "state": ("s.safetensors", STATE.write, STATE.read),
    "checkpoint-file": ("c.safetensors", write_checkpoint, read_checkpoint),
    "checkpoint-folder": ("snapshots", write_snapshot, read_snapshots),
    "model": ("m.onnx", JOBS.model, read_model),
    "model-with-data": ("m.onnx", JOBS.model_with_data, read_model),
    "bundle": ("bundle", JOBS.bundle, read_bundle),
    "repository": ("models", JOBS.triton, read_repository),
    "tuning": ("tuned.json", write_tuning, read_tuning),
    "trials": ("trials.zip", write_trial_file, read_trial_file),
    "records": ("part-0", write_part, read_part),
    "history": ("history.csv", write_history, read_history),
}


def child(writer: str, folder: Path, first: int) -> None:
    """Write for ever; says each number once it is written."""
    name, write, _ = WRITERS[writer]
    for number in count(first):
        write(folder / name, number)
        print(number, flush=True)


def kill(writer: str, folder: Path, first: int, draws: random.Random) -> int:
    """Kill a writer at some moment; the number that is found. AssertionError if it is not whole."""
    command = [sys.executable, "-m", MODULE, "--child", writer, str(folder), str(first)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        last = int(process.stdout.readline())
        time.sleep(draws.uniform(0, 0.2))
        process.send_signal(signal.SIGKILL)
        said = process.stdout.read().splitlines()
    last = int(said[-1]) if said and said[-1].isdigit() else last
    name, _, read = WRITERS[writer]
    found = set(read(folder / name))
    assert found in ({float(last)}, {float(last + 1)}), f"{found} after {last}"
    return int(found.pop())


def measure(kills: int, seed: int, writers: Iterable[str] = tuple(WRITERS)) -> Counter[str]:
    """The outcomes of so many kills, the writers in turn."""
    draws, found, chosen = random.Random(seed), Counter[str](), list(writers)
    with tempfile.TemporaryDirectory() as place:
        numbers = dict.fromkeys(chosen, 0)
        for i in range(kills):
            writer = chosen[i % len(chosen)]
            folder = Path(place, writer)
            (folder / "snapshots").mkdir(parents=True, exist_ok=True)
            try:
                numbers[writer] = kill(writer, folder, numbers[writer] + 1, draws)
                found[f"{writer}: whole"] += 1
            except FileNotFoundError:
                # killed between two files: the weights without a model, never with another's
                assert writer == "model-with-data", f"{writer} left nothing"
                found[f"{writer}: no model"] += 1
            except Exception as error:  # whatever it is, it is what is looked for
                found[f"{writer}: {type(error).__name__}: {error}"[:300]] += 1
                return found
    return found


def main() -> int:
    """Kill; 1 if something was not whole."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--writer", choices=list(WRITERS), action="append")
    parser.add_argument("--child", nargs=3)
    asked = parser.parse_args()
    if asked.child:
        writer, folder, first = asked.child
        child(writer, Path(folder), int(first))
    found = measure(asked.kills, asked.seed, asked.writer or WRITERS)
    print(json.dumps({"seed": asked.seed, **found}, indent=1))
    good = (": whole", ": no model")
    return sum(n for name, n in found.items() if name.endswith(good)) != asked.kills


if __name__ == "__main__":
    sys.exit(main())
