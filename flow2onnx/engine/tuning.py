"""Tuning: the forms of a job's lowerings that are fastest on a machine, measured once."""

import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from flow2onnx_runtime import Options
from flow2onnx_runtime.tune import SECONDS, Report, Trial, tune, write_trials
from flow2onnx_runtime.tuning_file import Answer, cache_path, machine_of, recall, remember

from flow2onnx.compile import CompiledJob
from flow2onnx.errors import BundleError
from flow2onnx.lowering.forms import Choice, Question, lowering, trial_bytes

__all__ = ["Tuning", "cache_path", "emit_trials", "fastest_forms", "measure_lowerings"]

_log = logging.getLogger("flow2onnx.tuning")
_OFTEN = 10  # questions between two messages


@dataclass(frozen=True)
class Tuning:
    """One question of a job: how many nodes ask it, the usual form, and what was measured."""

    question: Question
    nodes: int
    rule: str
    answer: Answer | None


def fastest_forms(
    job: CompiledJob, options: Options, path: Path, *, measures: bool
) -> dict[str, str]:
    """The forms to take by question: those in the file, and with `measures` what is missing.

    Answers that cannot be kept are used nevertheless.
    """
    options = _trial_options(options)
    if not measures:
        known = recall(path, machine_of(options))
        return {key: known[key].form for key in _by_question(job) if key in known}
    report = partial(_log_progress, job.spec.name, path)
    answers = tune(_trials(job), options, path, report=report)
    return {key: answer.form for key, answer in answers.items()}


def measure_lowerings(
    job: CompiledJob,
    options: Options,
    path: Path,
    *,
    report: Report | None = None,
    seconds: float = SECONDS,
) -> list[Tuning]:
    """Every question of a job with its answer, measured now where the file has none.

    Raises BundleError before anything is measured where the file cannot be written.
    """
    options = _trial_options(options)
    try:
        remember(path, machine_of(options), {})
    except OSError as error:
        raise BundleError(
            f"{path} cannot be written: {error.strerror}", hint="give another path"
        ) from error
    answers = tune(_trials(job), options, path, report=report, seconds=seconds)
    return [
        Tuning(asked[0].question, len(asked), asked[0].rule, answers.get(key))
        for key, asked in _by_question(job).items()
    ]


def emit_trials(job: CompiledJob, path: Path) -> int:
    """Write the questions of a job for `python -m flow2onnx_runtime.tune`; returns how many."""
    trials = _trials(job)
    write_trials(path, trials)
    return len(trials)


def _measurable(job: CompiledJob) -> Iterator[Choice]:
    """The choices to measure: of several forms, for known shapes, none asked for by name."""
    for choice in (*job.choices, *(job.update.choices if job.update is not None else ())):
        question = choice.question
        if question.is_static and len(question.forms) > 1 and choice.why != "asked":
            yield choice


def _by_question(job: CompiledJob) -> dict[str, list[Choice]]:
    found: dict[str, list[Choice]] = {}
    for choice in _measurable(job):
        found.setdefault(choice.question.key, []).append(choice)
    return found


def _trials(job: CompiledJob) -> list[Trial]:
    return [_trial(asked[0]) for asked in _by_question(job).values()]


def _trial(choice: Choice) -> Trial:
    question, asked = choice.question, lowering(choice.question.lowering)
    return Trial(
        question.key, choice.rule, question.forms, partial(trial_bytes, question),
        asked.limit(question.at) if asked.limit is not None else 1,
    )  # fmt: skip


def _trial_options(options: Options) -> Options:
    """The options of trials: plain operators; no files are written, and no graph is captured."""
    providers = tuple(
        p if isinstance(p, str) else (p[0], {k: v for k, v in p[1].items() if k not in _CAPTURE})
        for p in options.providers
    )
    return replace(
        options,
        providers=providers,
        profile=None,
        graph_cache=None,
        optimized_path=None,
        operator_libraries=(),
    )


_CAPTURE = ("enable_cuda_graph", "user_compute_stream", "has_user_compute_stream")


def _log_progress(job: str, path: Path, done: int, total: int) -> None:
    if done == 0:
        _log.warning("job %s: measuring %d lowerings; the answers are kept in %s", job, total, path)
    elif done % _OFTEN == 0:
        _log.warning("job %s: %d of %d measured", job, done, total)
