"""Measure lowerings on this machine: ``python -m flow2onnx_runtime.tune models.zip -o tuned.json``.

A trial is one question - which form of a lowering, for these shapes? - with a model of each form.
"""

import argparse
import json
import logging
import os
import statistics
import sys
import time
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from flow2onnx_runtime.buffers import copy_to_buffer
from flow2onnx_runtime.dtypes import Array, Element, find_onnx_element
from flow2onnx_runtime.errors import BundleError, FlowError
from flow2onnx_runtime.files import replace_file
from flow2onnx_runtime.json_reader import Fields, parse_object
from flow2onnx_runtime.options import DEFAULT_OPTIONS, Options, open_session
from flow2onnx_runtime.plugins import known_providers
from flow2onnx_runtime.providers import find_provider
from flow2onnx_runtime.synthetic import random_array
from flow2onnx_runtime.tuning_file import Answer, machine_of, recall, remember

__all__ = ["Trial", "main", "measure", "read_trials", "tune", "write_trials"]

SECONDS = 0.3  # for one form, about
_LEAST_RUNS = 3
_MOST_RUNS = 200
_HOPELESS = 2.5  # times as slow as the best of the first runs: not run again
_MARGIN = 0.95  # another form must take less than this share of the rule's time

_LIST = "trials.json"
_FORMAT = 1

_log = logging.getLogger("flow2onnx.tune")
Report = Callable[[int, int], None]


@dataclass(frozen=True)
class Trial:
    """One question by its key, and the forms that can answer it; `rule` names the usual one.

    `model(form)` gives the bytes of a model, whose inputs are the same for all forms; whole numbers
    among them lie below `limit`.
    """

    key: str
    rule: str
    forms: tuple[str, ...]
    model: Callable[[str], bytes]
    limit: int = 1


class _Runner:
    """One model with its inputs on its device."""

    def __init__(self, content: bytes, options: Options, fed: Mapping[str, Array]) -> None:
        self._session = open_session(content, options)
        self._binding = self._session.io_binding()
        device = options.device
        for info in self._session.get_inputs():
            array = fed[info.name]
            buffer = copy_to_buffer(device, array, _element(info))
            self._binding.bind_ortvalue_input(info.name, buffer.value)
        for info in self._session.get_outputs():
            self._binding.bind_output(info.name, *device)

    def seconds(self) -> float:
        """The time of one run."""
        begin = time.perf_counter()
        self._session.run_with_iobinding(self._binding)
        self._binding.synchronize_outputs()
        return time.perf_counter() - begin


def measure(trial: Trial, options: Options, seconds: float = SECONDS) -> Answer | None:
    """The fastest form here; None where fewer than two of them run.

    The forms run in turn, so that what else the machine does meets them alike.
    """
    runners = dict(_runners(trial, options))
    if len(runners) < 2:
        return None
    first = {form: min(r.seconds() for _ in range(2)) for form, r in runners.items()}
    best = min(first.values())
    close = [form for form, s in first.items() if s <= _HOPELESS * best]
    times: dict[str, list[float]] = {form: [first[form]] for form in runners}
    begin, rounds = time.perf_counter(), 0
    while rounds < _LEAST_RUNS or (
        rounds < _MOST_RUNS and time.perf_counter() - begin < seconds * len(close)
    ):
        for form in close:
            times[form].append(runners[form].seconds())
        rounds += 1
    ms = {form: round(1000 * statistics.median(t), 5) for form, t in times.items()}
    fastest = min(ms, key=ms.__getitem__)
    usual = ms.get(trial.rule)
    is_clear = usual is None or ms[fastest] < _MARGIN * usual
    return Answer(fastest if is_clear else trial.rule, ms)


def _runners(trial: Trial, options: Options) -> Iterable[tuple[str, _Runner]]:
    """A runner for each form that this runtime can run."""
    fed: dict[str, Array] = {}
    for form in trial.forms:
        content = trial.model(form)
        try:
            fed = fed or _numbers(content, trial.limit)
            runner = _Runner(content, options, fed)
            runner.seconds()
        except Exception as error:  # the runtime's exceptions have no common base
            # no kernel for what the form is made of, or one that refuses what it opened with
            _log.info("%s: %s is left out: %s", trial.key, form, error)
            continue
        yield form, runner


def _numbers(content: bytes, limit: int) -> dict[str, Array]:
    """Random operands."""
    rng = np.random.default_rng(0)
    session = open_session(content, Options(optimization="disable"))
    made = {}
    for info in session.get_inputs():
        element = _element(info)
        made[info.name] = random_array(
            rng, info.shape, element.numpy, integers=(0, limit), is_bfloat16=element.is_bits
        )
    return made


def _element(info: Any) -> Element:
    element = find_onnx_element(info.type)
    assert element is not None, "a trial has inputs of our element types"
    return element


def tune(
    trials: Sequence[Trial],
    options: Options,
    path: Path,
    *,
    report: Report | None = None,
    seconds: float = SECONDS,
) -> dict[str, Answer]:
    """An answer to each trial: those that the file has, and those measured now, which it gets.

    `report(done, total)` is called before each measurement. The file is written at the end, or
    when this is interrupted; where it cannot be, that is logged.
    """
    machine = machine_of(options)
    known = recall(path, machine)
    missing = [t for t in trials if t.key not in known]
    found: dict[str, Answer] = {}
    try:
        for done, trial in enumerate(missing):
            if report is not None:
                report(done, len(missing))
            answer = measure(trial, options, seconds)
            if answer is not None:
                found[trial.key] = answer
    finally:
        if found:
            _keep(path, machine, found)
    answers = known | found
    return {t.key: answers[t.key] for t in trials if t.key in answers}


def _keep(path: Path, machine: str, found: Mapping[str, Answer]) -> None:
    try:
        remember(path, machine, found)
    except OSError as error:
        _log.warning("%s: measured lowerings cannot be kept: %s", path, error.strerror)
    except BundleError as error:
        _log.warning("measured lowerings cannot be kept: %s", error.message)


# --- trials in a file ----------------------------------------------------------------------------
def write_trials(path: str | os.PathLike[str], trials: Sequence[Trial]) -> None:
    """Write trials as a zip file, for a machine that has this package alone.

    It replaces earlier trials; a file of something else raises `BundleError`.
    """
    if os.path.isfile(path) and os.path.getsize(path):
        read_trials(path)
    try:
        replace_file(path, lambda file: _pack(file, trials))
    except OSError as error:
        raise BundleError(
            f"{path} cannot be written: {error.strerror}", hint="give another path"
        ) from None


def _pack(to: BinaryIO, trials: Sequence[Trial]) -> None:
    with zipfile.ZipFile(to, "w", zipfile.ZIP_DEFLATED) as file:
        listed = []
        for i, t in enumerate(trials):
            models = {form: f"{i}/{form}.onnx" for form in t.forms}
            for form, name in models.items():
                file.writestr(name, t.model(form))
            listed.append({"key": t.key, "rule": t.rule, "limit": t.limit, "models": models})
        file.writestr(_LIST, json.dumps({"format": _FORMAT, "trials": listed}, indent=1))


def read_trials(path: str | os.PathLike[str]) -> list[Trial]:
    """The trials in a file; raises `BundleError` where it is none."""
    try:
        with zipfile.ZipFile(path) as file:
            content = {name: file.read(name) for name in file.namelist()}
    except (OSError, zipfile.BadZipFile) as error:
        raise BundleError(
            f"{path} holds no trials: {error}", hint="flow2onnx tune --emit writes such a file"
        ) from None
    listed = Fields(str(path), parse_object(content.get(_LIST, b"{}"), f"{path}:{_LIST}"))
    return [t for t in listed.each("trials", lambda f: _trial(f, content))]


def _trial(fields: Fields, content: Mapping[str, bytes]) -> Trial:
    names = {str(k): str(v) for k, v in fields.mapping("models").items()}
    for name in names.values():
        if name not in content:
            raise fields.error("models", f"{name} is not in the file")
    forms = tuple(names)
    return Trial(
        fields.text("key"), fields.text("rule"), forms, lambda form: content[names[form]],
        fields.number("limit"),
    )  # fmt: skip


# --- command -------------------------------------------------------------------------------------
def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the trials of a file and write the answers, which an export on any machine takes."""
    parser = argparse.ArgumentParser(
        prog="python -m flow2onnx_runtime.tune", description=main.__doc__
    )
    parser.add_argument("trials", help="what `flow2onnx tune --emit` wrote")
    parser.add_argument("-o", "--output", required=True, type=Path, help="the file to write")
    parser.add_argument("--threads", type=int, help="threads of one operator")
    parser.add_argument("--provider", help="execution provider, such as cpu or cuda")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="for one form, about")
    asked = parser.parse_args(arguments)
    try:
        trials = read_trials(asked.trials)
        providers = (_name(asked.provider),) if asked.provider else DEFAULT_OPTIONS.providers
        options = Options(providers, intra_op_threads=asked.threads, optimization="extended")
        remember(asked.output, machine_of(options), {})  # before it takes time: can it be written?
        answers = tune(trials, options, asked.output, report=_print_progress, seconds=asked.seconds)
    except (FlowError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    changed = sum(answers[t.key].form != t.rule for t in trials if t.key in answers)
    print(f"{asked.output}: {len(answers)} lowerings, {changed} of them not the usual form")
    return 0


def _name(word: str) -> str:
    return find_provider(word, known_providers()).name


def _print_progress(done: int, total: int) -> None:
    if done % 10 == 0:
        print(f"{done} of {total} measured", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
